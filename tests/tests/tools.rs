//! The tools as programs among others: their reader goes away, their runs are long.

use std::process::{Command, Stdio};

use rnic_tests::lab::Family;
use rnic_tests::pair::Pair;
use rnic_tests::{binary, tool};

const PORT: u16 = 18515;
/// What a shell shows for a program that SIGPIPE has ended.
const BROKEN_PIPE: i32 = 128 + 13;

/// That a tool whose standard output nobody reads ends as Unix tools do.
#[track_caller]
fn ends_quietly(command: &mut Command) {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let command = command.stdin(Stdio::null()).stdout(writer);
    let ended = command.output().expect("the tool runs");
    let told = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(BROKEN_PIPE), "{told}");
    assert_eq!(told, "");
}

#[test]
fn a_tool_whose_reader_is_gone_ends_quietly() {
    let check = ["--left", "l", "--right", "r", "--check"];
    ends_quietly(Command::new(binary::path("linksim")).args(check));
    let pair = Pair::new("closed-pipe");
    for arguments in [
        &["device"][..],
        &["connections"],
        &["counters"],
        &["counters", "--watch", "0.1"],
        &["counters", "--json"],
    ] {
        let mut rnicctl = Command::new(binary::path("rnicctl"));
        rnicctl.arg("--socket").arg(pair.daemon_a.socket());
        ends_quietly(rnicctl.args(arguments));
    }
}

#[test]
fn a_run_may_last_longer_than_nothing_may_happen() {
    let pair = Pair::new("long-run");
    let at = pair.b.address(Family::V4, PORT);
    let _server = tool::server(&pair.daemon_b, "rnic-perf", at, &["--timeout", "1"]);
    for plan in [
        &["--op", "write"][..],
        &["--op", "read"],
        &["--op", "read", "--latency"],
    ] {
        let client = tool::client(&pair.daemon_a, "rnic-perf", at, plan);
        let client = client.args(["--size", "1000", "--duration", "3"]);
        let report = tool::report(&client.run().success());
        assert!(report.is_object(), "{report}");
    }
}
