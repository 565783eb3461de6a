//! Transfers of every kind, some of them killed, for as long as `RNIC_TEST_MINUTES` says: all that
//! end are verified, and afterwards both daemons hold what they held before.

use std::time::{Duration, Instant};

use rnic_tests::daemon::{Daemon, DaemonOptions};
use rnic_tests::lab::{Family, LinkOptions};
use rnic_tests::pair::Pair;
use rnic_tests::pattern::Pattern;
use rnic_tests::tool;

const PORT: u16 = 18515;
/// Without `RNIC_TEST_MINUTES`.
const SHORT: Duration = Duration::from_secs(10);
/// What clients and connections hold; a connection in TIME-WAIT holds none of it.
const HELD: [&str; 3] = ["device_clients", "queue_pairs", "regions"];

fn duration() -> Duration {
    match std::env::var("RNIC_TEST_MINUTES") {
        Ok(minutes) => Duration::from_secs(60 * minutes.parse::<u64>().expect("whole minutes")),
        Err(_) => SHORT,
    }
}

/// What is in use of a daemon's tables and frames.
#[derive(Debug)]
struct Levels {
    held: [u64; HELD.len()],
    /// Neither held nor in a ring. How many the fill ring has varies by a batch, and it is full at
    /// the start.
    frames_free: u64,
}

impl Levels {
    fn of(daemon: &Daemon) -> Self {
        Self {
            held: HELD.map(|name| daemon.counter(name)),
            frames_free: daemon.counter("frames_free"),
        }
    }

    fn is_back_at(&self, before: &Self) -> bool {
        self.held == before.held && self.frames_free >= before.frames_free
    }
}

#[test]
fn daemons_hold_after_a_soak_what_they_held_before() {
    soak(&mut Pair::new("soak"));
}

#[test]
fn daemons_hold_after_a_soak_of_super_packets_what_they_held_before() {
    let link = LinkOptions {
        offloads: true,
        ..LinkOptions::default()
    };
    let mode = DaemonOptions {
        mode: Some("super-packets"),
        ..DaemonOptions::default()
    };
    let mut pair = Pair::with("soak-super", &link, &mode);
    soak(&mut pair);
    for daemon in [&pair.daemon_a, &pair.daemon_b] {
        assert!(daemon.counter("port0_super_packets_sent") > 0);
        assert!(daemon.counter("port0_chains_received") > 0);
        assert_eq!(daemon.counter("port0_bad_receive_chains"), 0);
    }
}

fn soak(pair: &mut Pair) {
    let families = [(Family::V4, PORT), (Family::V6, PORT + 1)];
    let _servers = families.map(|(family, port)| {
        tool::server(
            &pair.daemon_b,
            "rnic-perf",
            pair.b.address(family, port),
            &[],
        )
    });
    let before = [Levels::of(&pair.daemon_a), Levels::of(&pair.daemon_b)];
    let seed = match std::env::var("RNIC_TEST_FIRST_SEED") {
        Ok(seed) => seed.parse().expect("a number"),
        Err(_) => std::process::id().into(),
    };
    println!("RNIC_TEST_FIRST_SEED={seed} makes the same choices again");
    let mut random = Pattern::new(seed);
    let end = Instant::now() + duration();
    let (mut verified, mut killed) = (0, 0);
    while Instant::now() < end || killed == 0 {
        let mut below = |bound: u64| random.next_u64() % bound;
        let (family, port) = families[below(2) as usize];
        let op = ["write", "send", "read"][below(3) as usize];
        let largest = 1 << (1 + below(18));
        let size = (1 + below(largest)).to_string();
        let depth = (1 + below(32)).to_string();
        let doomed = below(3) == 0;
        // A doomed one would take an hour.
        let length = if doomed {
            ["--duration", "3600"]
        } else {
            ["--iterations", "200"]
        };
        let at = pair.b.address(family, port);
        let more = [
            "--op", op, "--size", &size, "--depth", &depth, length[0], length[1],
        ];
        let client = tool::client(&pair.daemon_a, "rnic-perf", at, &more).arg("--verify");
        if doomed {
            let mut client = client.spawn();
            std::thread::sleep(Duration::from_millis(below(400)));
            client.kill();
            killed += 1;
        } else {
            let report = tool::report(&client.run().success());
            assert!(
                report["verified_bytes"]
                    .as_u64()
                    .is_some_and(|bytes| bytes > 0)
            );
            verified += 1;
        }
    }
    println!("{verified} transfers verified, {killed} killed");
    pair.daemon_a.assert_alive();
    pair.daemon_b.assert_alive();
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let after = [Levels::of(&pair.daemon_a), Levels::of(&pair.daemon_b)];
        if after
            .iter()
            .zip(&before)
            .all(|(now, then)| now.is_back_at(then))
        {
            return;
        }
        assert!(
            Instant::now() < deadline,
            "{HELD:?} were {before:?} and stay {after:?}"
        );
        std::thread::sleep(Duration::from_millis(200));
    }
}
