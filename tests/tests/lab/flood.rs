//! Floods of segments of unknown flows: what was established goes on, what is new comes about, and the shard
//! sees few of them.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use rnic_tests::daemon::{Daemon, DaemonOptions};
use rnic_tests::lab::{Family, Host, INTERFACE, Lab, LinkOptions, Process};
use rnic_tests::pair::Pair;
use rnic_tests::{binary, tool, wait};
use rustix::thread::{CpuSet, sched_setaffinity};
use serde_json::Value;

const PORT: u16 = 18515;
/// How long a new connection may take to come about in a flood.
const NEW_LIMIT: Duration = Duration::from_secs(20);

/// Strangers' segments that pour in until it is dropped.
#[derive(Clone, Copy, Debug)]
struct Flood {
    kind: &'static str,
    sources: &'static str,
}

impl Flood {
    /// Begins it, over the link between the two, to the host's address or another.
    fn begin(&self, from: &Host, to: &Host, address: SocketAddr, rate: u64) -> Process {
        let address = address.to_string();
        let command = from.namespace.command(binary::path("flood"));
        let command = command.args(["--interface", INTERFACE, "--mac", &to.mac()]);
        let command = command.args(["--to", &address, "--kind", self.kind]);
        let command = command.args(["--rate", &rate.to_string(), "--seconds", "120"]);
        command.args(["--sources", self.sources]).spawn()
    }

    /// Segments of it that came to the shard. RSTs to a listener are not counted by anybody.
    fn reached(&self, counters: &BTreeMap<String, u64>) -> u64 {
        let names: &[&str] = match self.kind {
            "syn" => &["tcp_cookies_sent", "tcp_half_open_evicted"],
            "fragment" => &["rx_fragments"],
            "rst" => &[],
            _ => &["tcp_unknown_flow", "tcp_cookies_rejected"],
        };
        names.iter().map(|name| counters[*name]).sum()
    }
}

/// Servers for both families.
fn servers(pair: &Pair) -> [Process; 2] {
    Family::ALL.map(|family| {
        let at = pair.b.address(family, PORT);
        tool::server(&pair.daemon_b, "rnic-perf", at, &[])
    })
}

/// Writes of 64 KiB from the first host to the second.
fn flow(pair: &Pair, family: Family, more: &[&str]) -> Process {
    let options = ["--op", "write", "--size", "65536", "--depth", "8"];
    let at = pair.b.address(family, PORT);
    let flow = tool::client(&pair.daemon_a, "rnic-perf", at, &options);
    flow.args(more).spawn()
}

/// Makes a connection and uses it: how long that took.
fn new_connection(pair: &Pair, family: Family) -> Duration {
    let start = Instant::now();
    let at = pair.b.address(family, PORT);
    let options = ["--op", "write", "--size", "64", "--iterations", "10"];
    let client = tool::client(&pair.daemon_a, "rnic-perf", at, &options);
    let _ = client.limit(NEW_LIMIT).run().success();
    start.elapsed()
}

/// Segments of a flood that the host's steering program did not let through: what it dropped, and junk
/// that it left to the kernel because it is no segment.
fn held_back(counters: &BTreeMap<String, u64>) -> u64 {
    let names = [
        "drop_syn",
        "drop_unknown_flow",
        "drop_fragment",
        "pass_malformed",
    ];
    let counter = |name| counters[&format!("steering_{name}")];
    names.into_iter().map(counter).sum()
}

#[test]
fn a_flow_lives_through_floods_of_each_kind_and_a_connection_comes_about() {
    let pair = limited("flood", &LinkOptions::default());
    lives_through(
        &pair,
        &[
            ("syn", Family::V4, "random"),
            ("fragment", Family::V4, "random"),
            ("ack", Family::V6, "random"),
            ("rst", Family::V4, "one"),
            ("data", Family::V6, "one"),
            ("junk", Family::V4, "random"),
            ("syn", Family::V6, "one"),
            ("fragment", Family::V6, "random"),
        ],
    );
}

#[test]
fn a_flow_of_super_packets_lives_through_floods() {
    let link = LinkOptions {
        offloads: true,
        ..LinkOptions::default()
    };
    let pair = limited("flood-super", &link);
    // In generic mode a veth takes what an XDP program sends, as the flood is, only while GRO gives it a NAPI.
    let gro = ["-K", INTERFACE, "gro", "on"];
    let _ = pair
        .b
        .namespace
        .command("ethtool")
        .args(gro)
        .run()
        .success();
    lives_through(
        &pair,
        &[
            ("syn", Family::V4, "random"),
            ("data", Family::V6, "one"),
            ("fragment", Family::V4, "random"),
        ],
    );
    assert!(pair.daemon_b.counter("port0_chains_received") > 0);
}

