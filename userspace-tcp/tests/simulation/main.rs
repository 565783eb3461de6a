//! Deterministic simulation: several engines with connections between them, on a network that does
//! to their packets whatever a seed says, under virtual time. After each run every byte has come
//! once and is right, no timer, frame or connection is left, and all memory is back.
//!
//! `RNIC_TEST_SEEDS` says how many seeds, `RNIC_TEST_FIRST_SEED` where they begin,
//! `RNIC_TEST_TRACE` shows what a seed says and what happens. A seed that fails prints how to run it again.
#![allow(clippy::unwrap_used)]

mod engine;
mod flow;
#[path = "../harness/mod.rs"]
mod harness;
mod laws;
#[path = "../memory/meter.rs"]
mod meter;
mod paths;
mod scenario;
mod tally;
mod world;

use std::sync::LazyLock;

use harness::{Replay, seeds};
use meter::Meter;
use scenario::Scenario;
use tally::Tally;
use world::World;

/// Seeds of all tests together, if nobody says how many.
const SEEDS: u64 = 10_000;

/// Tests that the seeds are dealt out to, so that they run at the same time.
const HANDS: u64 = 8;

/// Fewer seeds need not bring about everything.
const MANY: u64 = 500;

static TRACED: LazyLock<bool> = LazyLock::new(|| std::env::var_os("RNIC_TEST_TRACE").is_some());

/// Says what happens, if somebody wants to know.
fn trace(what: impl FnOnce() -> String) {
    if *TRACED {
        eprintln!("{}", what());
    }
}

fn run(seed: u64) -> Tally {
    let scenario = Scenario::new(seed);
    trace(|| format!("{scenario:#?}"));
    let mut world = World::new(&scenario, seed);
    world.run();
    world.judge()
}

fn run_hand(hand: u64) {
    let mut tally = Tally::default();
    harness::make_pattern();
    let mut count = 0;
    for seed in seeds(SEEDS).filter(|seed| seed % HANDS == hand) {
        let _replay = Replay {
            seed,
            test: "simulation",
        };
        let mut meter = Meter::default();
        tally.join(&meter.run(|| run(seed)));
        // What is told takes memory, too.
        if !*TRACED {
            assert_eq!(meter.bytes, 0, "memory that did not come back");
        }
        count += 1;
    }
    println!("{count} seeds\n{tally}");
    if count >= MANY {
        tally.assert_all();
    }
}

macro_rules! hands {
    ($($name:ident $hand:literal)*) => {$(
        #[test]
        fn $name() {
            run_hand($hand);
        }
    )*};
}

hands! {
    whatever_the_network_does_hand_0 0
    whatever_the_network_does_hand_1 1
    whatever_the_network_does_hand_2 2
    whatever_the_network_does_hand_3 3
    whatever_the_network_does_hand_4 4
    whatever_the_network_does_hand_5 5
    whatever_the_network_does_hand_6 6
    whatever_the_network_does_hand_7 7
}
