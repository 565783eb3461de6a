//! Byte streams over a bad link: every octet comes in order, once, whatever the writes, the reads
//! and the link do.
//!
//! `RNIC_TEST_SEEDS=count` runs more seeds than the few of every test run, `RNIC_TEST_FIRST_SEED`
//! others.
#![allow(clippy::unwrap_used)]

mod harness;

use std::time::Duration;

use harness::{BytePlan, Endpoint, Link, Network, Plan, Random};
use userspace_tcp::Config;

const SEEDS: u64 = 100;

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
        receive_window: pick(random, &[1 << 20, 1 << 18, 65_535, 20_000, 3000, 100]),
        send_queue_segments: pick(random, &[4096, 256, 8, 1]),
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
    let bytes = BytePlan {
        write_max: pick(random, &[1, 40, 1460, 5000, 100_000]),
        read_max: pick(random, &[1000, 100_000]),
        push_per_mille: pick(random, &[0, 100, 1000]),
        flush_per_mille: pick(random, &[0, 0, 20]),
        nodelay: random.chance(200),
        pieces_max: pick(random, &[2, 20, 4096]),
    };
    let octets = match bytes.write_max {
        1 => pick(random, &[0, 1, 500]),
        40 => pick(random, &[0, 1, 10_000]),
        _ => pick(random, &[0, 1, 20_000, 80_000]),
    };
    Plan {
        octets,
        close_after_peer: false,
        segment_max: 0,
        lazy_per_mille: pick(random, &[0, 0, 30, 200]),
        lazy_for: Duration::from_millis(random.within(1, 1000)),
        greedy: false,
        bytes: Some(bytes),
        pause_per_mille: pick(random, &[0, 0, 100]),
        pause_for: Duration::from_micros(random.within(10, 50_000)),
    }
}

fn random_link(random: &mut Random) -> Link {
    let bad = random.chance(800);
    let mut up_to = |most: u64| if bad { random.below(most) } else { 0 };
    let lose_per_mille = up_to(200);
    let duplicate_per_mille = up_to(100);
    let delay_per_mille = up_to(300);
    let refuse_per_mille = up_to(30);
    let split_per_mille = up_to(500);
    Link {
        lose_per_mille,
        duplicate_per_mille,
        delay_per_mille,
        refuse_per_mille,
        split_per_mille,
        jitter: Duration::from_micros(pick(random, &[50, 1000, 20_000, 300_000])),
        delay: Duration::from_micros(pick(random, &[5, 100, 1000, 40_000])),
        hold: Duration::from_micros(pick(random, &[0, 20, 1000, 400_000])),
        spacing: Duration::from_nanos(pick(random, &[100, 1000, 12_000])),
        mtu: pick(random, &[usize::MAX, usize::MAX, usize::MAX, 1400, 600]),
        icmp_per_mille: pick(random, &[1000, 500, 0]),
    }
}

#[test]
fn octets_are_read_in_the_order_in_which_they_were_written() {
    for seed in seeds() {
        let _named = Named(seed);
        let mut random = Random::new(seed ^ 0xb17e);
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

/// Small writes that are pushed one by one go in few segments while the network is slower than
/// they come (RFC 9293 section 3.7.4).
#[test]
fn small_writes_over_a_slow_network_become_few_segments() {
    let segments = |nodelay| {
        let writer = Plan {
            octets: 1000,
            bytes: Some(BytePlan {
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
        let reader = Plan {
            octets: 0,
            close_after_peer: true,
            ..writer.clone()
        };
        let config = Config::default();
        let ends = [
            Endpoint::new(0, config.clone(), writer),
            Endpoint::new(1, config, reader),
        ];
        let link = Link {
            delay: Duration::from_millis(25),
            ..Link::default()
        };
        let mut network = Network::new(ends, link, 1);
        network.open();
        network.run(Duration::from_secs(100));
        network.assert_complete();
        network.ends[0].last_info.unwrap().counters.segments_out
    };
    assert!(segments(true) > 900);
    // An octet each millisecond, a segment each round trip of 50 ms and a delayed acknowledgment.
    let coalesced = segments(false);
    assert!((15..30).contains(&coalesced), "{coalesced}");
}
