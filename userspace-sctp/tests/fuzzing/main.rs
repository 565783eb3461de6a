//! The bodies of the fuzz targets under `fuzz/`, as ordinary tests.
#![allow(dead_code, clippy::unwrap_used)]

mod body;
#[path = "../../../userspace-tcp/tests/harness/fuzzing.rs"]
mod fuzzing;
#[path = "../../../userspace-tcp/tests/harness/random.rs"]
mod random;
#[path = "../../../userspace-tcp/tests/harness/seeds.rs"]
mod seeds;

use fuzzing::{with_corpus, with_random_bytes};

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
