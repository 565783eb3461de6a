//! Whatever a link does, every octet comes exactly once, every buffer goes back, no timer stays.
//!
//! `RNIC_TEST_SEEDS=count` runs more seeds than the few of every test run, `RNIC_TEST_FIRST_SEED`
//! others.
#![allow(clippy::unwrap_used)]

mod harness;

use std::time::Duration;

use harness::{Endpoint, Link, Network, Plan, Random};
use userspace_tcp::{Config, Event};

const SEEDS: u64 = 300;

fn seeds() -> std::ops::Range<u64> {
    let number = |name| Some(std::env::var(name).ok()?.parse::<u64>().unwrap());
    let first = number("RNIC_TEST_FIRST_SEED").unwrap_or(0);
    first..first + number("RNIC_TEST_SEEDS").unwrap_or(SEEDS)
}

struct Named(u64);

impl Drop for Named {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!(
                "replay with RNIC_TEST_FIRST_SEED={} RNIC_TEST_SEEDS=1",
                self.0
            );
        }
    }
}

fn pick<T: Copy>(random: &mut Random, from: &[T]) -> T {
    from[random.below(from.len() as u64) as usize]
}

fn random_config(random: &mut Random) -> Config {
    Config {
        mss: pick(random, &[1460, 1460, 536, 8960]),
        receive_window: pick(random, &[1 << 20, 1 << 18, 65_535, 20_000, 3000]),
        send_queue_segments: pick(random, &[256, 64, 8, 1]),
        timestamps: random.chance(700),
        sack: random.chance(700),
        window_scale: random.chance(800),
        min_rto: Duration::from_millis(random.within(50, 300)),
        max_rto: Duration::from_secs(4),
        syn_retries: 60,
        user_timeout: Duration::from_secs(3000),
        ..Config::default()
    }
}

fn random_plan(random: &mut Random) -> Plan {
    Plan {
        octets: pick(random, &[0, 1, 100, 20_000, 120_000]),
        close_after_peer: false,
        segment_max: pick(random, &[0, 0, 0, 600, 3000]),
        lazy_per_mille: pick(random, &[0, 0, 30, 200]),
        lazy_for: Duration::from_millis(random.within(1, 3000)),
        greedy: random.chance(300),
        ..Plan::default()
    }
}

fn random_link(random: &mut Random) -> Link {
    let bad = random.chance(800);
    let mut up_to = |most: u64| if bad { random.below(most) } else { 0 };
    let lose_per_mille = up_to(200);
    let duplicate_per_mille = up_to(100);
    let delay_per_mille = up_to(300);
    let refuse_per_mille = up_to(30);
    Link {
        lose_per_mille,
        duplicate_per_mille,
        delay_per_mille,
        refuse_per_mille,
        jitter: Duration::from_micros(pick(random, &[50, 1000, 20_000, 300_000])),
        delay: Duration::from_micros(pick(random, &[5, 100, 1000, 40_000])),
        hold: Duration::from_micros(pick(random, &[0, 20, 1000, 400_000])),
        spacing: Duration::from_nanos(pick(random, &[100, 1000, 12_000])),
        split_per_mille: 0,
        mtu: pick(random, &[usize::MAX, usize::MAX, usize::MAX, 1400, 600]),
        icmp_per_mille: pick(random, &[1000, 500, 0]),
    }
}

#[test]
fn every_octet_comes_once_and_every_buffer_goes_back() {
    for seed in seeds() {
        let _named = Named(seed);
        let mut random = Random::new(seed ^ 0xabcd);
        let mut plans = [random_plan(&mut random), random_plan(&mut random)];
        plans[random.below(2) as usize].close_after_peer = random.chance(500);
        let [plan_0, plan_1] = plans;
        let ends = [
            Endpoint::new(0, random_config(&mut random), plan_0),
            Endpoint::new(1, random_config(&mut random), plan_1),
        ];
        let mut network = Network::new(ends, random_link(&mut random), seed);
        if random.chance(150) {
            network.open_both();
        } else {
            network.open();
        }
        network.run(Duration::from_secs(20_000));
        network.assert_complete();
    }
}

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
            octets: 3_000_000,
            ..Plan::default()
        };
        let back = Plan {
            octets: 0,
            close_after_peer: true,
            ..Plan::default()
        };
        let ends = [
            Endpoint::new(0, config.clone(), plan),
            Endpoint::new(1, config, back),
        ];
        let mut network = Network::new(ends, Link::default(), 1);
        network.open();
        let start = network.now;
        while !network.ends[0].over {
            network.run_until(network.now + Duration::from_millis(1));
            assert!(network.now.saturating_duration_since(start) < Duration::from_millis(100));
        }
        let info = network.ends[0].last_info.unwrap();
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
        octets: 100_000,
        segment_max: 60,
        ..Plan::default()
    };
    let back = Plan {
        octets: 0,
        close_after_peer: true,
        ..Plan::default()
    };
    let ends = [
        Endpoint::new(0, config.clone(), plan),
        Endpoint::new(1, config, back),
    ];
    let mut network = Network::new(ends, Link::default(), 2);
    network.open();
    let start = network.now;
    while !network.ends[0].over {
        network.run_until(network.now + Duration::from_millis(1));
        assert!(network.now.saturating_duration_since(start) < Duration::from_millis(100));
    }
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
            let plan = Plan {
                octets: 300_000,
                ..Plan::default()
            };
            let back = Plan {
                octets: 0,
                close_after_peer: true,
                ..Plan::default()
            };
            let ends = [
                Endpoint::new(0, config.clone(), plan),
                Endpoint::new(1, config, back),
            ];
            let mut network = Network::new(ends, Link::default(), 1);
            let mut count = 0;
            network.filter = Box::new(move |side, _, len| {
                count += u64::from(side == 0 && len > 0);
                !(side == 0 && len > 0 && count == lost)
            });
            network.open();
            network.run(Duration::from_secs(100));
            network.assert_complete();
            let counters = network.ends[0].last_info.unwrap().counters;
            assert_eq!(
                (counters.timeouts, counters.retransmits),
                (0, 1),
                "{sack} {lost}"
            );
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
        let plan = Plan {
            octets: 300_000,
            ..Plan::default()
        };
        let back = Plan {
            octets: 0,
            close_after_peer: true,
            ..Plan::default()
        };
        let ends = [
            Endpoint::new(0, config.clone(), plan),
            Endpoint::new(1, config, back),
        ];
        let mut network = Network::new(ends, Link::default(), 1);
        let mut count = 0;
        network.filter = Box::new(move |side, _, len| {
            count += u64::from(side == 0 && len > 0);
            !(side == 0 && len > 0 && [40, 43, 44, 47].contains(&count))
        });
        network.open();
        network.run(Duration::from_secs(100));
        network.assert_complete();
        let counters = network.ends[0].last_info.unwrap().counters;
        assert_eq!(
            (counters.timeouts, counters.fast_recoveries),
            (0, 1),
            "sack {sack}"
        );
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
        assert_eq!(end.events[0], Event::Established);
    }
}
