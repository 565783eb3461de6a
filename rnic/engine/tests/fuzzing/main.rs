//! The body of the fuzz target under `fuzz/`, with random bytes and with the corpus that is kept
//! there. `RNIC_TEST_SEEDS` says how many seeds, `RNIC_TEST_FIRST_SEED` where they begin.
#![allow(dead_code, clippy::unwrap_used)]

mod body;
#[path = "../shared/random.rs"]
mod random;

use std::path::Path;

use random::Random;

const SEEDS: u64 = 1000;
/// The longest input, in bytes.
const LONGEST: u64 = 2000;

struct Named(String);

impl Drop for Named {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("replay with {}", self.0);
        }
    }
}

/// Runs the body with each seed's bytes. How often it says yes.
fn with_random_bytes<T>(body: fn(&[u8]) -> T, is_deep: fn(&T) -> bool) -> (usize, usize) {
    let (mut deep, mut all) = (0, 0);
    for seed in random::seeds(SEEDS) {
        let _named = Named(format!(
            "RNIC_TEST_FIRST_SEED={seed} RNIC_TEST_SEEDS=1 cargo test -p rnic-engine --test fuzzing"
        ));
        let mut random = Random::new(seed ^ 0xf0_22);
        let len = 1 + random.below(LONGEST);
        let bytes: Vec<u8> = (0..len).map(|_| random.next().to_le_bytes()[3]).collect();
        deep += usize::from(is_deep(&body(&bytes)));
        all += 1;
    }
    (deep, all)
}

fn with_corpus<T>(body: fn(&[u8]) -> T, target: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fuzz/corpus")
        .join(target);
    let mut files = 0;
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        let _named = Named(path.display().to_string());
        body(&std::fs::read(&path).unwrap());
        files += 1;
    }
    assert!(files > 0, "{} is empty", folder.display());
}

#[test]
fn a_stream_of_anything_changes_nothing_that_it_may_not() {
    with_random_bytes(body::stream::run, |()| true);
}

#[test]
fn a_session_of_anything_changes_nothing_that_it_may_not() {
    let (deep, all) = with_random_bytes(body::session::run, |is_there| *is_there);
    // Where none came about nothing was shown.
    assert!(all < 100 || deep > all / 2, "{deep} of {all}");
}

#[test]
fn the_corpora_find_nothing() {
    with_corpus(body::stream::run, "stream");
    with_corpus(body::session::run, "session");
}
