//! Debian's programs that connect queue pairs by `ibv_modify_qp`, unmodified, between two daemons.

use std::time::Duration;

use rnic_tests::daemon::{Daemon, DaemonOptions};
use rnic_tests::lab::{INTERFACE, Lab, LinkOptions};
use rnic_tests::linksim::Linksim;
use rnic_tests::pair::Pair;
use rnic_tests::programs::Programs;

use super::verbs_semantics::{C, built};

/// perftest's programs, without `-R`.
const PERFTEST: [&str; 9] = [
    "ib_write_bw -n 200",
    "ib_write_bw -n 10 -a",
    "ib_write_bw -n 100 -q 4 -b",
    "ib_read_bw -n 200 -q 8",
    "ib_write_lat -n 100 -I 64",
    "ib_read_lat -n 100 -e",
    "ib_send_lat -n 100 -s 8192",
    "ib_atomic_bw -n 100",
    "ib_atomic_lat -n 100 -A CMP_AND_SWAP",
];

/// Those that end with this line, on an RNIC and without `-R`: they keep a region for credits, which Debian's perftest
/// (4.5) deregisters only with `-R`.
const PERFTEST_SEND: [&str; 3] = [
    "ib_send_bw -n 200",
    "ib_send_bw -n 200 -e -Q 1 -s 4096",
    "ib_send_bw -n 200 -r 16 --use-srq",
];
const LEFT_OVER: &str =
    "Failed to deallocate PD - Device or resource busy\nCouldn't destroy all SEND resources\n";

#[test]
fn perftest_measures_over_queue_pairs_joined_by_number() {
    let programs = Programs::new("number-perftest");
    for program in PERFTEST {
        let line = format!("{program} -F -d rnic_{INTERFACE}");
        let both = programs.run_by_number(&line, &programs.address()).success();
        assert!(both.client.stdout.contains("#bytes"), "{}", both.client);
    }
    for program in PERFTEST_SEND {
        let line = format!("{program} -F -d rnic_{INTERFACE}");
        let both = programs.run_by_number(&line, &programs.address());
        // The row of results.
        assert!(both.client.stdout.contains(" 200  "), "{}", both.client);
        assert_eq!(both.client.stderr, LEFT_OVER, "{}", both.client);
    }
    for program in ["ib_write_bw -n 200", "ib_send_lat -n 100"] {
        let line = format!("{program} -F -d rnic_{INTERFACE} --ipv6");
        let both = programs.run_by_number(&line, &programs.address()).success();
        let gid = both.client.stdout.contains(" GID: 32:01:13:184");
        assert!(gid, "{}", both.client);
    }
}

#[test]
fn ping_pongs_find_their_peers_by_number() {
    let programs = Programs::new("number-pingpong");
    for program in [
        "ibv_rc_pingpong -g 0 -c",
        "ibv_rc_pingpong -g 0 -c -e",
        "ibv_rc_pingpong -g 0 -n 20000 -r 1",
        "ibv_rc_pingpong -g 0 -c -N",
        "ibv_rc_pingpong -g 0 -c -s 4000000 -n 20",
        "ibv_rc_pingpong -g 1 -c",
        "ibv_srq_pingpong -g 0 -q 16",
    ] {
        let line = format!("{program} -d rnic_{INTERFACE}");
        let both = programs.run_by_number(&line, &programs.address()).success();
        assert!(both.client.stdout.contains("usec/iter"), "{}", both.client);
    }
    let line = format!("ibv_rc_pingpong -d rnic_{INTERFACE}");
    // Whose state changes first.
    let said = programs.run_by_number(&line, &programs.address());
    let said = said.server.failure();
    assert!(said.contains("give a GID index"), "{said}");
}

/// Runs both ends of `joined.c`, of which the second is killed.
fn run_joined(programs: &Programs, rounds: u32) {
    let program = built(programs, "joined.c", C);
    let socket = programs.pair.lab.directory().join("socket");
    let (program, socket) = (program.display(), socket.display());
    let end = |role: &str| format!("env {program} {role} {socket} {rounds}");
    let b = programs.on_b(&end("b")).spawn();
    let a = programs.on_a(&end("a")).run();
    let b = b.finish(Duration::from_secs(30));
    assert!(a.status.success(), "{a}\n{b}");
    assert_eq!(b.stderr, "", "{b}");
}

#[test]
fn joined_queue_pairs_are_as_those_of_infiniband() {
    run_joined(&Programs::new("number-joined"), 1000);
}

/// A completion that came too early is seen here.
#[test]
fn joined_queue_pairs_are_as_those_of_infiniband_over_a_long_and_bad_link() {
    let mut lab = Lab::new("number-joined-far");
    let (a, middle, b) = lab.over(&LinkOptions::default());
    let options = DaemonOptions::default();
    let (daemon_a, daemon_b) = (
        Daemon::start(&lab, &a, &options),
        Daemon::start(&lab, &b, &options),
    );
    let _link = Linksim::start(&middle, &["--delay=20ms", "--loss=1%"]);
    let pair = Pair {
        daemon_a,
        daemon_b,
        a,
        b,
        lab,
    };
    run_joined(&Programs::of(pair), 30);
}
