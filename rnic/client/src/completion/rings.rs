//! The rings of a completion queue: one, and after a resize also older ones, until they are read. And what
//! was taken out of them for calls that wait for their own completions.

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
    rings: VecDeque<CqConsumer>,
    pub(super) claims: Claims,
}

/// Looks at the rings without the lock: at the first that the queue had, then at those that followed.
/// A resize at least doubles the depth, so there are few, and their memory, which stays mapped, is less
/// than the last one's.
#[derive(Debug)]
struct Look {
    ring: CqLook,
    depth: u32,
    next: OnceLock<Box<Look>>,
}

impl Look {
    fn of(ring: &CqConsumer) -> Self {
        Self {
            ring: ring.look(),
            depth: ring.depth(),
            next: OnceLock::new(),
        }
    }

    #[inline]
    fn is_empty(&self) -> bool {
        self.ring.is_empty() && self.next.get().is_none_or(|next| next.is_empty())
    }

    fn last(&self) -> &Self {
        self.next.get().map_or(self, |next| next.last())
    }
}

impl Rings {
    pub(super) fn new(ring: CqConsumer) -> Self {
        let claims = Claims::default();
        Self {
            looks: Look::of(&ring),
            set_aside: claims.look(),
            guarded: Mutex::new(Guarded {
                rings: VecDeque::from([ring]),
                claims,
            }),
        }
    }

    /// Whether no completion waits.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.looks.is_empty() && self.set_aside.is_empty()
    }

    /// Entries of the ring that completions go to.
    pub(super) fn depth(&self) -> u32 {
        self.looks.last().depth
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Guarded> {
        lock(&self.guarded)
    }

    /// Adds what `make` gives, unless there is room for so many entries already.
    ///
    /// Who polls or arms waits for it. So nobody arms the old ring when the engine has left it, and whoever
    /// armed it before is woken by the new one.
    pub(super) fn grow(
        &self,
        depth: u32,
        make: impl FnOnce() -> Result<CqConsumer, Error>,
    ) -> Result<(), Error> {
        let mut guarded = self.lock();
        if depth <= self.depth() {
            return Ok(());
        }
        let ring = make()?;
        // Nobody else does this meanwhile: the lock is held.
        let _ = self.looks.last().next.set(Box::new(Look::of(&ring)));
        guarded.rings.push_back(ring);
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
        let most = self.rings.back().map_or(0, CqConsumer::depth) as usize;
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
        while let Some(ring) = self.rings.front_mut() {
            count += ring.poll(&mut out[count..])?;
            if count == out.len() || self.rings.len() == 1 {
                break;
            }
            // It is read, and nothing more will come into it.
            self.rings.pop_front();
        }
        Ok(count)
    }

    /// Asks for a wake-up by the ring that completions go to.
    pub(super) fn arm(&mut self, solicited_only: bool) {
        if let Some(ring) = self.rings.back_mut() {
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
        for ring in &self.rings {
            if ring.available()? > 0 {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
