//! The bodies of the fuzz targets under `fuzz/`, as ordinary tests.
#![allow(dead_code, clippy::unwrap_used)]

mod body;
#[path = "../harness/fuzzing.rs"]
mod fuzzing;
#[path = "../harness/random.rs"]
mod random;
#[path = "../harness/seeds.rs"]
mod seeds;

use fuzzing::{with_corpus, with_random_bytes};

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
