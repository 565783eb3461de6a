//! Frames on their way from one thread to one other, in a bounded ring. Neither ever waits.
//!
//! A place is its pusher's until `pushed` has passed it, and its popper's until `popped` has: so its lock is
//! always free, and only tried. More threads than the two would lose frames, and nothing worse.

use std::sync::TryLockError;

use crate::frame::Frame;
use crate::sync::{AtomicUsize, Mutex, Ordering};

#[derive(Debug)]
pub(super) struct Queue {
    places: Box<[Mutex<Option<Frame>>]>,
    pushed: Count,
    popped: Count,
}

/// How many were, since the beginning. In cache lines of its own: the other side reads it as well.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Count(AtomicUsize);

impl Queue {
    /// # Panics
    ///
    /// When `depth` is 0.
    pub(super) fn new(depth: usize) -> Self {
        assert!(depth > 0, "a queue that takes nothing");
        Self {
            places: (0..depth).map(|_| Mutex::new(None)).collect(),
            pushed: Count::default(),
            popped: Count::default(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.popped.0.load(Ordering::Relaxed) == self.pushed.0.load(Ordering::Acquire)
    }

    /// Appends a frame; it comes back when there is no place for it.
    pub(super) fn push(&self, frame: Frame) -> Result<(), Frame> {
        let pushed = self.pushed.0.load(Ordering::Relaxed);
        let used = pushed.wrapping_sub(self.popped.0.load(Ordering::Acquire));
        if used >= self.places.len() {
            return Err(frame);
        }
        if let Err(frame) = self.exchange(pushed, Some(frame)) {
            return frame.map_or(Ok(()), Err);
        }
        self.pushed
            .0
            .store(pushed.wrapping_add(1), Ordering::Release);
        Ok(())
    }

    /// Takes the oldest frame.
    pub(super) fn pop(&self) -> Option<Frame> {
        if self.is_empty() {
            return None;
        }
        let popped = self.popped.0.load(Ordering::Relaxed);
        let frame = self.exchange(popped, None).ok()?;
        self.popped
            .0
            .store(popped.wrapping_add(1), Ordering::Release);
        frame
    }

    /// Puts `new` into the place of this number, and gives what was there; `new` back when somebody else
    /// has the place.
    fn exchange(&self, number: usize, new: Option<Frame>) -> Result<Option<Frame>, Option<Frame>> {
        // Counts wrap after 2^64 frames, which is no multiple of every depth; that is not lived to see.
        let place = &self.places[number % self.places.len()];
        let mut place = match place.try_lock() {
            Ok(place) => place,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Err(new),
        };
        Ok(std::mem::replace(&mut *place, new))
    }
}
