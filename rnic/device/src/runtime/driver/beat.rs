//! Shows whether a shard's thread makes progress: it counts its iterations, and whether it sleeps.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The lowest bit: the thread sleeps until something wakes it.
const ASLEEP: u64 = 1;
const ITERATION: u64 = 2;

/// The count of one thread. Clones are the same one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Beat(Arc<AtomicU64>);

/// A [`Beat`] as it was at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    count: u64,
    /// Observations in a row that found the same iteration.
    pub(crate) unchanged: u32,
}

impl Beat {
    /// An iteration begins. By the thread alone.
    #[inline]
    pub(crate) fn iteration(&self) {
        let next = (self.0.load(Ordering::Relaxed) & !ASLEEP).wrapping_add(ITERATION);
        self.0.store(next, Ordering::Relaxed);
    }

    /// It sleeps, until the next iteration.
    pub(super) fn sleep(&self) {
        self.0.fetch_or(ASLEEP, Ordering::Relaxed);
    }

    /// Observes it again.
    pub(crate) fn observe(&self, before: Seen) -> Seen {
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
    fn only_a_thread_that_is_awake_and_has_no_iteration_is_stalled() {
        let beat = Beat::default();
        beat.iteration();
        let mut seen = beat.observe(Seen::default());
        for times in 1..=3 {
            seen = beat.observe(seen);
            assert_eq!(seen.unchanged, times);
        }
        beat.iteration();
        seen = beat.observe(seen);
        assert_eq!(seen.unchanged, 0);
        beat.sleep();
        for _ in 0..3 {
            seen = beat.observe(seen);
            assert_eq!(seen.unchanged, 0, "it sleeps");
        }
        beat.iteration();
        seen = beat.observe(seen);
        assert_eq!(beat.observe(seen).unchanged, 1);
    }
}
