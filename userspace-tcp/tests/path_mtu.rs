//! A link that takes no large packets, with and without ICMP errors: every byte comes, and the
//! segments find the size that passes.
#![allow(clippy::unwrap_used)]

mod harness;

use std::time::Duration;

use harness::{Endpoint, Link, Network, Plan};
use userspace_tcp::{Config, Event, Info};

const BYTES: u64 = 3_000_000;

fn config(mss: u16) -> Config {
    Config {
        mss,
        ..Config::default()
    }
}

/// Side 0 sends to side 1 over a link that delays each packet for `delay`.
fn transfer(mss: u16, delay: Duration) -> Network {
    let plan = Plan {
        bytes: BYTES,
        ..Plan::default()
    };
    let link = Link {
        delay,
        spacing: Duration::from_micros(60),
        ..Link::default()
    };
    let mut network = Network::one_way(config(mss), plan, link, 1);
    network.open();
    network
}

/// Runs until side 0 has sent `bytes`, and returns what it looks like then.
fn run_until_sent(network: &mut Network, bytes: u64) -> Info {
    while network.ends[0].app.sent < bytes {
        network.run_until(network.now + Duration::from_micros(100));
    }
    network.ends[0].app.last_info.unwrap()
}

fn finish(mut network: Network) -> Info {
    network.run(Duration::from_secs(1000));
    network.assert_complete();
    network.ends[0].app.last_info.unwrap()
}

fn mss_changes(network: &Network) -> Vec<usize> {
    let changes = network.ends[0]
        .app
        .events
        .iter()
        .filter_map(|event| match event {
            Event::MssChanged { mss } => Some(*mss),
            _ => None,
        });
    changes.collect()
}

#[test]
fn a_path_that_is_narrow_from_the_start_is_learnt_by_one_error() {
    for mss in [1460, 8960] {
        let mut network = transfer(mss, Duration::from_micros(100));
        network.link.mtu = 1400;
        run_until_sent(&mut network, BYTES / 2);
        assert_eq!(mss_changes(&network), [1348]);
        let info = finish(network);
        assert_eq!((info.path_mtu, info.counters.timeouts), (1400, 0));
        assert_eq!(info.counters.fast_recoveries, 0);
    }
}

#[test]
fn a_path_that_becomes_narrow_costs_one_flight_and_no_timeout() {
    let mut network = transfer(8960, Duration::from_millis(5));
    let before = run_until_sent(&mut network, BYTES / 2);
    network.link.mtu = 1500;
    let info = finish(network);
    let flight = before.cwnd / 8948 + 1;
    let again = info.counters.retransmits - before.counters.retransmits;
    assert!((1..=2 * flight).contains(&again), "{again} of {flight}");
    assert_eq!((info.path_mtu, info.counters.timeouts), (1500, 0));
}

/// Narrower and narrower: each link names its own size.
#[test]
fn a_path_may_become_narrow_more_than_once() {
    let mut network = transfer(8960, Duration::from_micros(100));
    for (part, mtu) in [(1, 4352), (2, 1500), (3, 700), (4, 400)] {
        run_until_sent(&mut network, BYTES / 5 * part);
        network.link.mtu = mtu;
    }
    let info = finish(network);
    assert_eq!((info.path_mtu, info.counters.timeouts), (552, 0));
}

/// RFC 4821: nobody says a word.
#[test]
fn a_black_hole_is_found_and_what_passes_is_searched_for() {
    for (mtu, expected) in [(1500, 1500), (1480, 1472), (9000, 9000), (700, 552)] {
        let mut network = transfer(8960, Duration::from_micros(100));
        network.link.icmp_per_mille = 0;
        run_until_sent(&mut network, BYTES / 10);
        network.link.mtu = mtu;
        let info = finish(network);
        assert_eq!(info.path_mtu, expected);
        assert!(info.counters.timeouts <= 5, "{}", info.counters.timeouts);
    }
}

#[test]
fn a_black_hole_from_the_start_is_survived() {
    for sack in [true, false] {
        let mut network = transfer(1460, Duration::from_micros(100));
        network.ends = [0, 1].map(|side| {
            let plan = Plan {
                bytes: 200_000,
                ..Plan::default()
            };
            let config = Config {
                sack,
                ..config(1460)
            };
            Endpoint::new(side, config, plan)
        });
        network.link.icmp_per_mille = 0;
        network.link.mtu = 1400;
        network.open();
        let info = finish(network);
        assert!((1350..=1400).contains(&info.path_mtu), "{}", info.path_mtu);
    }
}

/// An outage looks like a black hole. Behind it the old size is back at once.
#[test]
fn an_outage_does_not_make_segments_small_for_long() {
    let mut network = transfer(8960, Duration::from_micros(100));
    run_until_sent(&mut network, BYTES / 2);
    network.link.lose_per_mille = 1000;
    network.run_until(network.now + Duration::from_secs(1));
    assert_eq!(network.ends[0].app.last_info.unwrap().mss, 1148);
    network.link.lose_per_mille = 0;
    let info = finish(network);
    assert_eq!(info.mss, 8948);
}

/// A path that becomes wide again is found out, and nothing is lost by it.
#[test]
fn a_path_that_becomes_wide_again_is_used() {
    let mut network = transfer(8960, Duration::from_micros(100));
    network.ends[0].app.plan.bytes = BYTES / 4;
    network.ends[0].app.plan.close_after_peer = true;
    network.link.mtu = 1500;
    assert_eq!(run_until_sent(&mut network, BYTES / 4).path_mtu, 1500);
    network.link.mtu = usize::MAX;
    network.run_until(network.now + Duration::from_secs(600));
    network.now += Duration::from_secs(600);
    network.ends[0].app.plan.bytes = BYTES;
    network.ends[0].app.plan.close_after_peer = false;
    let info = finish(network);
    assert_eq!((info.mss, info.path_mtu), (8948, 9000));
}
