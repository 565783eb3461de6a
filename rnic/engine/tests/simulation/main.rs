//! Deterministic simulation: two and eight RNICs with random programs of verbs, over a network that
//! loses, doubles, reorders, damages and re-segments, under virtual time, against a simple model of
//! memory and completions.
//!
//! The model knows RFC 5040 section 5.5 and nothing of the engine. It says which bytes an operation may change and when
//! it must have changed them. It says which completions come and in which order, and for which reasons a stream may
//! end. `RNIC_TEST_SEEDS` says how many seeds, `RNIC_TEST_FIRST_SEED`
//! where they begin, and `RNIC_TEST_TRACE` shows what happens.

#![allow(clippy::unwrap_used)]

mod checker;
mod extended;
#[path = "../shared/impairment.rs"]
mod impairment;
mod joined;
mod memory;
mod network;
#[path = "../shared/node.rs"]
mod node;
mod program;
mod queues;
#[path = "../shared/random.rs"]
mod random;
mod run;
mod simulation;
mod states;
mod stream;
mod tcp_frames;
mod trouble;
mod windows;
mod words;

use std::collections::BTreeMap;

use run::Size;

const TWO: Size = Size {
    nodes: 2,
    joined: 0,
    siblings: 0,
    streams: 3,
    actions: 120,
};
const EIGHT: Size = Size {
    nodes: 8,
    joined: 0,
    siblings: 0,
    streams: 10,
    actions: 160,
};
/// Three interfaces of one host, and another host.
const JOINED: Size = Size {
    nodes: 4,
    joined: 3,
    siblings: 0,
    streams: 6,
    actions: 140,
};

/// Three shards of one interface, and another host.
const SIBLINGS: Size = Size {
    nodes: 4,
    joined: 0,
    siblings: 3,
    streams: 6,
    actions: 140,
};

/// Seeds of all tests of two RNICs together, and of all tests of eight.
const SEEDS_OF_TWO: u64 = 10_000;
const SEEDS_OF_EIGHT: u64 = 2_000;
/// And of those with interfaces that are joined by internal links.
const SEEDS_OF_JOINED: u64 = 2_000;
/// And of those with several shards for an interface.
const SEEDS_OF_SIBLINGS: u64 = 2_000;

/// Names the seed that failed.
struct Named(String);

impl Drop for Named {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("replay with {}", self.0);
        }
    }
}

/// Every `parts`th seed, from the `part`th on: so the tests of one size share its seeds.
fn run_seeds(name: &str, size: Size, all: u64, (part, parts): (u64, u64)) {
    for seed in random::seeds(all).filter(|seed| seed % parts == part) {
        let _named = Named(format!(
            "RNIC_TEST_FIRST_SEED={seed} RNIC_TEST_SEEDS=1 cargo test -p rnic-engine --test \
             simulation {name}"
        ));
        run::run(seed, size);
    }
}

macro_rules! parts {
    ($($name:ident: $prefix:literal $size:ident $all:ident $part:literal of $parts:literal,)*) => {$(
        #[test]
        fn $name() {
            run_seeds($prefix, $size, $all, ($part, $parts));
        }
    )*};
}

parts! {
    two_rnics_part_1: "two_rnics" TWO SEEDS_OF_TWO 0 of 6,
    two_rnics_part_2: "two_rnics" TWO SEEDS_OF_TWO 1 of 6,
    two_rnics_part_3: "two_rnics" TWO SEEDS_OF_TWO 2 of 6,
    two_rnics_part_4: "two_rnics" TWO SEEDS_OF_TWO 3 of 6,
    two_rnics_part_5: "two_rnics" TWO SEEDS_OF_TWO 4 of 6,
    two_rnics_part_6: "two_rnics" TWO SEEDS_OF_TWO 5 of 6,
    eight_rnics_part_1: "eight_rnics" EIGHT SEEDS_OF_EIGHT 0 of 4,
    eight_rnics_part_2: "eight_rnics" EIGHT SEEDS_OF_EIGHT 1 of 4,
    eight_rnics_part_3: "eight_rnics" EIGHT SEEDS_OF_EIGHT 2 of 4,
    eight_rnics_part_4: "eight_rnics" EIGHT SEEDS_OF_EIGHT 3 of 4,
    joined_rnics_part_1: "joined_rnics" JOINED SEEDS_OF_JOINED 0 of 2,
    joined_rnics_part_2: "joined_rnics" JOINED SEEDS_OF_JOINED 1 of 2,
    sibling_shards_part_1: "sibling_shards" SIBLINGS SEEDS_OF_SIBLINGS 0 of 2,
    sibling_shards_part_2: "sibling_shards" SIBLINGS SEEDS_OF_SIBLINGS 1 of 2,
}

/// What the programs are to reach, by the counters of those who notice.
const REACHED: [&str; 38] = [
    "streams_over_sctp",
    "bytes_placed",
    "bytes_placed_early",
    "bytes_parked",
    "bytes_gathered",
    "writes_received",
    "sends_received",
    "read_responses_received",
    "immediates_received",
    "atomic_requests_received",
    "atomic_responses_received",
    "stags_invalidated",
    "local_work_done",
    "windows_bound",
    "windows_invalidated",
    "shared_receives_taken",
    "srq_limits_reached",
    "cqs_overflowed",
    "clients_woken",
    "queue_pairs_reset",
    "terminated_by_clients",
    "terminates_sent",
    "terminates_received",
    "work_completed",
    "work_flushed",
    "work_failed",
    "local_errors",
    "crc_errors",
    "refused_invalid_stag",
    "refused_stag_not_associated",
    "refused_access_rights",
    "refused_base_or_bounds",
    "refused_misaligned",
    "refused_invalidate",
    "refused_no_receive",
    "refused_send_too_long",
    "tcp_retransmits",
    "rx_bad_tcp_checksum",
];

/// What those of joined interfaces are to reach.
const REACHED_BY_LINKS: [&str; 6] = [
    "streams_over_links",
    "frames_lost_by_links",
    "shards_woken_by_links",
    "shards_halted",
    "shards_gone",
    "queue_pairs_reset",
];

/// What those of several shards for an interface are to reach.
const REACHED_BY_SIBLINGS: [&str; 7] = [
    "streams_over_sctp",
    "bytes_placed_early",
    "handover_given",
    "handover_taken",
    "handover_full",
    "shards_woken_by_links",
    "shards_halted",
];

fn assert_reached(size: Size, seeds: std::ops::Range<u64>, names: &[&str]) {
    let mut sums = BTreeMap::new();
    for seed in seeds {
        for (name, count) in run::run(seed, size) {
            *sums.entry(name).or_insert(0) += count;
        }
    }
    for name in names {
        let found = sums.get(*name);
        assert!(
            found.is_some_and(|count| *count > 0),
            "{name} is never counted"
        );
    }
}

#[test]
fn the_programs_reach_what_they_are_for() {
    assert_reached(TWO, 1..400, &REACHED);
    assert_reached(JOINED, 1..100, &REACHED_BY_LINKS);
    assert_reached(SIBLINGS, 1..200, &REACHED_BY_SIBLINGS);
}

#[test]
fn a_seed_replays_exactly() {
    for seed in 1..20 {
        assert_eq!(run::run(seed, TWO), run::run(seed, TWO), "seed {seed}");
        assert_eq!(run::run(seed, EIGHT), run::run(seed, EIGHT), "seed {seed}");
        for size in [JOINED, SIBLINGS] {
            assert_eq!(run::run(seed, size), run::run(seed, size), "seed {seed}");
        }
    }
}
