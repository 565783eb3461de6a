//! BBR on a shared link, under virtual time: what it gets alone, beside others, and when ACKs are lost.
#![allow(clippy::unwrap_used)]

mod harness;

use std::time::Duration;

use harness::{Bottleneck, Dumbbell};
use userspace_tcp::{Config, CongestionControl};

const SEC: Duration = Duration::from_secs(1);

/// 1 Gbit/s, a round trip of 2 ms, and a queue of 500 packets.
const LAN: Bottleneck = Bottleneck {
    rate: 1_000_000_000,
    delay: Duration::from_millis(1),
    queue: 757_000,
    mark: None,
    loss: 0,
    reorder: 0,
    ack_loss: 0,
};

/// 100 Mbit/s and 20 ms, with a queue of half of what the path holds.
const WAN: Bottleneck = Bottleneck {
    rate: 100_000_000,
    delay: Duration::from_millis(10),
    queue: 125_000,
    ..LAN
};

fn config(congestion: CongestionControl) -> Config {
    Config {
        congestion,
        receive_window: 1 << 22,
        send_queue_segments: 4096,
        window_segments: 4096,
        ..Config::default()
    }
}

/// One flow over `link`, from its second second on for `duration`; the share of the link it has.
fn alone(link: Bottleneck, congestion: CongestionControl, duration: Duration) -> (Dumbbell, f64) {
    let mut dumbbell = Dumbbell::new(link, config(congestion), &[Duration::ZERO], 1);
    dumbbell.run(SEC);
    dumbbell.reset_queue_statistics();
    let bytes = dumbbell.measure(duration)[0];
    let share = dumbbell.utilization(bytes, duration);
    (dumbbell, share)
}

/// Shares of two flows, the second of which comes a second later.
fn together(link: Bottleneck, both: [CongestionControl; 2]) -> [f64; 2] {
    let configs = both.map(config);
    let mut dumbbell = Dumbbell::of_several(link, &configs, &[Duration::ZERO, SEC], 1);
    dumbbell.run(3 * SEC);
    let bytes = dumbbell.measure(20 * SEC);
    [bytes[0], bytes[1]].map(|bytes| dumbbell.utilization(bytes, 20 * SEC))
}

use CongestionControl::{Bbr, Cubic};

#[test]
fn a_flow_alone_fills_the_link_with_a_short_queue() {
    for link in [LAN, WAN] {
        let (mut dumbbell, share) = alone(link, Bbr, 8 * SEC);
        assert!(share > 0.97, "{share}");
        let bdp = link.rate as f64 / 8.0 * 2.0 * link.delay.as_secs_f64();
        let mean = dumbbell.queue_mean();
        assert!(mean < bdp / 4.0, "{mean} bytes wait, the path holds {bdp}");
        assert_eq!(dumbbell.info(0).counters.timeouts, 0);
        let (mut dumbbell, _) = alone(link, Cubic, 8 * SEC);
        let cubic = dumbbell.queue_mean();
        assert!(cubic > 2.0 * mean, "{cubic}: that is worth something");
    }
}

#[test]
fn what_is_lost_by_chance_costs_no_more_than_itself() {
    for (loss, least) in [(1000, 0.93), (10_000, 0.85)] {
        let link = Bottleneck { loss, ..LAN };
        let (dumbbell, share) = alone(link, Bbr, 8 * SEC);
        assert!(share > least, "{loss}: {share}");
        let counters = dumbbell.info(0).counters;
        assert_eq!(counters.timeouts, 0);
        assert!(counters.retransmits <= dumbbell.losses + dumbbell.drops);
        let (_, cubic) = alone(link, Cubic, 8 * SEC);
        assert!(cubic < 0.35, "{cubic}");
    }
}

/// As `rnic-bench` has it: what is only overtaken is no loss, neither for BBR nor for CUBIC.
#[test]
fn what_is_overtaken_costs_nothing() {
    for congestion in [Bbr, Cubic] {
        let calm = Bottleneck { loss: 1000, ..LAN };
        let rough = Bottleneck {
            reorder: 10_000,
            ..calm
        };
        let (_, without) = alone(calm, congestion, 8 * SEC);
        let (dumbbell, with) = alone(rough, congestion, 8 * SEC);
        assert!(with > 0.9 * without, "{congestion}: {with} {without}");
        let counters = dumbbell.info(0).counters;
        let lost = dumbbell.losses + dumbbell.drops;
        assert!(
            counters.retransmits < lost + lost / 20 + 20,
            "{counters:?} {lost}"
        );
    }
}

/// A hole is open for two round trips, in which two windows arrive behind it: the queue has room for
/// them, and the windows of an RNIC.
#[test]
fn a_queue_as_it_is_by_default_goes_on_behind_a_hole() {
    let link = Bottleneck {
        loss: 1000,
        reorder: 10_000,
        ..LAN
    };
    let config = Config {
        congestion: Bbr,
        ..Config::default()
    };
    let mut dumbbell = Dumbbell::new(link, config, &[Duration::ZERO], 1);
    dumbbell.run(SEC);
    let bytes = dumbbell.measure(8 * SEC)[0];
    let share = dumbbell.utilization(bytes, 8 * SEC);
    assert!(share > 0.93, "{share}");
}

