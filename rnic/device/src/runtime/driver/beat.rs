//! Whether a shard's thread goes on: it counts its turns where others see it, and says when it sleeps.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The lowest bit says that the thread sleeps until something wakes it.
const ASLEEP: u64 = 1;
const TURN: u64 = 2;

/// The count of one thread. Clones are the same one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Beat(Arc<AtomicU64>);

/// What somebody saw of a [`Beat`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    count: u64,
    /// Looks in a row that found the same turn.
    pub(crate) unchanged: u32,
}

impl Beat {
    /// A turn begins. By the thread alone.
    #[inline]
    pub(crate) fn turn(&self) {
        let next = (self.0.load(Ordering::Relaxed) & !ASLEEP).wrapping_add(TURN);
        self.0.store(next, Ordering::Relaxed);
    }

    /// It sleeps, until the next turn.
    pub(super) fn sleep(&self) {
        self.0.fetch_or(ASLEEP, Ordering::Relaxed);
    }

    /// Looks again, after it was seen so.
    pub(crate) fn look(&self, before: Seen) -> Seen {
        let count = self.0.load(Ordering::Relaxed);
        let stands = count == before.count && count & ASLEEP == 0;
        Seen {
            count,
            unchanged: if stands { before.unchanged + 1 } else { 0 },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_thread_that_is_awake_and_has_no_turn_stands_still() {
        let beat = Beat::default();
        beat.turn();
        let mut seen = beat.look(Seen::default());
        for looks in 1..=3 {
            seen = beat.look(seen);
            assert_eq!(seen.unchanged, looks);
        }
        beat.turn();
        seen = beat.look(seen);
        assert_eq!(seen.unchanged, 0);
        beat.sleep();
        for _ in 0..3 {
            seen = beat.look(seen);
            assert_eq!(seen.unchanged, 0, "it sleeps");
        }
        beat.turn();
        seen = beat.look(seen);
        assert_eq!(beat.look(seen).unchanged, 1);
    }
}
