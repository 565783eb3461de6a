//! What byte streams cost: small writes become few segments. That every byte comes in order is in
//! `simulation`.
#![allow(clippy::unwrap_used)]

mod harness;

use std::time::Duration;

use harness::{BytePlan, Link, Network, Plan};
use userspace_tcp::Config;

/// Small writes that are pushed one by one go in few segments while the network is slower than
/// they come (RFC 9293 section 3.7.4).
#[test]
fn small_writes_over_a_slow_network_become_few_segments() {
    let segments = |nodelay| {
        let writer = Plan {
            bytes: 1000,
            stream: Some(BytePlan {
                write_max: 1,
                read_max: 1000,
                push_per_mille: 1000,
                flush_per_mille: 0,
                nodelay,
                pieces_max: 64,
            }),
            pause_per_mille: 1000,
            pause_for: Duration::from_millis(1),
            ..Plan::default()
        };
        let config = Config::default();
        let link = Link {
            delay: Duration::from_millis(25),
            ..Link::default()
        };
        let mut network = Network::one_way(config, writer, link, 1);
        network.open();
        network.run(Duration::from_secs(100));
        network.assert_complete();
        network.ends[0].app.last_info.unwrap().counters.segments_out
    };
    assert!(segments(true) > 900);
    // A byte each millisecond, a segment each round trip of 50 ms and a delayed acknowledgment.
    let coalesced = segments(false);
    assert!((15..30).contains(&coalesced), "{coalesced}");
}
