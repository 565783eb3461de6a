//! A program that keeps to no rule runs beside one that does: what is shared is scribbled over,
//! resized, closed, inherited and raced for, and the neighbour's bytes are right all along.

use std::time::Duration;

use rnic_tests::daemon::{Daemon, DaemonOptions};
use rnic_tests::lab::{Family, LinkOptions, Process};
use rnic_tests::pair::Pair;
use rnic_tests::user::open_to_all;
use rnic_tests::{binary, tool, wait};

const PORT: u16 = 18515;
/// From here on the attackers listen.
const HOSTILE_PORT: u16 = 20_000;
/// Without `RNIC_TEST_MINUTES`.
const SHORT: Duration = Duration::from_secs(15);
/// How soon the daemons must have cleared away what the attackers left.
const SOON: Duration = Duration::from_secs(60);
/// Looks at what a process has, one of which is to see nothing that is on its way out.
const LOOKS: usize = 20;
/// Mappings by which the heap of a process with many threads may grow.
const HEAP_MAPPINGS: usize = 64;

fn duration() -> Duration {
    match std::env::var("RNIC_TEST_MINUTES") {
        Ok(minutes) => Duration::from_secs(60 * minutes.parse::<u64>().expect("whole minutes")),
        Err(_) => SHORT,
    }
}

/// What is in use of a daemon, of its tables and of its process.
#[derive(Debug)]
struct Levels {
    held: [u64; 3],
    /// Those in TIME-WAIT too, each of which keeps its port and so a descriptor.
    connections: usize,
    frames_free: u64,
    files: usize,
    mappings: usize,
    threads: usize,
}

impl Levels {
    fn of(daemon: &Daemon) -> Self {
        let held = ["device_clients", "queue_pairs", "regions"];
        Self {
            held: held.map(|name| daemon.counter(name)),
            connections: daemon.counter("connections") as usize,
            frames_free: daemon.counter("frames_free"),
            files: least(|| daemon.open_files()),
            mappings: least(|| daemon.mappings()),
            threads: least(|| daemon.threads()),
        }
    }

    /// Nothing more is held than before. The heap may have come by a few mappings of its own.
    fn is_back_at(&self, before: &Self) -> bool {
        self.held
            .iter()
            .zip(before.held)
            .all(|(now, then)| *now <= then)
            && self.frames_free >= before.frames_free
            && self.files <= before.files + self.connections
            && self.mappings <= before.mappings + HEAP_MAPPINGS
            && self.threads <= before.threads
    }
}

/// The least of some looks: who has just asked for counters has a thread and descriptors in the daemon for
/// some milliseconds more.
fn least(look: impl Fn() -> usize) -> usize {
    let looks = (0..LOOKS).map(|_| {
        std::thread::sleep(Duration::from_millis(2));
        look()
    });
    looks.min().unwrap_or(0)
}

fn attackers(pair: &Pair, seed: u64) -> Process {
    let address = pair.b.address(Family::V4, HOSTILE_PORT).to_string();
    pair.b
        .namespace
        .command(binary::path("hostile-client"))
        .arg("--socket")
        .arg(pair.daemon_b.socket())
        .arg("--other")
        .arg(pair.daemon_a.socket())
        .args(["--address", &address, "--seed", &seed.to_string()])
        .args(["--seconds", &duration().as_secs().to_string()])
        .spawn()
}

#[test]
fn a_neighbour_of_hostile_programs_has_all_its_bytes_right() {
    // Memory in no memfd is allowed, so that the attackers come that far.
    let directory = tempfile::tempdir().expect("a directory");
    let config = directory.path().join("rnicd.toml");
    let allowing = "[limits.client]\nremote_regions = 64\n[limits.user]\nremote_regions = 64\n";
    std::fs::write(&config, allowing).expect("the directory is ours");
    let daemon = DaemonOptions {
        arguments: vec!["--config".to_owned(), config.display().to_string()],
        ..DaemonOptions::default()
    };
    let mut pair = Pair::with("hostile", &LinkOptions::default(), &daemon);
    open_to_all(&pair.daemon_a);
    open_to_all(&pair.daemon_b);
    let at = pair.b.address(Family::V4, PORT);
    let _server = tool::server(&pair.daemon_b, "rnic-perf", at, &[]);
    let seed = match std::env::var("RNIC_TEST_FIRST_SEED") {
        Ok(seed) => seed.parse().expect("a number"),
        Err(_) => u64::from(std::process::id()),
    };
    println!("RNIC_TEST_FIRST_SEED={seed} makes the same choices again");
    let before = [Levels::of(&pair.daemon_a), Levels::of(&pair.daemon_b)];

    let mut attackers = attackers(&pair, seed);
    let (mut transfers, mut bytes, mut remote) = (0, 0, 0);
    while attackers.running() || transfers < 3 {
        let op = ["write", "send", "read"][transfers % 3];
        let length = ["--size", "20000", "--depth", "8", "--iterations", "200"];
        let client = tool::client(&pair.daemon_a, "rnic-perf", at, &["--op", op, "--verify"]);
        let report = tool::report(&client.args(length).run().success());
        bytes += report["verified_bytes"].as_u64().expect("a number");
        transfers += 1;
        remote += pair.daemon_b.counter("held_remote_regions");
        pair.daemon_a.assert_alive();
        pair.daemon_b.assert_alive();
    }
    assert_eq!(bytes, transfers as u64 * 200 * 20_000);
    let ended = attackers.finish(SOON).success();
    println!(
        "{transfers} transfers of a neighbour's verified; {}",
        ended.stdout
    );
    // The attackers came as far as they should: into connections, to memory in no memfd, and to faults
    // of their rings.
    assert!(remote > 0, "none of them had a remote region");
    let all = rnic::Daemon::at(pair.daemon_b.socket())
        .and_then(|it| it.open(None))
        .and_then(|context| context.counters());
    println!("{:?}", all.expect("the daemon tells its counters"));
    assert!(pair.daemon_b.counter("client_faults") > 0);
    assert!(pair.daemon_b.counter("established") > 2 * transfers as u64);

    let mut levels = before.each_ref().map(|_| None);
    let deadline = std::time::Instant::now() + SOON;
    loop {
        for (level, daemon) in levels.iter_mut().zip([&pair.daemon_a, &pair.daemon_b]) {
            *level = Some(Levels::of(daemon));
        }
        let mut both = levels.iter().flatten().zip(&before);
        if both.all(|(now, then)| now.is_back_at(then)) {
            break;
        }
        let late = std::time::Instant::now() >= deadline;
        assert!(!late, "it was {before:?} and stays {levels:?}");
        std::thread::sleep(Duration::from_millis(200));
    }
    for daemon in [&pair.daemon_a, &pair.daemon_b] {
        let log = daemon.log();
        assert!(!log.contains("panicked"), "{log}");
    }
    wait::until("everything still works", SOON, || {
        let client = tool::client(
            &pair.daemon_a,
            "rnic-perf",
            at,
            &["--op", "write", "--verify"],
        );
        let done = client.args(["--iterations", "10"]).run();
        done.status.success().then_some(())
    });
}
