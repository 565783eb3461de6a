//! Whether a shard shares its core with a program that polls without giving way.

use std::time::{Duration, Instant};

/// A yield that takes this long was to somebody who kept the core until the scheduler took it away.
/// Whoever gives way too is back within microseconds.
const KEPT: Duration = Duration::from_millis(1);
/// How long the core counts as contended after that. Finding out once more costs two time slices.
const REMEMBERED: Duration = Duration::from_millis(200);

/// What the last yields have shown. A thread that yields to a program which never does, such as one
/// that polls its memory for an RDMA Write, comes back a time slice later: milliseconds. A thread that
/// sleeps comes back when its event wakes it, because the scheduler prefers it then.
#[derive(Debug, Default)]
pub(super) struct Contention {
    /// When somebody last kept the core: from, and to.
    kept: Option<(Instant, Instant)>,
    /// When the core counts as contended no longer.
    until: Option<Instant>,
}

impl Contention {
    /// Gives way, and notes how long that takes from now on.
    pub(super) fn yield_now(&mut self, now: Instant) {
        std::thread::yield_now();
        self.note(now, Instant::now());
    }

    /// Once is nothing: the core counts as contended when it was kept for more than half of the time.
    fn note(&mut self, begin: Instant, end: Instant) {
        if end - begin < KEPT {
            return;
        }
        if let Some((from, to)) = self.kept
            && begin.saturating_duration_since(to) <= to - from
        {
            self.until = Some(end + REMEMBERED);
        }
        self.kept = Some((begin, end));
    }

    /// Whether to sleep in place of yielding.
    pub(super) fn holds(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| now < until)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

    use super::*;

    #[test]
    fn a_core_counts_as_contended_when_it_is_kept_more_often_than_not() {
        let mut contention = Contention::default();
        let begin = Instant::now();
        let at = |multiple: u32| begin + KEPT * multiple;
        contention.note(begin, begin + KEPT / 2);
        contention.note(at(1), at(2));
        assert!(!contention.holds(at(2)), "once is nothing");
        contention.note(at(4), at(5));
        assert!(!contention.holds(at(5)), "it was free for longer");
        contention.note(at(6), at(8));
        assert!(contention.holds(at(8)));
        assert!(contention.holds(at(8) + REMEMBERED / 2));
        assert!(!contention.holds(at(8) + REMEMBERED));
    }

    #[test]
    fn a_neighbour_that_never_yields_is_noticed() {
        let allowed = sched_getaffinity(None).unwrap();
        let first = (0..CpuSet::MAX_CPU).find(|core| allowed.is_set(*core));
        let mut core = CpuSet::new();
        core.set(first.unwrap());
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                sched_setaffinity(None, &core).unwrap();
                while !done.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
            sched_setaffinity(None, &core).unwrap();
            let mut contention = Contention::default();
            let begin = Instant::now();
            while !contention.holds(Instant::now()) && begin.elapsed() < Duration::from_secs(30) {
                contention.yield_now(Instant::now());
            }
            done.store(true, Ordering::Relaxed);
            assert!(contention.until.is_some());
        });
    }
}
