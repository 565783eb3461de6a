//! Peers that keep to no rule. Their streams end. The memory that no STag gave them is as it was. A neighbour's bytes
//! are right all along. And the daemon holds afterwards what it held before.
//!
//! They are threads of the test with kernel sockets in the other host's namespace. `RNIC_TEST_MINUTES`
//! says for how long; `RNIC_TEST_FIRST_SEED` makes the same choices again.

#![allow(clippy::unwrap_used)]

mod life;
mod program;

use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rnic_tests::daemon::Daemon;
use rnic_tests::lab::{Family, INTERFACE};
use rnic_tests::pair::Pair;
use rnic_tests::pattern::Pattern;
use rnic_tests::tool;

/// Where the neighbour's server listens.
const PORT: u16 = 18515;
/// Where the program listens that hostile peers connect to.
const TARGET: u16 = 20_000;
/// Without `RNIC_TEST_MINUTES`.
const SHORT: Duration = Duration::from_secs(10);
/// How soon the daemon must have cleared away what they left.
const SOON: Duration = Duration::from_secs(60);
/// Hostile peers at a time, and threads of the program that takes them.
const AT_ONCE: u64 = 8;
/// Addresses that they come from: an address whose streams end by invalid STags may have to wait.
const ADDRESSES: u8 = 40;

/// What hostile peers and the program tell of themselves.
#[derive(Debug, Default)]
pub struct Told {
    /// Connections that were tried.
    pub lives: AtomicU64,
    /// Connections that came about.
    pub connected: AtomicU64,
    /// FPDUs that were sent.
    pub fpdus: AtomicU64,
    /// Streams that began.
    pub accepted: AtomicU64,
    /// Requests that the program could not accept any more.
    pub refused: AtomicU64,
    /// Streams that the daemon ended with a Terminate.
    pub terminates: AtomicU64,
}

fn duration() -> Duration {
    match std::env::var("RNIC_TEST_MINUTES") {
        Ok(minutes) => Duration::from_secs(60 * minutes.parse::<u64>().expect("whole minutes")),
        Err(_) => SHORT,
    }
}

fn address(number: u8) -> IpAddr {
    Ipv4Addr::new(198, 18, 1, 100 + number).into()
}

/// What the daemon holds of clients and connections. Those in TIME-WAIT keep their place and a
/// descriptor for a while; that is theirs.
fn held(daemon: &Daemon) -> [u64; 4] {
    let levels = ["device_clients", "queue_pairs", "regions"].map(|name| daemon.counter(name));
    let connections = daemon.counter("connections");
    let files = (daemon.open_files() as u64).saturating_sub(connections);
    [levels[0], levels[1], levels[2], files]
}

#[test]
fn peers_that_keep_to_no_rule_reach_nothing_and_nobody() {
    let mut pair = Pair::new("hostile-peer");
    for number in 0..ADDRESSES {
        let address = format!("{}/24", address(number));
        let namespace = &pair.a.namespace;
        let _ = namespace.ip(&["addr", "add", &address, "dev", INTERFACE]);
    }
    let seed = match std::env::var("RNIC_TEST_FIRST_SEED") {
        Ok(seed) => seed.parse().expect("a number"),
        Err(_) => u64::from(std::process::id()),
    };
    println!("RNIC_TEST_FIRST_SEED={seed} makes the same choices again");
    let at = pair.b.address(Family::V4, PORT);
    let target = pair.b.address(Family::V4, TARGET);
    let _server = tool::server(&pair.daemon_b, "rnic-perf", at, &[]);
    let before = held(&pair.daemon_b);
    let (over, told) = (AtomicBool::new(false), Told::default());

    let mut transfers = 0;
    let program = program::Program::new(&pair.daemon_b, target);
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            let (program, over, told) = (&program, &over, &told);
            scope.spawn(move || program.serve(over, told));
        }
        let ending = program::Ending(&over);
        for thread in 0..AT_ONCE {
            let (over, told, namespace) = (&over, &told, &pair.a.namespace);
            scope.spawn(move || {
                namespace.in_thread(|| {
                    let mut random = Pattern::new(seed.wrapping_mul(1000) + thread);
                    while !over.load(Ordering::Relaxed) {
                        let from = address((random.next_u64() % u64::from(ADDRESSES)) as u8);
                        life::live(&mut random, from, target, told);
                        told.lives.fetch_add(1, Ordering::Relaxed);
                    }
                });
            });
        }
        let end = Instant::now() + duration();
        while Instant::now() < end {
            let op = ["write", "send", "read"][transfers % 3];
            let length = ["--size", "20000", "--depth", "8", "--iterations", "200"];
            let client = tool::client(&pair.daemon_a, "rnic-perf", at, &["--op", op, "--verify"]);
            let report = tool::report(&client.args(length).run().success());
            assert_eq!(report["verified_bytes"], 200 * 20_000);
            transfers += 1;
            pair.daemon_b.assert_alive();
        }
        drop(ending);
    });
    drop(program);
    println!("{transfers} transfers of a neighbour's verified; {told:?}");
    // They came as far as they should.
    assert!(transfers > 0);
    for (what, number) in [
        ("connections", &told.connected),
        ("streams", &told.accepted),
        ("FPDUs", &told.fpdus),
        ("Terminates", &told.terminates),
    ] {
        assert!(number.load(Ordering::Relaxed) > 10, "of {what}: {told:?}");
    }
    let deadline = Instant::now() + SOON;
    loop {
        let now = held(&pair.daemon_b);
        if now.iter().zip(before).all(|(now, before)| *now <= before) {
            break;
        }
        assert!(
            Instant::now() < deadline,
            "it was {before:?} and stays {now:?}"
        );
        std::thread::sleep(Duration::from_millis(200));
    }
    let log = pair.daemon_b.log();
    assert!(!log.contains("panicked"), "{log}");
}
