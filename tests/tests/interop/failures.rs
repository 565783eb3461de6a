//! A peer that goes away in mid-transfer: in order, by a killed process, or without a word.

use std::time::Duration;

use rnic_tests::cases::Cases;
use rnic_tests::interop::Interop;
use rnic_tests::lab::{Family, Process};
use rnic_tests::peer::Job;
use rnic_tests::{tool, wait};

/// How long our tools are told to wait while nothing happens.
const PATIENCE: &str = "5s";
/// How soon they must have said so, on cores that others use too.
const NOTICE: Duration = Duration::from_secs(30);
/// Octets of each rping's buffer, and what has to pass before a transfer is well under way.
const SIZE: &str = "65000";
const UNDER_WAY: u64 = 1_000_000;

/// Our end of a transfer that ends only by a failure: rping is the other.
fn endless(stand: &Interop, port: u16, we_connect: bool) -> (Process, Job) {
    let more = ["--timeout", PATIENCE];
    let count = |name: &str| stand.daemon.counter(name);
    let before = count("established");
    let (ours, theirs) = if we_connect {
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
    };
    wait::until("both ends are connected", NOTICE, || {
        (count("established") > before).then_some(())
    });
    let before = count("tcp_octets_in");
    wait::until("a transfer is under way", NOTICE, || {
        (count("tcp_octets_in") > before + UNDER_WAY).then_some(())
    });
    (ours, theirs)
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
fn an_rping_that_is_killed_and_a_peer_that_is_gone_are_noticed_in_time() {
    let mut stand = Interop::new("failures");
    let mut cases = Cases::new("a peer that goes away in mid-transfer");
    cases.run("rping's server is killed", || {
        let (ours, theirs) = endless(&stand, 7100, true);
        theirs.kill();
        let error = ours.finish(NOTICE).failure();
        assert!(error.contains("connection"), "no reason in: {error}");
        nothing_is_left(&stand);
    });
    cases.run("rping's client is killed", || {
        let (ours, theirs) = endless(&stand, 7101, false);
        theirs.kill();
        // Between two rounds that is how any run ends.
        let ours = ours.finish(NOTICE);
        assert!(
            ours.status.success() || ours.stderr.contains("connection"),
            "{ours}"
        );
        nothing_is_left(&stand);
    });
    cases.run("our client is killed", || {
        let (mut ours, theirs) = endless(&stand, 7102, true);
        ours.kill();
        // It may wait for its own work behind that, and never end.
        wait::until("rping is told of the disconnection", NOTICE, || {
            theirs.stderr().contains("DISCONNECT EVENT").then_some(())
        });
        nothing_is_left(&stand);
    });
    cases.run("the next connections work", || {
        for (port, we_connect) in [(7103, true), (7104, false)] {
            let _ = endless(&stand, port, we_connect);
        }
    });
    stand.peer.assert_alive();
    cases.run("the machine is gone", || {
        let both = [(7105, true), (7106, false)];
        let both = both.map(|(port, we_connect)| endless(&stand, port, we_connect));
        stand.peer.kill();
        for (ours, _) in both {
            let ours = ours.finish(NOTICE);
            let _ = ours.failure();
        }
        nothing_is_left(&stand);
    });
    cases.finish();
}
