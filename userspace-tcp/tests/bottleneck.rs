//! What congestion control makes of a shared link, under virtual time.
#![allow(clippy::unwrap_used)]

mod harness;

use std::time::Duration;

use harness::{Bottleneck, Dumbbell};
use userspace_tcp::{Config, CongestionControl};

const SEC: Duration = Duration::from_secs(1);

/// 100 Mbit/s, a round trip of 50 ms, with a queue of half of what the path holds.
const WAN: Bottleneck = Bottleneck {
    rate: 100_000_000,
    delay: Duration::from_millis(25),
    queue: 312_500,
    mark: None,
    loss: 0,
    reorder: 0,
    ack_loss: 0,
};

fn config(congestion: CongestionControl) -> Config {
    Config {
        congestion,
        receive_window: 1 << 24,
        send_queue_segments: 8192,
        window_segments: 8192,
        ..Config::default()
    }
}

/// How fairly bytes are shared: 1 is equal, 1/n is all to one.
fn jain(shares: &[u64]) -> f64 {
    let sum: f64 = shares.iter().map(|share| *share as f64).sum();
    let squares: f64 = shares.iter().map(|share| (*share as f64).powi(2)).sum();
    sum * sum / squares / shares.len() as f64
}

fn run_one(link: Bottleneck, config: Config, duration: Duration) -> (Dumbbell, f64) {
    let mut dumbbell = Dumbbell::new(link, config, &[Duration::ZERO], 1);
    let bytes = dumbbell.measure(duration)[0];
    let utilization = dumbbell.utilization(bytes, duration);
    (dumbbell, utilization)
}

#[test]
fn cubic_fills_a_long_fast_path() {
    let (dumbbell, utilization) = run_one(WAN, config(CongestionControl::Cubic), 20 * SEC);
    assert!(utilization > 0.95, "{utilization}");
    let counters = dumbbell.info(0).counters;
    assert_eq!(counters.timeouts, 0);
    assert_eq!(
        counters.retransmits, dumbbell.drops,
        "only what was dropped is sent again"
    );
}

#[test]
fn newreno_fills_it_less_well() {
    let (dumbbell, utilization) = run_one(WAN, config(CongestionControl::NewReno), 20 * SEC);
    assert!(utilization > 0.85, "{utilization}");
    assert_eq!(dumbbell.info(0).counters.timeouts, 0);
}

/// A window that goes round in bursts overflows a queue of fourteen packets over and over.
#[test]
fn pacing_gets_through_a_short_queue() {
    let link = Bottleneck {
        queue: 21_000,
        ..WAN
    };
    let (_, paced) = run_one(link, config(CongestionControl::Cubic), 5 * SEC);
    let unpaced = Config {
        pacing: false,
        ..config(CongestionControl::Cubic)
    };
    let (_, unpaced) = run_one(link, unpaced, 5 * SEC);
    assert!(paced > 0.7 && paced > 2.0 * unpaced, "{paced} {unpaced}");
}

#[test]
fn a_flow_that_comes_later_gets_its_share() {
    let link = Bottleneck {
        delay: Duration::from_millis(10),
        queue: 125_000,
        ..WAN
    };
    for congestion in [CongestionControl::Cubic, CongestionControl::NewReno] {
        let starts = [Duration::ZERO, 2 * SEC];
        let mut dumbbell = Dumbbell::new(link, config(congestion), &starts, 1);
        dumbbell.run(8 * SEC);
        let shares = dumbbell.measure(12 * SEC);
        let jain = jain(&shares);
        assert!(jain > 0.95, "{congestion:?}: {shares:?} {jain}");
        let utilization = dumbbell.utilization(shares.iter().sum(), 12 * SEC);
        assert!(utilization > 0.9, "{congestion:?}: {utilization}");
    }
}

/// 1 Gbit/s and 100 us: a switch that marks from twenty packets on, as RFC 8257 has it in mind.
#[test]
fn dctcp_keeps_the_queue_short_and_the_link_full() {
    let link = Bottleneck {
        rate: 1_000_000_000,
        delay: Duration::from_micros(50),
        queue: 500_000,
        mark: Some(30_000),
        loss: 0,
        reorder: 0,
        ack_loss: 0,
    };
    let run = |congestion| {
        let config = Config {
            ack_delay: Duration::from_micros(500),
            ..config(congestion)
        };
        let starts = [Duration::ZERO, SEC / 50];
        let mut dumbbell = Dumbbell::new(link, config, &starts, 1);
        dumbbell.run(SEC / 5);
        dumbbell.reset_queue_statistics();
        let shares = dumbbell.measure(SEC / 5);
        let utilization = dumbbell.utilization(shares.iter().sum(), SEC / 5);
        (dumbbell, jain(&shares), utilization)
    };
    let (mut dumbbell, jain, utilization) = run(CongestionControl::Dctcp);
    assert!(utilization > 0.98, "{utilization}");
    assert!(jain > 0.95, "{jain}");
    assert!(dumbbell.queue_max < 50_000, "{}", dumbbell.queue_max);
    let mean = dumbbell.queue_mean();
    assert!(mean < 35_000.0, "{mean}");
    assert_eq!(dumbbell.drops, 0);
    let (mut dumbbell, ..) = run(CongestionControl::NewReno);
    let without = dumbbell.queue_mean();
    assert!(without > 5.0 * mean, "{without}: marks are worth something");
}

/// Without a loss a window grows for as long as it is let.
#[test]
fn no_window_is_worth_more_segments_than_it_may_be() {
    let config = Config {
        window_segments: 50,
        send_queue_segments: 500,
        ..config(CongestionControl::Cubic)
    };
    let (dumbbell, _) = run_one(WAN, config, 2 * SEC);
    let info = dumbbell.info(0);
    assert_eq!(info.cwnd, 50 * info.mss as u64);
    assert_eq!(
        info.queued_segments, 51,
        "nothing was lost, and one waits for room or for a tail loss probe"
    );
}

/// Classic ECN (RFC 3168): the window is reduced without a loss. A switch that marks by a threshold
/// still does so when the reduction has just begun, so that there are two of them.
#[test]
fn marks_take_the_place_of_losses() {
    let link = Bottleneck {
        mark: Some(150_000),
        ..WAN
    };
    let config = Config {
        ecn: true,
        ..config(CongestionControl::Cubic)
    };
    let (mut dumbbell, _) = run_one(link, config, 5 * SEC);
    let drops = dumbbell.drops;
    let bytes = dumbbell.measure(10 * SEC)[0];
    let utilization = dumbbell.utilization(bytes, 10 * SEC);
    assert!(utilization > 0.8, "{utilization}");
    assert_eq!(dumbbell.drops, drops);
    assert!(dumbbell.info(0).counters.ecn_reductions > 0);
}
