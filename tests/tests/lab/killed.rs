//! Clients and daemons that are killed in the middle of a transfer take nobody else along.

use std::time::Duration;

use rnic_tests::daemon::{Daemon, DaemonOptions, assert_nothing_attached};
use rnic_tests::lab::{Family, INTERFACE, LinkOptions, Process, Signal};
use rnic_tests::pair::Pair;
use rnic_tests::tool;

const PORT: u16 = 18515;
/// How soon whoever depended on a killed program must know.
const NOTICE: Duration = Duration::from_secs(30);

/// A transfer without an end, well under way.
fn endless(pair: &Pair, port: u16, op: &str) -> Process {
    let at = pair.b.address(Family::V4, port);
    let more = [
        "--op",
        op,
        "--size",
        "65536",
        "--depth",
        "8",
        "--duration",
        "600",
    ];
    let mut client = tool::client(&pair.daemon_a, "rnic-perf", at, &more).spawn();
    std::thread::sleep(Duration::from_millis(1500));
    assert!(
        client.running(),
        "the transfer did not last: {}",
        client.stderr()
    );
    client
}

/// A short verified transfer of each kind.
#[track_caller]
fn transfers_work(pair: &Pair, port: u16) {
    let at = pair.b.address(Family::V4, port);
    let _server = tool::server(&pair.daemon_b, "rnic-perf", at, &[]);
    for op in ["write", "send", "read"] {
        let more = [
            "--op",
            op,
            "--size",
            "20000",
            "--depth",
            "4",
            "--iterations",
            "20",
            "--verify",
        ];
        let _ = tool::client(&pair.daemon_a, "rnic-perf", at, &more)
            .run()
            .success();
    }
}

#[test]
fn a_client_killed_in_mid_transfer_harms_nobody_else() {
    let mut pair = Pair::new("client-killed");
    for (port, op) in [(PORT, "write"), (PORT + 1, "send"), (PORT + 2, "read")] {
        let at = pair.b.address(Family::V4, port);
        let _server = tool::server(&pair.daemon_b, "rnic-perf", at, &[]);
        let mut victim = endless(&pair, port, op);
        let mut bystander = endless(&pair, port, op);
        victim.kill();
        std::thread::sleep(Duration::from_millis(500));
        assert!(bystander.running(), "{op}: the bystander's transfer ended");
        pair.daemon_a.assert_alive();
        pair.daemon_b.assert_alive();
        transfers_work(&pair, port + 100);
    }
}

#[test]
fn a_server_killed_in_mid_transfer_ends_its_peers_transfer_with_an_error() {
    let mut pair = Pair::new("server-killed");
    for (port, op) in [(PORT, "write"), (PORT + 1, "send"), (PORT + 2, "read")] {
        let at = pair.b.address(Family::V4, port);
        let mut server = tool::server(&pair.daemon_b, "rnic-perf", at, &[]);
        let client = endless(&pair, port, op);
        server.kill();
        let error = client.finish(NOTICE).failure();
        assert!(
            error.to_lowercase().contains("connection"),
            "{op}: no reason in:\n{error}"
        );
        pair.daemon_a.assert_alive();
        pair.daemon_b.assert_alive();
        transfers_work(&pair, port + 100);
    }
}

#[test]
fn a_daemon_killed_in_mid_transfer_is_named_and_its_successor_serves() {
    let mut pair = Pair::new("daemon-killed");
    let at = pair.b.address(Family::V4, PORT);
    let _server = tool::server(&pair.daemon_b, "rnic-perf", at, &[]);
    let client = endless(&pair, PORT, "write");
    pair.daemon_a.kill();
    let error = client.finish(NOTICE).failure();
    assert!(
        error.contains("daemon"),
        "the error does not name the daemon:\n{error}"
    );
    assert_nothing_attached(&pair.a.namespace, INTERFACE);

    pair.daemon_a = Daemon::start(&pair.lab, &pair.a, &DaemonOptions::default());
    transfers_work(&pair, PORT + 100);
}

/// A host that stops, or to which the way is cut, sends no RST: nothing comes any more.
#[test]
fn a_peer_that_vanishes_in_mid_transfer_is_given_up_after_the_user_timeout() {
    let options = DaemonOptions {
        arguments: ["--user-timeout", "2000"].map(str::to_owned).to_vec(),
        ..DaemonOptions::default()
    };
    let mut pair = Pair::with("vanished", &LinkOptions::default(), &options);
    for (port, op) in [(PORT, "write"), (PORT + 1, "read")] {
        let at = pair.b.address(Family::V4, port);
        let _server = tool::server(&pair.daemon_b, "rnic-perf", at, &[]);
        let client = endless(&pair, port, op);
        pair.daemon_b.signal(Signal::STOP);
        // Well before the 100 s that hold when nobody says otherwise.
        let error = client.finish(NOTICE).failure();
        for words in [&*at.to_string(), "silent for 2s (user_timeout)"] {
            assert!(error.contains(words), "{op}: no {words:?} in:\n{error}");
        }
        pair.daemon_b.signal(Signal::CONT);
        transfers_work(&pair, port + 100);
    }
}

#[test]
fn a_daemon_killed_under_a_server_is_noticed_by_the_peer() {
    let mut pair = Pair::new("peer-daemon-killed");
    let at = pair.b.address(Family::V4, PORT);
    let server = tool::server(&pair.daemon_b, "rnic-perf", at, &[]);
    let client = endless(&pair, PORT, "write");
    pair.daemon_b.kill();
    let _ = server.finish(NOTICE).failure();
    assert_nothing_attached(&pair.b.namespace, INTERFACE);
    // The port went back to the kernel, which answers what still comes with RST.
    let error = client.finish(NOTICE).failure();
    assert!(
        error.to_lowercase().contains("connection"),
        "no reason in:\n{error}"
    );
    pair.daemon_b = Daemon::start(&pair.lab, &pair.b, &DaemonOptions::default());
    transfers_work(&pair, PORT + 100);
}
