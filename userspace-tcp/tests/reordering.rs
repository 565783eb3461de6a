//! A link that reorders and loses nothing: the sender learns to wait, and stays calm.
#![allow(clippy::unwrap_used)]

mod harness;

use std::time::Duration;

use harness::{Link, Network, Plan};
use userspace_tcp::{Config, Info};

const SEGMENTS: u64 = 4000;
const SPACING: Duration = Duration::from_micros(100);
const MS: Duration = Duration::from_millis(1);

/// Sends 4000 segments over a link on which three of ten packets come up to 20 packets late.
fn transfer(delay: Duration, timestamps: bool, seed: u64) -> Info {
    let config = Config {
        timestamps,
        ..Config::default()
    };
    let plan = Plan {
        bytes: SEGMENTS * 1448,
        ..Plan::default()
    };
    let link = Link {
        delay,
        spacing: SPACING,
        delay_per_mille: 300,
        jitter: SPACING * 20,
        ..Link::default()
    };
    let mut network = Network::one_way(config, plan, link, seed);
    network.open();
    network.run(Duration::from_secs(100));
    network.assert_complete();
    network.ends[0].app.last_info.unwrap()
}

#[test]
fn reordering_within_a_fraction_of_the_round_trip_costs_nearly_nothing() {
    for timestamps in [true, false] {
        for seed in 0..4 {
            let info = transfer(10 * MS, timestamps, seed);
            let counters = info.counters;
            assert!(counters.retransmits <= 12, "seed {seed}: {counters:?}");
            assert!(counters.fast_recoveries <= 3, "seed {seed}: {counters:?}");
            assert_eq!(counters.timeouts, 0, "seed {seed}: {counters:?}");
        }
    }
}

/// The link's delay is less than what a packet may be late.
#[test]
fn reordering_as_wide_as_the_round_trip_is_learnt() {
    for timestamps in [true, false] {
        for seed in 0..4 {
            let info = transfer(MS, timestamps, seed);
            let counters = info.counters;
            assert!(counters.retransmits <= 40, "seed {seed}: {counters:?}");
            assert!(counters.fast_recoveries <= 25, "seed {seed}: {counters:?}");
            assert_eq!(counters.timeouts, 0, "seed {seed}: {counters:?}");
        }
    }
}
