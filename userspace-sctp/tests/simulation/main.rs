//! Deterministic simulation: two stacks on a link that loses, delays, reorders, duplicates and damages packets as a
//! seed says, under virtual time. After each run every message that was taken has come exactly once, both ends tell
//! the same end, every buffer is back, and nothing is left.
//!
//! `RNIC_TEST_SEEDS` says how many seeds, `RNIC_TEST_FIRST_SEED` where they begin, `RNIC_TEST_TRACE` shows
//! packets and events. A seed that fails prints how to run it again.
#![allow(clippy::unwrap_used)]

mod homes;
mod link;
#[path = "../../../userspace-tcp/tests/harness/random.rs"]
mod random;
mod scenario;
#[path = "../../../userspace-tcp/tests/harness/seeds.rs"]
mod seeds;
mod side;
mod trace;
mod world;

use scenario::Scenario;
use seeds::{Replay, seeds};
use world::World;

/// Seeds of all tests together, if nobody says how many.
const SEEDS: u64 = 1000;

/// Tests that the seeds are dealt out to, so that they run at the same time.
const HANDS: u64 = 2;

fn run_hand(hand: u64) {
    let mut ends = std::collections::BTreeMap::new();
    for seed in seeds(SEEDS).filter(|seed| seed % HANDS == hand) {
        let _replay = Replay {
            seed,
            test: "simulation",
        };
        let scenario = Scenario::new(seed);
        trace::trace(|| format!("{scenario:#?}"));
        let mut world = World::new(scenario);
        world.run();
        *ends.entry(world.judge()).or_insert(0) += 1;
    }
    println!("{ends:?}");
}

#[test]
fn whatever_the_network_does_hand_0() {
    run_hand(0);
}

#[test]
fn whatever_the_network_does_hand_1() {
    run_hand(1);
}
