//! Things on their way from one thread to one other, in a bounded ring. Neither ever waits.
//!
//! A place is its pusher's until `pushed` has passed it, and its popper's until `popped` has: so its lock is
//! always free, and only tried. More threads than the two would lose things, and nothing worse.

use std::sync::TryLockError;

use crate::sync::{AtomicUsize, Mutex, Ordering};

#[derive(Debug)]
pub(crate) struct Queue<T> {
    places: Box<[Mutex<Option<T>>]>,
    pushed: Count,
    popped: Count,
}

/// How many were, since the beginning. In cache lines of its own: the other side reads it as well.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Count(AtomicUsize);

impl<T> Queue<T> {
    /// # Panics
    ///
    /// When `depth` is 0.
    pub(crate) fn new(depth: usize) -> Self {
        assert!(depth > 0, "a queue that takes nothing");
        Self {
            places: (0..depth).map(|_| Mutex::new(None)).collect(),
            pushed: Count::default(),
            popped: Count::default(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.popped.0.load(Ordering::Relaxed) == self.pushed.0.load(Ordering::Acquire)
    }

    /// Appends a thing; it comes back when there is no place for it.
    pub(crate) fn push(&self, thing: T) -> Result<(), T> {
        let pushed = self.pushed.0.load(Ordering::Relaxed);
        let used = pushed.wrapping_sub(self.popped.0.load(Ordering::Acquire));
        if used >= self.places.len() {
            return Err(thing);
        }
        if let Err(thing) = self.exchange(pushed, Some(thing)) {
            return thing.map_or(Ok(()), Err);
        }
        self.pushed
            .0
            .store(pushed.wrapping_add(1), Ordering::Release);
        Ok(())
    }

    /// Takes the oldest thing.
    pub(crate) fn pop(&self) -> Option<T> {
        if self.is_empty() {
            return None;
        }
        let popped = self.popped.0.load(Ordering::Relaxed);
        let thing = self.exchange(popped, None).ok()?;
        self.popped
            .0
            .store(popped.wrapping_add(1), Ordering::Release);
        thing
    }

    /// Puts `new` into the place of this number, and gives what was there; `new` back when somebody else
    /// has the place.
    fn exchange(&self, number: usize, new: Option<T>) -> Result<Option<T>, Option<T>> {
        // Counts wrap after 2^64 things, which is no multiple of every depth; that is not lived to see.
        let place = &self.places[number % self.places.len()];
        let mut place = match place.try_lock() {
            Ok(place) => place,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Err(new),
        };
        Ok(std::mem::replace(&mut *place, new))
    }
}
