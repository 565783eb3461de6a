//! Programs that count on InfiniBand's "receiver not ready": their Sends come before the receives for them. With
//! `RNIC_RECEIVE_WAIT`, or the daemon's `receive_wait`, such a Send waits, and they run as they are.

use std::time::Duration;

use rnic_tests::daemon::{Daemon, DaemonOptions};
use rnic_tests::programs::Programs;

/// How long a program may take to end once its peer has.
const NOTICE: Duration = Duration::from_secs(30);

/// Rounds of measurements at most.
const ROUNDS: usize = 5;

/// The environment that has Sends wait.
const WAIT: &str = "env RNIC_RECEIVE_WAIT=forever";

/// fio's server has two receives posted, and posts them again when it gets to it; its client has eight Sends under way.
#[test]
fn fio_sends_more_than_its_server_has_receives_for() {
    let programs = Programs::new("wait-fio");
    let common = "--ioengine=rdma --port=18600 --bs=64k --size=64m";
    let server = format!("{WAIT} fio --name=server {common} --iodepth=2 --rw=read");
    let client = format!(
        "{WAIT} fio --name=client {common} --iodepth=8 --rw=write --verb=send --hostname={}",
        programs.address()
    );
    let both = programs.run(&server, &client).success();
    assert!(both.client.stdout.contains("err= 0"), "{}", both.client);
    assert_eq!(programs.pair.daemon_b.counter("refused_no_receive"), 0);
    assert!(programs.pair.daemon_b.counter("holds_begun") > 0);
}

/// The same by the daemons' own setting, for programs whose environment nobody sets. An end that disconnects while its
/// peer still sends takes no Sends any more, and says so as ever. Whether a Send comes before its receive is a matter
/// of who runs first: of some rounds one has such.
#[test]
fn qperf_is_measured_to_its_end() {
    let options = DaemonOptions {
        arguments: vec!["--receive-wait".into(), "forever".into()],
        ..DaemonOptions::default()
    };
    let programs = Programs::with_each("wait-qperf", [&options, &options]);
    let holds = |daemon: &Daemon| daemon.counter("holds_begun");
    let has_waited = (0..ROUNDS).any(|_| {
        programs.run_qperf(&["rc_bw", "rc_bi_bw", "rc_lat"]);
        holds(&programs.pair.daemon_a) + holds(&programs.pair.daemon_b) > 0
    });
    assert!(has_waited, "no Send waited in {ROUNDS} rounds");
}

/// A time that is no time is an error of the program's, not a guess.
#[test]
fn a_wrong_time_is_refused() {
    let programs = Programs::new("wait-wrong");
    let at = programs.address();
    let said = programs
        .on_a(&format!(
            "env RNIC_RECEIVE_WAIT=never rping -c -C 1 -a {at}"
        ))
        .spawn()
        .finish(NOTICE)
        .failure();
    assert!(said.contains("RNIC_RECEIVE_WAIT"), "{said}");
}
