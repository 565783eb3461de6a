//! The rings of a completion queue: one for each shard of the RNIC, and after a resize also older ones, until they are
//! read. And what was taken out of them for calls that wait for their own completions.
//!
//! Completions of one queue pair come in order: it has its connection in one shard.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, OnceLock};

use rnic_ipc::ring::{CqConsumer, CqLook, RingFault};
use rnic_ipc::work::Completion;

use super::tracked::{SetAside, TrackedWork};
use crate::error::Error;
use crate::wait::lock;

/// Entries that one step moves out of the rings while work is tracked.
const BATCH: usize = 16;

/// All of them.
#[derive(Debug)]
pub(super) struct Rings {
    guarded: Mutex<Guarded>,
    empty: EmptyCheck,
    set_aside: SetAside,
}

/// What only the holder of the lock may use.
#[derive(Debug)]
pub(super) struct Guarded {
    /// Oldest first, at least one. The engine writes the last only.
    rings: VecDeque<ShardRings>,
    pub(super) tracked: TrackedWork,
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
struct EmptyCheck {
    rings: Box<[CqLook]>,
    depth: u32,
    next: OnceLock<Box<EmptyCheck>>,
}

impl EmptyCheck {
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
        let tracked = TrackedWork::default();
        let made = ShardRings::new(rings);
        Self {
            empty: EmptyCheck::of(&made),
            set_aside: tracked.look(),
            guarded: Mutex::new(Guarded {
                rings: VecDeque::from([made]),
                tracked,
            }),
        }
    }

    /// Whether no completion waits.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.empty.is_empty() && self.set_aside.is_empty()
    }

    /// Entries of each ring that completions go to.
    pub(super) fn depth(&self) -> u32 {
        self.empty.last().depth
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
        let _ = self.empty.last().next.set(Box::new(EmptyCheck::of(&made)));
        guarded.rings.push_back(made);
        Ok(())
    }
}

impl Guarded {
    /// Moves completions of work that is not tracked into `out`, oldest first, and says how many.
    pub(super) fn poll(&mut self, out: &mut [Completion]) -> Result<usize, RingFault> {
        if self.tracked.is_none() {
            return self.take(out);
        }
        let mut count = 0;
        loop {
            let all = self.sort()?;
            count += self.tracked.take_set_aside(&mut out[count..]);
            if all || count == out.len() {
                return Ok(count);
            }
        }
    }

    /// Takes completions out of the rings: each goes to its tracked work, or else is set aside for polling. At most as
    /// many are set aside as the queue has entries. Says whether all were taken.
    pub(super) fn sort(&mut self) -> Result<bool, RingFault> {
        let most = self.rings.back().map_or(0, ShardRings::depth) as usize;
        let mut found = [Completion::default(); BATCH];
        loop {
            let room = most.saturating_sub(self.tracked.set_aside()).min(BATCH);
            if room == 0 {
                return Ok(!self.is_filled()?);
            }
            let count = self.take(&mut found[..room])?;
            for completion in &found[..count] {
                self.tracked.sort(completion);
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

    /// Whether a completion waits of work that is not tracked.
    pub(super) fn available(&mut self) -> Result<bool, RingFault> {
        if self.tracked.is_none() {
            return self.is_filled();
        }
        self.sort()?;
        Ok(self.tracked.set_aside() > 0)
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
