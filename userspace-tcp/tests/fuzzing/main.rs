//! The bodies of the fuzz targets under `fuzz/`, with random bytes and with the corpora that are
//! kept there. `RNIC_TEST_SEEDS` says how many seeds, `RNIC_TEST_FIRST_SEED` where they begin.
#![allow(dead_code, clippy::unwrap_used)]

mod body;
#[path = "../harness/random.rs"]
mod random;
#[path = "../harness/seeds.rs"]
mod seeds;

use std::path::Path;

use random::Random;
use seeds::{Replay, seeds};

const SEEDS: u64 = 3000;

fn with_random_bytes(body: fn(&[u8]), most: u64) {
    for seed in seeds(SEEDS) {
        let _replay = Replay {
            seed,
            test: "fuzzing",
        };
        let mut random = Random::new(seed ^ 0xf0_22);
        let len = random.within(1, most);
        let bytes: Vec<u8> = (0..len).map(|_| random.next().to_le_bytes()[3]).collect();
        body(&bytes);
    }
}

fn with_corpus(body: fn(&[u8]), target: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fuzz/corpus")
        .join(target);
    let mut files = 0;
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        eprintln!("{}", path.display());
        body(&std::fs::read(&path).unwrap());
        files += 1;
    }
    assert!(files > 0, "{} is empty", folder.display());
}

#[test]
fn segments_of_random_bytes() {
    with_random_bytes(body::parsers::segment, 100);
}

#[test]
fn options_of_random_bytes() {
    with_random_bytes(body::parsers::options, 40);
}

#[test]
fn a_connection_survives_everything() {
    with_random_bytes(body::stateful::run, 2000);
}

#[test]
fn the_corpora_find_nothing() {
    with_corpus(body::parsers::segment, "segment");
    with_corpus(body::parsers::options, "options");
    with_corpus(body::stateful::run, "stateful");
}
