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

#[test]
fn a_sweep_over_sizes_verifies_each_and_draws_a_plot() {
    let pair = Pair::new("sweep");
    let at = pair.b.address(Family::V4, PORT);
    let _server = tool::server(&pair.daemon_b, "rnic-perf", at, &[]);
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("sweep.svg");
    let plot = ["--plot", file.to_str().expect("a path of letters")];
    let client = |more: &[&str]| tool::client(&pair.daemon_a, "rnic-perf", at, more);
    for (more, verified, lines) in [
        (&["--op", "write", "--verify"][..], true, 1),
        (&["--op", "send", "--verify"], true, 1),
        (&["--op", "read", "--latency"], false, 2),
    ] {
        let sizes = ["--sizes", "1..100k", "--iterations", "20"];
        let done = client(more).args(sizes).args(plot).run().success();
        let report = tool::report(&done);
        let measured = report["sizes"]
            .as_array()
            .expect("one result for each size");
        let found: Vec<_> = measured.iter().map(|it| it["size"].as_u64()).collect();
        let doubled = (0..17).map(|power| Some(1 << power));
        assert_eq!(found, doubled.chain([Some(100 << 10)]).collect::<Vec<_>>());
        for it in measured {
            let bytes = it["size"].as_u64().map(|size| size * 20);
            assert_eq!(it["verified_bytes"].as_u64(), bytes.filter(|_| verified));
        }
        let xml = "import sys, xml.dom.minidom as xml; print(len(xml.parse(sys.argv[1])
            .getElementsByTagName('polyline')))";
        let python = Command::new("python3")
            .args(["-c", xml])
            .arg(&file)
            .output();
        let python = python.expect("python3 runs");
        let count = String::from_utf8_lossy(&python.stdout);
        assert_eq!(count.trim(), lines.to_string(), "{python:?}");
    }
    let refused = |more: &[&str]| client(more).run().failure();
    let error = refused(&["--sizes", "64,4k", "--plot", "/nowhere/sweep.svg"]);
    assert!(
        error.contains("/nowhere/sweep.svg: No such file"),
        "{error}"
    );
    let unused = directory.path().join("unused.svg");
    let error = client(&["--op", "send", "--depth", "4096", "--sizes", "64..4M"])
        .arg("--plot")
        .arg(&unused)
        .run()
        .failure();
    assert!(error.contains("messages of 1048576 bytes"), "{error}");
    assert!(!unused.exists(), "refused before anything was measured");
    let nothing = ["--latency", "--sizes", "64", "--iterations", "0"];
    let error = client(&nothing).args(plot).run().failure();
    assert!(error.contains("no message was measured"), "{error}");
    for (more, words) in [
        (&["--plot", "sweep.svg"][..], "--sizes"),
        (&["--sizes", "64", "--size", "64"], "cannot be used with"),
        (&["--sizes", "4k..64"], "ends before it begins"),
    ] {
        let error = refused(more);
        assert!(error.contains(words), "{error}");
    }
}
