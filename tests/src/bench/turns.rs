//! Cases of which one after the other has the machine for a moment.
//!
//! Each core is slow for a second or an hour, by itself, with whatever else uses the machine. Runs one
//! after the other meet that or don't, and differ by more than what is to be measured. Interleaved by milliseconds,
//! all meet the same.

use std::time::{Duration, Instant};

use super::case::Work;
use super::memory::{self, Done, MemoryRun};
use super::place::Place;
use super::running::{Running, Span};
use super::{Case, Figures, P999, Testbed, interrupt};

/// Who takes turns with whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turns {
    /// Ping-pongs on a place: under way at the same time, and stopped but for their turns. Each message
    /// is measured by itself; of those that are under way meanwhile there is one in thousands.
    Pings(Place),
    /// Streams over a cable: under way at the same time, but each program stops itself while others have
    /// their turns, when all that it has sent has arrived.
    Streams(Place),
    /// What needs no network: run again for each turn.
    Memory {
        /// IP MTU in bytes.
        mtu: u32,
    },
}

/// A turn of a ping-pong: thousands of messages.
const TURN: Duration = Duration::from_millis(20);
/// What counts of a stream's turn, dozens of its windows; a third as much is ahead of it, for caches to
/// fill.
pub(super) const STREAM_TURN: Duration = Duration::from_millis(15);
/// How long it may take before the next has its own: one that is done takes its time to end.
const STREAM_TURN_MAX: Duration = Duration::from_millis(300);
/// Turns that a program has which is run again for each.
const TURNS: u32 = 8;
/// The least that such a turn is: what a program takes to begin is part of it.
const PROGRAM_MIN: Duration = Duration::from_millis(100);

impl Turns {
    /// Of ping-pongs, where nothing is at work but their two ends.
    #[must_use]
    pub fn pings(place: Place) -> Option<Self> {
        place.leaves_cores_alone().then_some(Self::Pings(place))
    }
}

/// Runs all of them interleaved, until each has had the machine for as long as one that runs alone. Returns the
/// result of each.
pub fn run(cases: &[&Case], testbed: &mut Testbed) -> Vec<Result<Figures, String>> {
    let memory = |case: &&Case| match case.work {
        Work::Memory(run) => Some(run),
        _ => None,
    };
    if let Some(runs) = cases.iter().map(memory).collect::<Option<Vec<_>>>() {
        return programs(&runs, testbed);
    }
    let streams = |one: &&Case| matches!(one.turns(), Some(Turns::Streams(_)));
    if cases.iter().all(streams) {
        self::streams(cases, testbed)
    } else {
        pings(cases, testbed)
    }
}

/// Each on hosts of its own, of the same kind.
fn pings(cases: &[&Case], testbed: &mut Testbed) -> Vec<Result<Figures, String>> {
    // Each goes by the time that passes, also while others have their turns.
    let times = u32::try_from(cases.len()).unwrap_or(u32::MAX);
    let duration = testbed.duration() * times;
    let mut running = start(cases, testbed, Span::whole(duration), Running::pause);
    let (begin, limit) = (Instant::now(), testbed.limit());
    let goes_on = || begin.elapsed() < 2 * duration + limit && !interrupt::came();
    while running.iter_mut().flatten().any(|run| !run.is_over()) && goes_on() {
        for run in running.iter_mut().flatten() {
            if !run.is_over() {
                run.resume();
                std::thread::sleep(TURN);
                run.pause();
            }
        }
    }
    let ended = running.into_iter().map(|run| {
        let mut run = run?;
        run.resume();
        let mut figures = run.ended(limit)?;
        // That is where the turns are.
        figures.remove(P999);
        Ok(figures)
    });
    ended.collect()
}

/// Each on hosts of its own, of the same kind.
fn streams(cases: &[&Case], testbed: &mut Testbed) -> Vec<Result<Figures, String>> {
    let span = Span {
        duration: testbed.duration(),
        turn: Some(STREAM_TURN),
    };
    let limit = testbed.limit();
    let mut running = start(cases, testbed, span, |run| {
        run.hands_over(limit);
    });
    let begin = Instant::now();
    let mut going: Vec<&mut Running> = running.iter_mut().flatten().collect();
    while !going.is_empty() && begin.elapsed() < limit && !interrupt::came() {
        going.retain_mut(|run| {
            run.resume();
            run.hands_over(STREAM_TURN_MAX)
        });
    }
    let ended = running.into_iter().map(|run| {
        let mut run = run?;
        // One that only was slow has turns left, and has all of them now.
        run.resume();
        while run.hands_over(limit) {
            run.resume();
        }
        run.resume();
        run.ended(limit)
    });
    ended.collect()
}

/// Starts each on hosts of its own, and does the same with each when it is started.
fn start(
    cases: &[&Case],
    testbed: &mut Testbed,
    span: Span,
    mut and: impl FnMut(&mut Running),
) -> Vec<Result<Running, String>> {
    let started = cases.iter().zip(0..).map(|(case, cable)| {
        if interrupt::came() {
            return Err(format!("{} was not started any more", case.name));
        }
        let mut running = case.start_beside(testbed, cable, span)?;
        and(&mut running);
        Ok(running)
    });
    started.collect()
}

fn programs(runs: &[MemoryRun], testbed: &Testbed) -> Vec<Result<Figures, String>> {
    let duration = (testbed.duration() / TURNS).max(PROGRAM_MIN);
    let mut done: Vec<Result<Done, String>> = runs.iter().map(|_| Ok(Done::default())).collect();
    for _ in 0..TURNS {
        for (run, done) in runs.iter().zip(&mut done) {
            if let Ok(before) = done {
                let turn = memory::run(testbed, run, duration);
                *done = turn.map(|turn| before.and(turn));
            }
        }
    }
    let figures = done.into_iter().map(|done| done.map(Done::figures));
    figures.collect()
}
