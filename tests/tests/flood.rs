//! Floods of strangers' segments: what was established goes on, what is new comes about, and the shard
//! sees few of them.

#![allow(clippy::unwrap_used)]

use std::time::{Duration, Instant};

use rnic_tests::daemon::DaemonOptions;
use rnic_tests::lab::{Command, Family, Host, LinkOptions, Process};
use rnic_tests::pair::Pair;
use rnic_tests::{binary, tool};

const PORT: u16 = 18515;
const SECONDS: u64 = 3;
/// The steering program's limits, which each processor may reach: low, as befits programs without
/// optimization.
const SYNS: u64 = 1000;
const FRAGMENTS: u64 = 500;

/// Begins a flood of the host `b` from its neighbour.
fn flood(pair: &Pair, kind: &str) -> Process {
    let to = pair.b.address(Family::V4, PORT).to_string();
    let command = pair.a.namespace.command(binary::path("flood"));
    let rate = std::env::var("RNIC_TEST_FLOOD_RATE");
    let rate = rate.as_deref().unwrap_or("500000");
    let command = command.args(["--to", &to, "--kind", kind, "--rate", rate]);
    command
        .args(["--seconds", &SECONDS.to_string(), "--sources", "random"])
        .spawn()
}

/// So many of a kind may have come through: two processors' bursts of ten seconds, and what they let
/// through since.
fn most(rate: u64, took: Duration) -> u64 {
    2 * rate * (took.as_secs() + 12)
}

#[test]
fn a_flow_lives_through_floods_of_syns_and_of_fragments_and_a_connection_comes_about() {
    let limits = DaemonOptions {
        arguments: vec![
            format!("--syn-rate={SYNS}"),
            format!("--fragment-rate={FRAGMENTS}"),
        ],
        ..DaemonOptions::default()
    };
    let pair = Pair::with("flood", &LinkOptions::default(), &limits);
    let at = pair.b.address(Family::V4, PORT);
    let _server = tool::server(&pair.daemon_b, "rnic-perf", at, &[]);
    let flow = [
        "--op",
        "write",
        "--size",
        "65536",
        "--depth",
        "8",
        "--duration",
        "9s",
        "--verify",
    ];
    let flow = tool::client(&pair.daemon_a, "rnic-perf", at, &flow).spawn();
    std::thread::sleep(Duration::from_secs(1));

    for kind in ["syn", "fragment"] {
        let start = Instant::now();
        let flood = flood(&pair, kind);
        std::thread::sleep(Duration::from_millis(500));
        // A segment or two of it may be lost, and come again.
        let new = ["--op", "write", "--size", "64", "--iterations", "10"];
        let new = tool::client(&pair.daemon_a, "rnic-perf", at, &new);
        let _ = new.limit(Duration::from_secs(20)).run().success();
        println!("{kind}: a new connection after {:?}", start.elapsed());
        let sent = tool::report(&flood.finish(Duration::from_secs(20)).success());
        let sent = sent["sent"].as_u64().unwrap();
        let took = start.elapsed();
        let counters = pair.daemon_b.counters();
        let [rate, reached] = match kind {
            "syn" => {
                let answered = counters["tcp_cookies_sent"] + counters["tcp_half_open_evicted"];
                [SYNS, answered]
            }
            _ => [FRAGMENTS, counters["rx_fragments"]],
        };
        assert!(reached > 0, "{kind}: none of {sent} reached the shard");
        let most = most(rate, took);
        assert!(sent > 2 * most, "{kind}: {sent} in {took:?} are no flood");
        assert!(
            reached <= most,
            "{kind}: of {sent}, {reached} reached the shard"
        );
        let dropped = counters[&format!("steering_drop_{kind}")];
        assert!(
            dropped > sent / 2,
            "{kind}: of {sent}, {dropped} were dropped"
        );
    }
    let done = flow.finish(Duration::from_secs(60)).success();
    let octets = tool::report(&done)["verified_octets"].as_u64();
    assert!(octets >= Some(1 << 20), "{octets:?}");
}

/// A flow beside a flood of another interface, whose host drops it, and beside the same flood of its own.
/// `RNIC_BIN_DIR=$PWD/target/release cargo nextest run -p rnic-tests --test flood --run-ignored only
/// --no-capture`
#[test]
#[ignore = "a measurement, of use only with programs of a release build"]
fn figures() {
    let mut pair = Pair::new("floods");
    let (c, d) = pair.lab.pair(&LinkOptions::default());
    d.namespace.sysctl("net.ipv4.ip_forward", "0");
    let elsewhere = "198.19.255.254";
    let way = ["route", "add", elsewhere, "via", &d.v4.to_string()];
    c.namespace.ip(&way);
    let at = pair.b.address(Family::V4, PORT);
    let _server = tool::server(&pair.daemon_b, "rnic-perf", at, &[]);
    let options = [
        "--op",
        "write",
        "--size",
        "65536",
        "--depth",
        "8",
        "--duration",
        "3s",
    ];
    let measured = |flood: Command| {
        let flood = flood.args(["--rate", "500000", "--seconds", "4"]).spawn();
        std::thread::sleep(Duration::from_millis(300));
        let flow = tool::client(&pair.daemon_a, "rnic-perf", at, &options).run();
        let flow = tool::report(&flow.success())["goodput"]["gbit_per_second"].as_f64();
        let flood = tool::report(&flood.finish(Duration::from_secs(20)).success());
        (flow.unwrap(), flood["rate"].as_f64().unwrap())
    };
    println!("kind, sources: beside another's flood, beside its own (Gbit/s; packets/s), ratio");
    for kind in ["syn", "fragment", "ack", "rst", "data", "junk"] {
        for sources in ["random", "one"] {
            let flood = |from: &Host, to: String| {
                let command = from.namespace.command(binary::path("flood"));
                command.args(["--to", &to, "--kind", kind, "--sources", sources])
            };
            let (other, other_rate) = measured(flood(&c, format!("{elsewhere}:{PORT}")));
            // This one's connection is made in the middle of the flood.
            let (own, own_rate) = measured(flood(&pair.a, at.to_string()));
            let ratio = own / other;
            println!(
                "{kind}, {sources}: {other:.2} ({other_rate:.0}), {own:.2} ({own_rate:.0}), {ratio:.2}"
            );
        }
    }
}
