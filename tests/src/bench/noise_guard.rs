//! Whether the cores are as fast as they can be, and runs only while they are.
//!
//! A core of a virtual machine may share its execution units and its first cache with another machine's core. That
//! takes up to half of its speed for some seconds, which loads and stores of a cached block show. What
//! two cases reached is comparable only if it was so for both or for neither.

use std::hint::black_box;
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_setaffinity};

use super::{interrupt, stats};

/// Bytes that a look copies again and again: they and their copy fit the first cache.
const BLOCK: usize = 16 << 10;
/// Copies that are timed together.
const COPIES: usize = 64;
/// How long a look takes.
const LOOK: Duration = Duration::from_millis(10);
/// For how long it is learnt how fast the cores can be.
const LEARNING: Duration = Duration::from_secs(2);
/// How much slower than it can be a core may be.
const SLACK: f64 = 1.08;
/// Between two looks that are waited for.
const PAUSE: Duration = Duration::from_millis(40);
/// How long a run waits for calm.
const PATIENCE: Duration = Duration::from_secs(2);
/// How often it is tried.
const TRIES: u32 = 4;

/// The cores, and how fast they have been seen to be.
#[derive(Debug)]
pub struct NoiseGuard {
    cores: Vec<Core>,
    runs: usize,
    disturbed: usize,
}

#[derive(Debug)]
struct Core {
    index: usize,
    /// Nanoseconds for [`COPIES`].
    fastest: f64,
}

impl NoiseGuard {
    /// Learns how fast these cores can be.
    #[must_use]
    pub fn of(cores: impl IntoIterator<Item = usize>) -> Self {
        let fastest = f64::INFINITY;
        let cores = cores.into_iter().map(|index| Core { index, fastest });
        let mut calm = Self {
            cores: cores.collect(),
            runs: 0,
            disturbed: 0,
        };
        let begin = Instant::now();
        while begin.elapsed() < LEARNING {
            calm.look();
        }
        calm
    }

    /// Whether all cores are about as fast as they have ever been seen to be.
    fn look(&mut self) -> bool {
        let took: Vec<f64> = std::thread::scope(|scope| {
            let looks: Vec<_> = self
                .cores
                .iter()
                .map(|core| scope.spawn(|| time(core.index)))
                .collect();
            // A look does not panic; one that did would say nothing.
            let took = looks.into_iter().map(std::thread::ScopedJoinHandle::join);
            took.map(|took| took.unwrap_or(f64::INFINITY)).collect()
        });
        let mut calm = true;
        for (core, took) in self.cores.iter_mut().zip(took) {
            core.fastest = core.fastest.min(took);
            calm &= took <= core.fastest * SLACK;
        }
        calm
    }

    /// Runs while the cores are calm, before and behind it; what it gave when it was tried last.
    pub fn run<T>(&mut self, run: impl FnMut() -> T) -> T {
        let (given, calm) = undisturbed(|moment| self.is_calm(moment), run);
        self.runs += 1;
        self.disturbed += usize::from(!calm);
        given
    }

    /// What a report says of it.
    #[must_use]
    pub fn text(&self) -> String {
        let (runs, disturbed) = (self.runs, self.disturbed);
        format!(
            "Each run waited for the cores to be at their full speed, and was repeated when they were \
             not behind it; {disturbed} of {runs} were taken as they were after {TRIES} times."
        )
    }

    fn is_calm(&mut self, moment: Moment) -> bool {
        let begin = Instant::now();
        while !self.look() {
            let waits = moment == Moment::Before && begin.elapsed() < PATIENCE;
            if !waits || interrupt::came() {
                return false;
            }
            std::thread::sleep(PAUSE);
        }
        true
    }
}

/// When it is asked whether the cores are calm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moment {
    Before,
    Behind,
}

/// Runs until it was calm before and behind it, or [`TRIES`] times: what it gave last, and whether it was.
fn undisturbed<T>(
    mut is_calm: impl FnMut(Moment) -> bool,
    mut run: impl FnMut() -> T,
) -> (T, bool) {
    let mut tries = 1;
    loop {
        let before = is_calm(Moment::Before);
        let given = run();
        let calm = before && is_calm(Moment::Behind);
        if calm || tries == TRIES || interrupt::came() {
            return (given, calm);
        }
        tries += 1;
    }
}

/// The median time that [`COPIES`] take on this core, in nanoseconds.
fn time(core: usize) -> f64 {
    let mut set = CpuSet::new();
    set.set(core);
    // Where it may not run there, what it says is of another core, and no worse for all.
    let _ = sched_setaffinity(None, &set);
    let (from, mut to) = ([1_u8; BLOCK], [0_u8; BLOCK]);
    let mut all = Vec::new();
    let begin = Instant::now();
    while begin.elapsed() < LOOK {
        let one = Instant::now();
        for _ in 0..COPIES {
            black_box(&mut to).copy_from_slice(black_box(&from));
        }
        all.push(one.elapsed().as_nanos() as f64);
    }
    all.sort_by(f64::total_cmp);
    stats::median(&all).unwrap_or(f64::INFINITY)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs are numbered from 1; the cores are calm at these moments.
    fn tried(calm: &[bool]) -> (u32, bool) {
        let mut runs = 0;
        let mut calm = calm.iter().copied();
        undisturbed(
            |_| calm.next().unwrap_or(false),
            || {
                runs += 1;
                runs
            },
        )
    }

    #[test]
    fn a_run_that_was_disturbed_is_repeated() {
        assert_eq!(tried(&[true, true]), (1, true));
        assert_eq!(tried(&[true, false, true, true]), (2, true));
        assert_eq!(
            tried(&[false, true, true]),
            (2, true),
            "asked before it only"
        );
        assert_eq!(
            tried(&[]),
            (TRIES, false),
            "and at some time taken as it is"
        );
    }

    #[test]
    fn a_look_takes_the_cores_as_they_are() {
        let mut calm = NoiseGuard {
            cores: vec![Core {
                index: 0,
                fastest: f64::INFINITY,
            }],
            runs: 0,
            disturbed: 0,
        };
        assert!(calm.look(), "nothing faster was seen");
        calm.cores[0].fastest = 1.0;
        assert!(!calm.look(), "no core copies 16 KiB in a nanosecond");
    }
}
