//! Our SCTP and two others in Rust, `sctp-proto` and `dcsctp`, in memory and under virtual time: either sends the INIT,
//! both send unordered messages, and either ends the association. Both are made for WebRTC, whose packets DTLS carries,
//! and speak the same packets without an IP header.
//!
//! A seed makes our random numbers and the link's. Theirs are their own, so a seed does not replay everything.

mod dcsctp_peer;
mod link;
mod proto_peer;
mod world;

use dcsctp_peer::Dcsctp;
use link::Conditions;
use proto_peer::Proto;
use world::{Ending, Peer, Run, run};

/// For each of the bad links.
const SEEDS: u64 = 2;

/// Some seeds, unless the environment says which.
fn seeds() -> std::ops::Range<u64> {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let first = number("RNIC_TEST_FIRST_SEED").unwrap_or(1);
    first..first + number("RNIC_TEST_SEEDS").unwrap_or(SEEDS)
}

fn both_roles<P: Peer>(new: impl Fn() -> P, conditions: Conditions, seed: u64, endings: &[Ending]) {
    for we_connect in [true, false] {
        for &ending in endings {
            let association = Run {
                seed,
                conditions,
                we_connect,
                ending,
            };
            run(new(), association);
        }
    }
}

fn on_bad_links<P: Peer>(new: impl Fn() -> P) {
    for conditions in Conditions::BAD {
        for seed in seeds() {
            both_roles(&new, conditions, seed, &[Ending::WeShutDown]);
        }
    }
}

#[test]
fn dcsctp_and_ours_carry_each_others_messages_and_ends() {
    both_roles(Dcsctp::new, Conditions::CLEAN, 1, &Ending::ALL);
}

#[test]
fn nothing_is_lost_between_dcsctp_and_ours_on_bad_links() {
    on_bad_links(Dcsctp::new);
}

/// It has no ABORT that its user can ask for. Its SHUTDOWN acknowledges its own TSNs instead of ours, as often as not
/// such that were never sent, so we may have to end by an ABORT: it does not shut down here.
#[test]
fn sctp_proto_and_ours_carry_each_others_messages_and_ends() {
    let endings = [Ending::WeShutDown, Ending::WeAbort];
    both_roles(Proto::new, Conditions::CLEAN, 1, &endings);
}

#[test]
fn nothing_is_lost_between_sctp_proto_and_ours_on_bad_links() {
    on_bad_links(Proto::new);
}
