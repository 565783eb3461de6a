//! How long a blocking wait polls before it sleeps.
//!
//! Sleeping and being woken costs some ten microseconds, which is worth saving when what is waited
//! for comes sooner than that, and a core's time thrown away when it doesn't. So the time spent
//! polling follows what waits that slept have taken: twice that when it was little, ever less when
//! it was much, and never more than [`LONGEST`].
//!
//! Between two looks it lets others have the core. What is waited for comes from threads that poll
//! too, those of the engine and of the peer. Where there are fewer cores than such threads, a thread that polls
//! without a break delays just what it waits for, until it sleeps.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The longest time spent polling.
const LONGEST: Duration = Duration::from_micros(50);

/// What the waits of one completion queue have taught.
#[derive(Debug)]
pub(crate) struct Spin {
    /// How long the next wait polls, in nanoseconds. Threads that set it at the same time do no
    /// harm.
    limit: AtomicU64,
    alone: bool,
}

impl Default for Spin {
    fn default() -> Self {
        // With one core a thread that polls keeps the engine from working.
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            limit: AtomicU64::new(nanos(LONGEST)),
            alone: cores == 1,
        }
    }
}

impl Spin {
    /// A wait begins.
    pub(crate) fn begin(&self) -> Spell<'_> {
        let limit = match self.alone {
            true => Duration::ZERO,
            false => Duration::from_nanos(self.limit.load(Ordering::Relaxed)),
        };
        Spell {
            spin: self,
            begin: Instant::now(),
            limit,
        }
    }

    /// A wait took so long.
    fn learn(&self, took: Duration) {
        let before = Duration::from_nanos(self.limit.load(Ordering::Relaxed));
        // A wait that slept took the sleep's own cost too: what came that soon is worth a try.
        let next = if took <= 2 * LONGEST {
            (2 * took).min(LONGEST)
        } else {
            before / 2
        };
        self.limit.store(nanos(next), Ordering::Relaxed);
    }
}

/// One wait.
#[derive(Debug)]
pub(crate) struct Spell<'a> {
    spin: &'a Spin,
    begin: Instant,
    limit: Duration,
}

impl Spell<'_> {
    /// Whether to look once more; lets others have the core before.
    pub(crate) fn goes_on(&mut self) -> bool {
        let goes_on = self.begin.elapsed() < self.limit;
        if goes_on {
            std::thread::yield_now();
        }
        goes_on
    }

    /// Sleeps by `sleep`, and learns how long the wait has taken.
    pub(crate) fn sleep<T>(self, sleep: impl FnOnce() -> T) -> T {
        let slept = sleep();
        self.spin.learn(self.begin.elapsed());
        slept
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

    use super::*;

    #[test]
    fn short_waits_are_polled_for_and_long_ones_are_slept_through() {
        let spin = Spin {
            alone: false,
            ..Spin::default()
        };
        spin.learn(Duration::from_micros(10));
        assert_eq!(spin.begin().limit, Duration::from_micros(20));
        for _ in 0..64 {
            spin.learn(Duration::from_secs(1));
        }
        assert_eq!(spin.begin().limit, Duration::ZERO);
        assert!(!spin.begin().goes_on());
        spin.learn(Duration::from_micros(90));
        assert_eq!(spin.begin().limit, LONGEST, "they are short again");
    }

    #[test]
    fn one_core_is_never_kept_from_the_engine() {
        let spin = Spin {
            alone: true,
            ..Spin::default()
        };
        spin.learn(Duration::from_micros(10));
        assert!(!spin.begin().goes_on());
    }

    /// On one core a thread that polls without a break is interrupted after milliseconds at the
    /// earliest: that is thousands of looks.
    #[test]
    fn whoever_polls_lets_others_have_the_core() {
        const TURNS: u32 = 50;
        const PATIENCE: Duration = Duration::from_secs(60);
        let allowed = sched_getaffinity(None).unwrap();
        let first = (0..CpuSet::MAX_CPU).find(|core| allowed.is_set(*core));
        let mut core = CpuSet::new();
        core.set(first.unwrap());
        let turn = AtomicU32::new(0);
        let looks = std::thread::scope(|scope| {
            scope.spawn(|| {
                sched_setaffinity(None, &core).unwrap();
                let begin = Instant::now();
                while turn.load(Ordering::SeqCst) < 2 * TURNS && begin.elapsed() < PATIENCE {
                    if turn.load(Ordering::SeqCst) % 2 == 1 {
                        turn.fetch_add(1, Ordering::SeqCst);
                    }
                    std::thread::yield_now();
                }
            });
            let poller = scope.spawn(|| {
                sched_setaffinity(None, &core).unwrap();
                let spin = Spin {
                    limit: AtomicU64::new(nanos(PATIENCE)),
                    alone: false,
                };
                let mut looks = 0;
                for _ in 0..TURNS {
                    turn.fetch_add(1, Ordering::SeqCst);
                    let mut spell = spin.begin();
                    while turn.load(Ordering::SeqCst) % 2 == 1 && spell.goes_on() {
                        looks += 1;
                    }
                }
                looks
            });
            poller.join().unwrap()
        });
        assert!(looks < 500 * TURNS, "{looks} looks for {TURNS} answers");
    }
}
