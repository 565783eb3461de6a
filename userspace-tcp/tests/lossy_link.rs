//! What a good link, and one that loses a little, cost: no timeout, and no segment more than needed.
//! What bad ones may do is in `simulation`.
#![allow(clippy::unwrap_used)]

mod harness;

use std::time::Duration;

use harness::{Endpoint, Link, Network, Plan};
use userspace_tcp::{Config, ConnCounters, Event};

/// In virtual time a transfer over a good link takes about what the link takes: no timeout, no
/// probe, no delayed acknowledgment in its way.
#[test]
fn a_good_link_needs_no_timer() {
    for (timestamps, sack) in [(true, true), (false, true), (false, false)] {
        let config = Config {
            timestamps,
            sack,
            ..Config::default()
        };
        let plan = Plan {
            bytes: 3_000_000,
            ..Plan::default()
        };
        let mut network = Network::one_way(config, plan, Link::default(), 1);
        network.open();
        let start = network.now;
        while !network.ends[0].app.over {
            network.run_until(network.now + Duration::from_millis(1));
            assert!(network.now.saturating_duration_since(start) < Duration::from_millis(100));
        }
        let info = network.ends[0].app.last_info.unwrap();
        assert_eq!(info.counters.timeouts, 0);
        assert_eq!(info.counters.retransmits, 0);
        assert_eq!(info.counters.probes, 0);
        network.run(Duration::from_secs(100));
        network.assert_complete();
    }
}

#[test]
fn small_segments_do_not_wait_for_delayed_acknowledgments() {
    let config = Config {
        mss: 8960,
        send_queue_segments: 32,
        ..Config::default()
    };
    let plan = Plan {
        bytes: 100_000,
        segment_max: 60,
        ..Plan::default()
    };
    let mut network = Network::one_way(config, plan, Link::default(), 2);
    network.open();
    let start = network.now;
    while !network.ends[0].app.over {
        network.run_until(network.now + Duration::from_millis(1));
        assert!(network.now.saturating_duration_since(start) < Duration::from_millis(100));
    }
}

/// A transfer of which these segments with data are lost, by their number: what it has counted.
fn without(config: Config, lost: Vec<u64>) -> ConnCounters {
    let plan = Plan {
        bytes: 300_000,
        ..Plan::default()
    };
    let mut network = Network::one_way(config, plan, Link::default(), 1);
    let mut count = 0;
    network.filter = Box::new(move |side, _, len| {
        count += u64::from(side == 0 && len > 0);
        !(side == 0 && len > 0 && lost.contains(&count))
    });
    network.open();
    network.run(Duration::from_secs(100));
    network.assert_complete();
    network.ends[0].app.last_info.unwrap().counters
}

/// One loss in the middle of a flight is mended by fast retransmit, not by a timeout.
#[test]
fn one_loss_is_mended_without_a_timeout() {
    for (timestamps, sack) in [(true, true), (false, true), (false, false), (true, false)] {
        for lost in [1, 2, 5, 9, 30, 60] {
            let config = Config {
                timestamps,
                sack,
                ..Config::default()
            };
            let counters = without(config, vec![lost]);
            let resent = (counters.timeouts, counters.retransmits);
            assert_eq!(resent, (0, 1), "{sack} {lost}");
            assert_eq!(counters.fast_recoveries, 1);
        }
    }
}

/// Several losses of one flight are mended in one recovery, with SACK in about one round trip.
#[test]
fn several_losses_of_a_flight_are_one_recovery() {
    for sack in [true, false] {
        let config = Config {
            sack,
            ..Config::default()
        };
        let counters = without(config, vec![40, 43, 44, 47]);
        let recoveries = (counters.timeouts, counters.fast_recoveries);
        assert_eq!(recoveries, (0, 1), "sack {sack}");
        assert_eq!(counters.retransmits, 4);
    }
}

#[test]
fn a_simultaneous_open_makes_one_connection() {
    let ends = [0, 1].map(|side| Endpoint::new(side, Config::default(), Plan::default()));
    let mut network = Network::new(ends, Link::default(), 3);
    network.open_both();
    network.run(Duration::from_secs(100));
    network.assert_complete();
    for end in &network.ends {
        assert_eq!(end.app.events[0], Event::Established);
    }
}
