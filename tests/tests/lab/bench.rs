//! The benchmark itself works: one case of each kind, for a moment.

use std::process::Command;
use std::time::Duration;

use rnic_tests::binary;
use rnic_tests::lab::Lab;
use serde_json::Value;

/// What each case must have measured.
const FIGURES: [(&str, &[&str]); 13] = [
    (
        "raw@1500-inline",
        &["gbit_per_second", "messages_per_second"],
    ),
    (
        "write-64k-embedded@1500-inline",
        &["gbit_per_second", "messages_per_second"],
    ),
    (
        "write-64-ping-sctp-embedded@1500-inline",
        &["p50_us", "p99_us"],
    ),
    (
        "write-64k-daemon@1500-inline",
        &["gbit_per_second", "messages_per_second"],
    ),
    ("kernel-plain@1500-inline", &["gbit_per_second"]),
    ("raw-ping@1500-inline", &["p50_us", "p99_us"]),
    ("write-64-ping-daemon@1500-inline", &["p50_us", "p99_us"]),
    ("kernel-ping@1500-inline", &["p50_us", "p99_us"]),
    (
        "write-qps-16-daemon@1500-inline",
        &["gbit_per_second", "gbit_per_second_alone"],
    ),
    ("raw@9000-inline", &["gbit_per_second"]),
    (
        "write-1M-markers-embedded@1500-inline-loss-1",
        &["gbit_per_second"],
    ),
    ("loopback-write-64k-daemon", &["gbit_per_second"]),
    ("loopback-write-64-ping-daemon-spin", &["p50_us", "p99_us"]),
];

/// The names that rnic-bench lists with these arguments.
fn listed(arguments: &[&str]) -> Vec<String> {
    let output = Command::new(binary::path("rnic-bench"))
        .args(["--out", "/nowhere", "--list"])
        .args(arguments)
        .output()
        .expect("it can be started");
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).expect("names are text");
    text.lines().map(str::to_owned).collect()
}

#[test]
fn a_whole_name_is_of_one_case_and_a_part_of_all_that_have_it() {
    const NAME: &str = "write-1M-embedded@1500-inline";
    assert_eq!(listed(&["--only", NAME]), [NAME]);
    let with = listed(&["--only", "1M-embedded@1500-inline"]);
    for name in [NAME, "write-1M-embedded@1500-inline-loss-1"] {
        assert!(with.iter().any(|one| one == name), "no {name} in {with:?}");
    }
    let goals = listed(&["--goals"]);
    assert!(goals.iter().any(|one| one == NAME), "{goals:?}");
    assert!(
        !goals.iter().any(|one| one == "kernel-ping@1500-rps"),
        "{goals:?}"
    );
}

#[test]
fn what_a_release_is_laid_out_for_is_there() {
    let script = include_str!("../../../scripts/release");
    let known = listed(&[]);
    for list in ["\nwork=(", "\nmemory_work=("] {
        let (_, behind) = script.split_once(list).expect("it has that list");
        let (names, _) = behind.split_once(')').expect("the list ends");
        assert!(names.split_whitespace().count() > 1, "{names}");
        for name in names.split_whitespace() {
            assert!(known.iter().any(|one| one == name), "no case {name}");
        }
    }
}

#[test]
fn every_kind_of_case_gives_its_figures() {
    // Only for its directory: the benchmark makes its hosts itself.
    let lab = Lab::new("bench-test");
    let out = lab.directory().join("out");
    let output = Command::new(binary::path("rnic-bench"))
        .args(["--smoke", "--rounds", "1", "--out"])
        .arg(&out)
        .output()
        .expect("it can be started");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {said}", output.status);

    let text = std::fs::read_to_string(out.join("results.json")).expect("it wrote its results");
    let results: Value = serde_json::from_str(&text).expect("they are JSON");
    let all = results["cases"].as_array().expect("there are some");
    let find = |name: &str| all.iter().find(|one| one["name"] == name);
    for (name, figures) in FIGURES {
        let case = find(name).unwrap_or_else(|| panic!("no {name}: {text}"));
        for figure in figures {
            let median = case["figures"][figure]["median"].as_f64();
            assert!(
                median.is_some_and(|median| median > 0.0),
                "{figure} of {case}"
            );
        }
    }
    let raw = &results["goals"][0];
    assert!(
        raw["not_measured"]
            .as_str()
            .is_some_and(|why| why.contains("write-1M")),
        "{raw}"
    );
    let plot = std::fs::read_to_string(out.join("latency.svg")).expect("it drew its plots");
    assert!(plot.contains("raw AF_XDP frames"), "{plot}");
}

#[test]
fn a_signal_ends_it_in_order_and_leaves_no_namespace() {
    let lab = Lab::new("bench-signal");
    let out = lab.directory().join("out");
    let mut child = Command::new(binary::path("rnic-bench"))
        .args(["--smoke", "--seconds", "600", "--only", "raw@", "--out"])
        .arg(&out)
        .stdout(std::process::Stdio::null())
        .spawn()
        .expect("it can be started");
    let prefix = format!("rniclab-{}-", child.id());
    let namespaces = || {
        let entries = std::fs::read_dir("/run/netns")
            .into_iter()
            .flatten()
            .flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        names.filter(|name| name.starts_with(&prefix)).count()
    };
    let limit = Duration::from_secs(60);
    let wait = |what: &str, check: &dyn Fn() -> bool| {
        rnic_tests::wait::until(what, limit, || check().then_some(()));
    };
    wait("it has made its hosts", &|| namespaces() == 2);
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rnic_tests::lab::Signal::INT).expect("it runs");
    let status = child.wait().expect("it is ours to wait for");
    assert_eq!(status.code(), Some(130), "{status}");
    assert!(
        out.join("results.json").is_file(),
        "what there was was not written"
    );
    wait("its hosts are gone", &|| namespaces() == 0);
}
