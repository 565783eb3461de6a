//! What a shard does while there is nothing to do, and that it does its work all the same.

use std::fs;
use std::time::Duration;

use rnic_tests::daemon::{Daemon, DaemonOptions};
use rnic_tests::lab::{Family, LinkOptions};
use rnic_tests::pair::Pair;
use rnic_tests::{tool, wait};

const PORT: u16 = 18515;
/// How long the shard is watched at a time.
const WATCHED: Duration = Duration::from_secs(1);

/// How long the daemon's shard has been on a core: the first number of its `schedstat`, nanoseconds.
fn time_on_core(daemon: &Daemon) -> Duration {
    let tasks = fs::read_dir(format!("/proc/{}/task", daemon.id())).expect("the daemon runs");
    let task = tasks
        .map(|task| task.expect("it can be read").path())
        .find(|task| fs::read_to_string(task.join("comm")).is_ok_and(|name| name == "rnic-shard\n"))
        .expect("the daemon has a shard");
    let statistics = fs::read_to_string(task.join("schedstat")).expect("it is there");
    let nanoseconds = statistics.split_whitespace().next().map(str::parse);
    Duration::from_nanos(nanoseconds.and_then(Result::ok).expect("a number"))
}

/// How long the shard is on a core while nobody wants anything of it for a second.
fn idle(daemon: &Daemon) -> Duration {
    let before = time_on_core(daemon);
    std::thread::sleep(WATCHED);
    time_on_core(daemon) - before
}

/// Two daemons that poll in this way, after they have moved some messages.
fn pair(polling: &str) -> Pair {
    let daemons = DaemonOptions {
        arguments: vec!["--polling".to_owned(), polling.to_owned()],
        ..DaemonOptions::default()
    };
    let pair = Pair::with(polling, &LinkOptions::default(), &daemons);
    let at = pair.b.address(Family::V4, PORT);
    let _server = tool::server(&pair.daemon_b, "rnic-perf", at, &[]);
    for op in ["write", "send", "read"] {
        let arguments = [
            "--op",
            op,
            "--size",
            "5000",
            "--iterations",
            "100",
            "--verify",
        ];
        let client = tool::client(&pair.daemon_a, "rnic-perf", at, &arguments);
        let _ = client.spawn().finish(Duration::from_secs(60)).success();
    }
    pair
}

#[test]
fn a_shard_that_spins_never_sleeps() {
    let pair = pair("spin");
    // The other shard and other tests want the same cores.
    assert!(idle(&pair.daemon_a) > WATCHED / 50);
    assert!(idle(&pair.daemon_b) > WATCHED / 50);
}

#[test]
fn an_idle_shard_that_adapts_or_waits_for_events_takes_no_core() {
    for polling in ["adaptive", "event"] {
        let pair = pair(polling);
        for daemon in [&pair.daemon_a, &pair.daemon_b] {
            // The connections of before are still to be forgotten.
            wait::until("an idle second", Duration::from_secs(60), || {
                (idle(daemon) < WATCHED / 100).then_some(())
            });
        }
    }
}