/// Frames in a second that daemons let through of each kind: few, as befits programs without optimization.
const LIMIT: u64 = 200;

fn limited(name: &str, link: &LinkOptions) -> Pair {
    let limits = DaemonOptions {
        arguments: ["syn", "unknown-flow", "fragment"]
            .map(|kind| format!("--{kind}-rate={LIMIT}"))
            .to_vec(),
        ..DaemonOptions::default()
    };
    Pair::with(name, link, &limits)
}

#[track_caller]
fn lives_through(pair: &Pair, floods: &[(&'static str, Family, &'static str)]) {
    const RATE: u64 = 100_000;
    let _servers = servers(pair);
    for &(kind, family, sources) in floods {
        let flood = Flood { kind, sources };
        let flow = flow(pair, family, &["--duration", "1500ms", "--verify"]);
        std::thread::sleep(Duration::from_millis(500));
        let before = pair.daemon_b.counters();
        let (begin, to) = (Instant::now(), pair.b.address(family, PORT));
        let under_way = flood.begin(&pair.a, &pair.b, to, RATE);
        wait::until("the flood is held back", Duration::from_secs(20), || {
            let counters = pair.daemon_b.counters();
            (held_back(&counters) > held_back(&before) + LIMIT).then_some(())
        });
        let new = new_connection(pair, family);
        let done = flow.finish(Duration::from_secs(60)).success();
        let (after, took) = (pair.daemon_b.counters(), begin.elapsed());
        drop(under_way);

        let verified = tool::report(&done)["verified_bytes"].as_u64();
        let bytes = after["tcp_bytes_in"] - before["tcp_bytes_in"];
        let reached = flood.reached(&after) - flood.reached(&before);
        let held_back = held_back(&after) - held_back(&before);
        println!(
            "{family:?}, {flood:?}: {held_back} held back, {reached} reached the shard, {bytes} bytes of the flow came, a connection after {new:?}"
        );
        assert!(
            bytes >= 1 << 20 && verified >= Some(1 << 20),
            "{verified:?}"
        );
        assert!(
            reached > 0 || kind == "rst",
            "of {held_back}, none reached the shard"
        );
        // Two processors' bursts of ten seconds, what they let through since, and as many that came
        // again by chance.
        let most = 2 * LIMIT * (10 + 2 * (took.as_secs() + 1));
        assert!(reached <= most, "{reached} reached the shard");
        assert!(held_back > most, "{held_back} in {took:?} are no flood");
    }
}

/// What a flow and a flood bring in a second, beside each other.
#[derive(Clone, Copy, Debug)]
struct Beside {
    /// The flow's goodput, in Gbit/s.
    goodput: f64,
    /// The flood's packets.
    packets: f64,
}

/// Measures the flow of a pair beside a flood, of which `arrived` counts the packets.
fn measure(pair: &Pair, arrived: impl Fn() -> u64) -> Beside {
    let sample = || {
        let bytes = pair.daemon_b.counter("tcp_bytes_in");
        (Instant::now(), bytes, arrived())
    };
    std::thread::sleep(Duration::from_millis(200));
    let (begin, bytes, packets) = sample();
    std::thread::sleep(Duration::from_millis(600));
    let (end, bytes_then, packets_then) = sample();
    let seconds = (end - begin).as_secs_f64();
    Beside {
        goodput: (bytes_then - bytes) as f64 * 8e-9 / seconds,
        packets: (packets_then - packets) as f64 / seconds,
    }
}

/// Packets that came to the host's interface.
fn packets(host: &Host) -> u64 {
    let link = ["-j", "-s", "link", "show", "dev", INTERFACE];
    let link: Value = serde_json::from_str(&host.namespace.ip(&link)).unwrap();
    link[0]["stats64"]["rx"]["packets"].as_u64().unwrap()
}

/// An address that no host has: a kernel that does not forward drops what comes for it before TCP.
fn nobody(family: Family) -> SocketAddr {
    match family {
        Family::V4 => ([198, 19, 255, 254], PORT).into(),
        Family::V6 => ([0x2001, 0xdb8, 0xfffe, 0, 0, 0, 0, 1], PORT).into(),
    }
}

/// What this thread starts from now on runs on this processor: each host has one of its own, so that
/// what is compared does not hang on the scheduler's choice.
fn start_on(processor: usize) {
    let mut set = CpuSet::new();
    set.set(processor);
    sched_setaffinity(None, &set).expect("there are two processors");
}

