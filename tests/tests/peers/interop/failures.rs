//! An end that goes away in mid-transfer: in order, by a killed process or daemon, or silently.

use std::time::Duration;

use rnic_tests::cases::Cases;
use rnic_tests::daemon::DaemonOptions;
use rnic_tests::interop::Interop;
use rnic_tests::lab::{Family, Process, Wiring};
use rnic_tests::peer::{Job, Peer, PeerOptions};
use rnic_tests::{tool, wait};

/// How long the RNIC waits for a peer that owes an answer, and for one that does not: 4 s and 5 s.
const LIMITS: [&str; 8] = [
    "--user-timeout",
    "4000",
    "--keepalive-idle",
    "2",
    "--keepalive-interval",
    "1",
    "--keepalive-probes",
    "3",
];
/// Longer: what ends a wait is the RNIC, and no tool.
const PATIENCE: &str = "120s";
/// How soon they must have said so, on cores that others use too.
const NOTICE: Duration = Duration::from_secs(30);
/// Bytes of each rping's buffer, and what has to pass before a transfer is well under way.
const SIZE: &str = "65000";
const UNDER_WAY: u64 = 1_000_000;

/// Our end of a transfer that ends only by a failure: rping is the other.
fn endless(stand: &Interop, port: u16, we_connect: bool) -> (Process, Job) {
    let more = ["--timeout", PATIENCE];
    under_way(stand, || {
        if we_connect {
            let at = stand.peer.address(Family::V4, port);
            let server = format!("rping -s -a {} -p {port} -S {SIZE}", at.ip());
            let theirs = stand.peer.listen(port, &server);
            let forever = ["--size", SIZE, "--count", "1000000000"];
            let more = [&more[..], &forever].concat();
            (
                tool::client(&stand.daemon, "rnic-ping", at, &more).spawn(),
                theirs,
            )
        } else {
            let at = stand.host.address(Family::V4, port);
            let ours = tool::server(&stand.daemon, "rnic-ping", at, &more);
            let client = format!("rping -c -a {} -p {port} -S {SIZE}", at.ip());
            (ours, stand.peer.start(&client))
        }
    })
}

/// Which way the bytes of a long transfer go.
#[derive(Clone, Copy, Debug)]
enum From {
    Siw,
    Us,
}

/// One end sends without a pause; who connects decides by what: it Writes, or Reads.
fn one_way(stand: &Interop, port: u16, we_connect: bool, from: From) -> (Process, Job) {
    let op = match (from, we_connect) {
        (From::Us, true) | (From::Siw, false) => "write",
        (From::Siw, true) | (From::Us, false) => "read",
    };
    let timeout = ["--timeout", PATIENCE];
    under_way(stand, || {
        if we_connect {
            let at = stand.peer.address(Family::V4, port);
            let server = format!("siw-verbs server {} {port}", at.ip());
            let theirs = stand.peer.listen(port, &server);
            let more = format!("--op {op} --size 65536 --depth 8 --duration 600");
            let more: Vec<_> = more.split(' ').chain(timeout).collect();
            let ours = tool::client(&stand.daemon, "rnic-perf", at, &more).spawn();
            (ours, theirs)
        } else {
            let at = stand.host.address(Family::V4, port);
            let ours = tool::server(
                &stand.daemon,
                "rnic-perf",
                at,
                &[&timeout[..], &["--once"]].concat(),
            );
            // Many seconds when the machine is emulated.
            let client = format!("siw-verbs client {} {port} {op} 65536 8 1000", at.ip());
            (ours, stand.peer.start(&client))
        }
    })
}

/// Both ends of a transfer, once they are connected and bytes move.
fn under_way(stand: &Interop, begin: impl FnOnce() -> (Process, Job)) -> (Process, Job) {
    let count = |name: &str| stand.daemon.counter(name);
    let moved = || count("tcp_bytes_in") + count("tcp_bytes_out");
    let before = count("established");
    let ends = begin();
    wait::until("both ends are connected", NOTICE, || {
        (count("established") > before).then_some(())
    });
    let before = moved();
    wait::until("a transfer is under way", NOTICE, || {
        (moved() > before + UNDER_WAY).then_some(())
    });
    ends
}

