//! The rings of a completion queue: one, and after a resize also older ones, until they are read.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, OnceLock};

use rnic_ipc::ring::{CqConsumer, CqLook, RingFault};
use rnic_ipc::work::Completion;

use crate::error::Error;
use crate::wait::lock;

/// All of them.
#[derive(Debug)]
pub(super) struct Rings {
    guarded: Mutex<Guarded>,
    looks: Look,
}

/// Oldest first, at least one. The engine writes the last only.
#[derive(Debug)]
pub(super) struct Guarded(VecDeque<CqConsumer>);

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
        Self {
            looks: Look::of(&ring),
            guarded: Mutex::new(Guarded(VecDeque::from([ring]))),
        }
    }

    /// Whether no completion waits.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.looks.is_empty()
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
        guarded.0.push_back(ring);
        Ok(())
    }
}

impl Guarded {
    /// Moves completions into `out`, oldest first, and says how many.
    pub(super) fn poll(&mut self, out: &mut [Completion]) -> Result<usize, RingFault> {
        let mut count = 0;
        while let Some(ring) = self.0.front_mut() {
            count += ring.poll(&mut out[count..])?;
            if count == out.len() || self.0.len() == 1 {
                break;
            }
            // It is read, and nothing more will come into it.
            self.0.pop_front();
        }
        Ok(count)
    }

    /// Asks for a wake-up by the ring that completions go to.
    pub(super) fn arm(&mut self, solicited_only: bool) {
        if let Some(ring) = self.0.back_mut() {
            ring.arm(solicited_only);
        }
    }

    /// Whether a completion waits.
    pub(super) fn available(&self) -> Result<bool, RingFault> {
        for ring in &self.0 {
            if ring.available()? > 0 {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