/// The median of a number of each turn.
fn median(turns: &[(Beside, Beside)], number: impl Fn(&(Beside, Beside)) -> f64) -> f64 {
    let mut numbers: Vec<f64> = turns.iter().map(number).collect();
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}

/// An established flow beside a flood of another interface, whose kernel drops it soon, and beside the
/// same flood of its own, alternating. `RNIC_TEST_FLOOD_RATE` says how many packets a second it has.
#[test]
#[ignore = "minutes, and of use only with programs of a release build: scripts/attack runs it"]
fn a_flow_keeps_what_it_has_beside_a_flood_of_another_interface() {
    const KEPT: f64 = 0.8;
    const TURNS: usize = 5;
    const TURNS_MAX: usize = 15;
    /// Processors. A veth's packets are received where they are sent: the flow's and both floods' on the
    /// same one, which so is what they all want.
    const SENDER: usize = 0;
    const RECEIVER: usize = 1;
    let rate = std::env::var("RNIC_TEST_FLOOD_RATE").map_or(500_000, |rate| rate.parse().unwrap());
    let mut lab = Lab::new("floods");
    let (a, b) = lab.pair(&LinkOptions::default());
    let (c, d) = lab.pair(&LinkOptions::default());
    d.namespace.sysctl("net.ipv4.ip_forward", "0");
    d.namespace.sysctl("net.ipv6.conf.all.forwarding", "0");
    let object = concat!(env!("OUT_DIR"), "/flood.bpf.o");
    let link = ["link", "set", "dev", INTERFACE];
    let pass_all = ["xdpdrv", "obj", object, "program", "pass"];
    d.namespace.ip(&[&link[..], &pass_all].concat());
    start_on(SENDER);
    let daemon_a = Daemon::start(&lab, &a, &DaemonOptions::default());
    start_on(RECEIVER);
    let pair = Pair {
        daemon_a,
        daemon_b: Daemon::start(&lab, &b, &DaemonOptions::default()),
        a,
        b,
        lab,
    };
    let _servers = servers(&pair);
    start_on(SENDER);
    let mut flow = flow(&pair, Family::V4, &["--duration", "3600s"]);
    std::thread::sleep(Duration::from_secs(1));

    let mut failed = Vec::new();
    let mut worst = (f64::INFINITY, Duration::ZERO);
    println!(
        "IP, kind, sources, packets/s sent and reached, ratio kept (Gbit/s of Gbit/s), new connection after"
    );
    for (family, sources) in [
        (Family::V4, "random"),
        (Family::V4, "one"),
        (Family::V6, "random"),
    ] {
        for kind in ["syn", "fragment", "ack", "rst", "data", "junk"] {
            let flood = Flood { kind, sources };
            let mut turns = Vec::new();
            let mut new = Duration::ZERO;
            let mut kept = 0.0;
            // The machine's other work weighs on few turns: of more of them, the median is of none.
            while turns.len() < TURNS || (kept < KEPT && turns.len() < TURNS_MAX) {
                let elsewhere = flood.begin(&c, &d, nobody(family), rate);
                let other = measure(&pair, || packets(&d));
                drop(elsewhere);
                let to = pair.b.address(family, PORT);
                let under_way = flood.begin(&pair.a, &pair.b, to, rate);
                let own = measure(&pair, || held_back(&pair.daemon_b.counters()));
                turns.push((own, other));
                kept = median(&turns, |(own, other)| own.goodput / other.goodput);
                if turns.len() == TURNS {
                    new = new_connection(&pair, family);
                }
                drop(under_way);
            }
            assert!(flow.status().is_none(), "the flow has ended");
            let own = median(&turns, |(own, _)| own.packets);
            let other = median(&turns, |(_, other)| other.packets);
            let line = format!(
                "{family:?} {kind:8} {sources:6} {rate:8} {own:8.0} {kept:5.2} ({:.2} of {:.2}) {:5.2} s",
                median(&turns, |(own, _)| own.goodput),
                median(&turns, |(_, other)| other.goodput),
                new.as_secs_f64()
            );
            println!("{line}");
            // Elsewhere fewer may come, for which the kernel takes longer: the flow has more there.
            if kept.is_nan() || kept < KEPT || own < rate as f64 / 2.0 {
                failed.push(format!("{line}; the flood elsewhere {other:.0}"));
            }
            worst = (worst.0.min(kept), worst.1.max(new));
        }
    }
    println!(
        "18 floods of {rate} a second: {:.2} is kept at least, a connection comes about in {:.1} s",
        worst.0,
        worst.1.as_secs_f64()
    );
    assert!(failed.is_empty(), "{failed:#?}");
}
