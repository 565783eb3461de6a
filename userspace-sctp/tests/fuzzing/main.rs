//! The bodies of the fuzz targets under `fuzz/`, with random bytes and with the corpora that are kept there.
//! `RNIC_TEST_SEEDS` says how many seeds, `RNIC_TEST_FIRST_SEED` where they begin.
#![allow(dead_code, clippy::unwrap_used)]

mod body;
#[path = "../../../userspace-tcp/tests/harness/random.rs"]
mod random;
#[path = "../../../userspace-tcp/tests/harness/seeds.rs"]
mod seeds;

use std::path::Path;

use random::Random;
use seeds::{Replay, seeds};

const SEEDS: u64 = 3000;

/// Also gives what `body` says of each seed.
fn with_random_bytes<T>(body: fn(&[u8]) -> T, most: u64) -> Vec<T> {
    let run = |seed| {
        let _replay = Replay {
            seed,
            test: "fuzzing",
        };
        let mut random = Random::new(seed ^ 0xf0_22);
        let len = random.within(1, most);
        let bytes: Vec<u8> = (0..len).map(|_| random.next().to_le_bytes()[3]).collect();
        body(&bytes)
    };
    seeds(SEEDS).map(run).collect()
}

fn with_corpus<T>(body: fn(&[u8]) -> T, target: &str) {
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
fn packets_of_random_bytes() {
    with_random_bytes(body::parsers::packet, 200);
}

#[test]
fn parameters_of_random_bytes() {
    with_random_bytes(body::parsers::parameters, 100);
}

#[test]
fn no_bytes_are_a_cookie_without_the_secret() {
    with_random_bytes(body::parsers::cookie, 250);
}

/// An attack that never gets anything through shows nothing.
#[test]
fn an_attacker_harms_nobody_without_the_tag_and_breaks_nothing_with_it() {
    let came = with_random_bytes(body::attack::run, 1000);
    if came.len() > 100 {
        let most = came.iter().filter(|messages| **messages > 3).count();
        assert!(most > came.len() / 4, "{most} of {}", came.len());
    }
}

#[test]
fn the_corpora_find_nothing() {
    with_corpus(body::parsers::packet, "packet");
    with_corpus(body::parsers::parameters, "parameters");
    with_corpus(body::parsers::cookie, "cookie");
    with_corpus(body::attack::run, "attack");
}