/// Panics unless connections come about in both directions, and carry bytes.
fn the_next_work(stand: &Interop, port: u16) {
    for (port, we_connect) in [(port, true), (port + 1, false)] {
        let _ = endless(stand, port, we_connect);
    }
    nothing_is_left(stand);
}

/// Panics unless the RNIC is soon as if nobody had ever connected, but for the end that closed first.
fn nothing_is_left(stand: &Interop) {
    wait::until("the RNIC has no queue pairs", NOTICE, || {
        (stand.daemon.counter("queue_pairs") == 0).then_some(())
    });
    wait::until("no connection lives", NOTICE, || {
        (stand.daemon.live_connections() == 0).then_some(())
    });
}

#[test]
fn an_end_that_is_killed_or_loses_its_power_is_noticed_in_time() {
    let options = DaemonOptions {
        mode: Some("native"),
        arguments: LIMITS.map(String::from).to_vec(),
        ..DaemonOptions::default()
    };
    let peer = PeerOptions::default();
    let mut stand = Interop::with("failures", Wiring::Bridged, &options, &peer);
    let mut cases = Cases::new("an end that goes away in mid-transfer");
    programs_are_killed(&stand, &mut cases);
    for (port, we_connect) in [(7110, true), (7111, false)] {
        let who = if we_connect { "we" } else { "siw" };
        cases.run(format!("our daemon is killed, {who} connected"), || {
            our_daemon_is_killed(&mut stand, port, we_connect);
        });
    }
    cases.run("the next connections work with another daemon", || {
        the_next_work(&stand, 7112);
    });
    cases.run("the machine loses its power and comes up again", || {
        the_machine_starts_anew(&mut stand, 7120);
    });
    cases.finish();
}

fn programs_are_killed(stand: &Interop, cases: &mut Cases) {
    cases.run("rping's server is killed", || {
        let (ours, theirs) = endless(stand, 7100, true);
        theirs.kill();
        let error = ours.finish(NOTICE).failure();
        assert!(error.contains("connection"), "no reason in: {error}");
        nothing_is_left(stand);
    });
    cases.run("rping's client is killed", || {
        let (ours, theirs) = endless(stand, 7101, false);
        theirs.kill();
        // Between two rounds that is how any run ends.
        let ours = ours.finish(NOTICE);
        assert!(
            ours.status.success() || ours.stderr.contains("connection"),
            "{ours}"
        );
        nothing_is_left(stand);
    });
    cases.run("our client is killed", || {
        let (mut ours, theirs) = endless(stand, 7102, true);
        ours.kill();
        // It may wait for its own work behind that, and never end.
        wait::until("rping is told of the disconnection", NOTICE, || {
            theirs.stderr().contains("DISCONNECT EVENT").then_some(())
        });
        nothing_is_left(stand);
    });
    cases.run("the next connections work", || the_next_work(stand, 7103));
}

/// The host's kernel answers what siw sends to a daemon that is gone with a reset.
fn our_daemon_is_killed(stand: &mut Interop, port: u16, we_connect: bool) {
    let (ours, theirs) = one_way(stand, port, we_connect, From::Siw);
    stand.kill_daemon();
    wait::until("siw's application is told", NOTICE, || {
        theirs.stderr().contains("work request").then_some(())
    });
    let error = ours.finish(NOTICE).failure();
    assert!(error.contains("daemon"), "no reason in: {error}");
    stand.start_daemon();
}

/// Transfers of each role and direction, of which siw has no end any more: nobody was told.
fn the_machine_starts_anew(stand: &mut Interop, port: u16) {
    let transfers = [
        endless(stand, port, true),
        endless(stand, port + 1, false),
        one_way(stand, port + 2, true, From::Us),
        one_way(stand, port + 3, false, From::Siw),
    ];
    stand.peer.kill();
    for (ours, _) in transfers {
        let error = ours.finish(NOTICE).failure();
        eprintln!("  {}", error.trim_end());
        assert!(error.contains("silent for"), "{error}");
    }
    nothing_is_left(stand);
    stand.peer = Peer::boot(&stand.lab, &stand.outlet, &PeerOptions::default());
    the_next_work(stand, port + 4);
}
