//! The rings of a completion queue: one for each shard of the RNIC, and after a resize also older ones, until they are
//! read. And what was taken out of them for calls that wait for their own completions.
//!
//! Completions of one queue pair come in order: it has its connection in one shard.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, OnceLock};

use rnic_ipc::ring::{CqConsumer, CqLook, RingFault};
use rnic_ipc::work::Completion;

use super::claims::{Claims, SetAside};
use crate::error::Error;
use crate::wait::lock;

/// Entries that one step moves out of the rings while there are claims.
const BATCH: usize = 16;

/// All of them.
#[derive(Debug)]
pub(super) struct Rings {
    guarded: Mutex<Guarded>,
    looks: Look,
    set_aside: SetAside,
}

/// What only the holder of the lock may use.
#[derive(Debug)]
pub(super) struct Guarded {
    /// Oldest first, at least one. The engine writes the last only.
    rings: VecDeque<ShardRings>,
    pub(super) claims: Claims,
}

/// Rings that were made together, one for each shard.
#[derive(Debug)]
struct ShardRings {
    rings: Vec<CqConsumer>,
    /// Which is read first by the next call, so that a busy shard holds up no other's completions.
    next: usize,
}

impl ShardRings {
    fn new(rings: Vec<CqConsumer>) -> Self {
        Self { rings, next: 0 }
    }

    /// Entries of each.
    fn depth(&self) -> u32 {
        self.rings.first().map_or(0, CqConsumer::depth)
    }

    /// Moves completions into `out`, the oldest of each ring first, and says how many.
    fn poll(&mut self, out: &mut [Completion]) -> Result<usize, RingFault> {
        let mut count = 0;
        let rings = self.rings.len();
        for ring in (self.next..rings).chain(0..self.next) {
            count += self.rings[ring].poll(&mut out[count..])?;
            self.next = (ring + 1) % rings;
            if count == out.len() {
                break;
            }
        }
        Ok(count)
    }

    fn is_filled(&self) -> Result<bool, RingFault> {
        for ring in &self.rings {
            if ring.available()? > 0 {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Looks at the rings without the lock: at the first ones that the queue had, then at those that followed.
/// A resize at least doubles the depth, so there are few, and their memory, which stays mapped, is less
/// than the last one's.
#[derive(Debug)]
struct Look {
    rings: Box<[CqLook]>,
    depth: u32,
    next: OnceLock<Box<Look>>,
}

impl Look {
    fn of(made: &ShardRings) -> Self {
        Self {
            rings: made.rings.iter().map(CqConsumer::look).collect(),
            depth: made.depth(),
            next: OnceLock::new(),
        }
    }

    #[inline]
    fn is_empty(&self) -> bool {
        self.rings.iter().all(CqLook::is_empty)
            && self.next.get().is_none_or(|next| next.is_empty())
    }

    fn last(&self) -> &Self {
        self.next.get().map_or(self, |next| next.last())
    }
}

impl Rings {
    /// Over one ring for each shard.
    pub(super) fn new(rings: Vec<CqConsumer>) -> Self {
        let claims = Claims::default();
        let made = ShardRings::new(rings);
        Self {
            looks: Look::of(&made),
            set_aside: claims.look(),
            guarded: Mutex::new(Guarded {
                rings: VecDeque::from([made]),
                claims,
            }),
        }
    }

    /// Whether no completion waits.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.looks.is_empty() && self.set_aside.is_empty()
    }

    /// Entries of each ring that completions go to.
    pub(super) fn depth(&self) -> u32 {
        self.looks.last().depth
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Guarded> {
        lock(&self.guarded)
    }

    /// Adds what `make` gives, unless there is room for so many entries already.
    ///
    /// Who polls or arms waits for it. So nobody arms the old rings when the engine has left them, and whoever
    /// armed them before is woken by the new ones.
    pub(super) fn grow(
        &self,
        depth: u32,
        make: impl FnOnce() -> Result<Vec<CqConsumer>, Error>,
    ) -> Result<(), Error> {
        let mut guarded = self.lock();
        if depth <= self.depth() {
            return Ok(());
        }
        let made = ShardRings::new(make()?);
        // Nobody else does this meanwhile: the lock is held.
        let _ = self.looks.last().next.set(Box::new(Look::of(&made)));
        guarded.rings.push_back(made);
        Ok(())
    }
}

impl Guarded {
    /// Moves completions that nobody claimed into `out`, oldest first, and says how many.
    pub(super) fn poll(&mut self, out: &mut [Completion]) -> Result<usize, RingFault> {
        if self.claims.are_none() {
            return self.take(out);
        }
        let mut count = 0;
        loop {
            let all = self.sort()?;
            count += self.claims.take_set_aside(&mut out[count..]);
            if all || count == out.len() {
                return Ok(count);
            }
        }
    }

    /// Takes completions out of the rings: each goes to its claim, or else is set aside for polling. At most as
    /// many are set aside as the queue has entries. Says whether all were taken.
    pub(super) fn sort(&mut self) -> Result<bool, RingFault> {
        let most = self.rings.back().map_or(0, ShardRings::depth) as usize;
        let mut found = [Completion::default(); BATCH];
        loop {
            let room = most.saturating_sub(self.claims.set_aside()).min(BATCH);
            if room == 0 {
                return Ok(!self.is_filled()?);
            }
            let count = self.take(&mut found[..room])?;
            for completion in &found[..count] {
                self.claims.sort(completion);
            }
            if count < room {
                return Ok(true);
            }
        }
    }

    fn take(&mut self, out: &mut [Completion]) -> Result<usize, RingFault> {
        let mut count = 0;
        while let Some(oldest) = self.rings.front_mut() {
            count += oldest.poll(&mut out[count..])?;
            if count == out.len() || self.rings.len() == 1 {
                break;
            }
            // They are read, and nothing more will come into them.
            self.rings.pop_front();
        }
        Ok(count)
    }

    /// Asks for a wake-up by the rings that completions go to: all have one word for that.
    pub(super) fn arm(&mut self, solicited_only: bool) {
        let newest = self.rings.back_mut();
        if let Some(ring) = newest.and_then(|newest| newest.rings.first_mut()) {
            ring.arm(solicited_only);
        }
    }

    /// Whether a completion waits that nobody claimed.
    pub(super) fn available(&mut self) -> Result<bool, RingFault> {
        if self.claims.are_none() {
            return self.is_filled();
        }
        self.sort()?;
        Ok(self.claims.set_aside() > 0)
    }

    fn is_filled(&self) -> Result<bool, RingFault> {
        for made in &self.rings {
            if made.is_filled()? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