/// BBR.LossThresh: what is lost beyond 2 % is a path that can't be used so.
#[test]
fn loss_beyond_two_hundredths_slows_it_down() {
    let link = Bottleneck {
        loss: 100_000,
        ..LAN
    };
    let (_, share) = alone(link, Bbr, 8 * SEC);
    assert!(share < 0.2, "{share}");
}

/// A queue of a fifth of what the path holds is filled only when bandwidth is probed for.
#[test]
fn a_short_queue_does_not_overflow_for_long() {
    let link = Bottleneck {
        queue: 50_000,
        ..LAN
    };
    let (dumbbell, share) = alone(link, Bbr, 8 * SEC);
    assert!(share > 0.9, "{share}");
    let lost = dumbbell.drops as f64 / dumbbell.info(0).counters.segments_out as f64;
    assert!(lost < 0.005, "{lost}");
}

#[test]
fn two_flows_share_the_link() {
    for link in [LAN, WAN] {
        let shares = together(link, [Bbr, Bbr]);
        let sum: f64 = shares.iter().sum();
        assert!(sum > 0.97, "{shares:?}");
        assert!(shares.iter().all(|share| *share > 0.35), "{shares:?}");
    }
}

/// Neither starves, whoever was first.
#[test]
fn cubic_beside_it_has_its_share_and_the_other_way_round() {
    for link in [LAN, WAN] {
        for both in [[Bbr, Cubic], [Cubic, Bbr]] {
            let shares = together(link, both);
            assert!(shares.iter().all(|share| *share > 0.2), "{shares:?}");
        }
    }
}

/// The pace is kept by a program that has its core for a part of the time only: else what it measures is
/// its own lateness, which it then takes for the path's rate.
#[test]
fn a_sender_whose_core_others_have_too_finds_the_rate() {
    let ms = Duration::from_millis;
    let link = Bottleneck {
        delay: ms(5),
        queue: 1_250_000,
        ..LAN
    };
    for (loss, seed) in [(0, 1), (10_000, 1), (10_000, 2), (10_000, 3)] {
        let link = Bottleneck { loss, ..link };
        let mut dumbbell = Dumbbell::new(link, config(Bbr), &[Duration::ZERO], seed);
        dumbbell.away = Some((ms(8), ms(5)));
        dumbbell.run(ms(400));
        let bytes = dumbbell.flows[0].delivered;
        assert!(bytes > 8 << 20, "{loss}, {seed}: {bytes} in 400 ms");
    }
}

/// A peer that acknowledges now and then, as after ACKs were lost or put together.
#[test]
fn few_acks_make_it_neither_stall_nor_flood() {
    for ack_loss in [500_000, 900_000] {
        let mut dumbbell = Dumbbell::new(LAN, config(Bbr), &[Duration::ZERO], 1);
        dumbbell.run(SEC);
        dumbbell.link.ack_loss = ack_loss;
        dumbbell.run(SEC);
        dumbbell.reset_queue_statistics();
        let bytes = dumbbell.measure(5 * SEC)[0];
        let share = dumbbell.utilization(bytes, 5 * SEC);
        assert!(share > 0.97, "{ack_loss}: {share}");
        assert_eq!(dumbbell.info(0).counters.timeouts, 0);
        assert_eq!(dumbbell.drops, 0);
        let mean = dumbbell.queue_mean();
        assert!(mean < 125_000.0, "{ack_loss}: {mean} bytes wait");
    }
}

/// Section 5.5.6: the path becomes ten times faster, and ten times slower.
#[test]
fn it_follows_a_path_that_changes() {
    let slow = Bottleneck {
        rate: LAN.rate / 10,
        ..LAN
    };
    let mut dumbbell = Dumbbell::new(slow, config(Bbr), &[Duration::ZERO], 1);
    dumbbell.run(2 * SEC);
    dumbbell.link.rate = LAN.rate;
    dumbbell.run(2 * SEC);
    let bytes = dumbbell.measure(2 * SEC)[0];
    let share = dumbbell.utilization(bytes, 2 * SEC);
    assert!(share > 0.95, "{share}");
    // Two times until bandwidth is probed for, each of 63 round trips with the queue in them.
    dumbbell.link.rate = LAN.rate / 10;
    dumbbell.run(8 * SEC);
    dumbbell.reset_queue_statistics();
    let bytes = dumbbell.measure(2 * SEC)[0];
    let share = dumbbell.utilization(bytes, 2 * SEC);
    assert!(share > 0.95, "{share}");
    let mean = dumbbell.queue_mean();
    assert!(mean < 100_000.0, "{mean} bytes wait");
}
