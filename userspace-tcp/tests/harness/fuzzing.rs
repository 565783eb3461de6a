//! The body of a fuzz target as an ordinary test: with random bytes, and with the corpus that is kept below `fuzz`.
//! `RNIC_TEST_SEEDS` says how many seeds, `RNIC_TEST_FIRST_SEED` where they begin.

use std::path::Path;

use super::random::Random;
use super::seeds::{Replay, seeds};

const SEEDS: u64 = 3000;

/// Gives what `body` says of each seed's bytes, which are as many as `most`.
pub fn with_random_bytes<T>(body: fn(&[u8]) -> T, most: u64) -> Vec<T> {
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

pub fn with_corpus<T>(body: fn(&[u8]) -> T, target: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../fuzz/corpus")
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
