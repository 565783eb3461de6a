//! What is not the RNIC's passes untouched, and what is the RNIC's never meets the kernel's TCP.

use std::time::Duration;

use rnic_tests::daemon::DaemonOptions;
use rnic_tests::lab::{Family, Host, INTERFACE, LinkOptions};
use rnic_tests::pair::Pair;
use rnic_tests::snmp::TcpCounters;
use rnic_tests::{stream, tool};

const PORT: u16 = 18515;
/// Bytes of each round of kernel TCP, each way.
const STREAM: usize = 3_000_000;

/// Flushes what the host knows of its neighbours, and pings: ARP and neighbour discovery have to
/// work for an answer to come.
fn resolve_and_ping(from: &Host, to: &Host) {
    from.namespace.ip(&["neigh", "flush", "all"]);
    for address in [to.v4.to_string(), to.v6.to_string()] {
        let ping = from.namespace.command("ping");
        let _ = ping
            .args(["-c", "5", "-i", "0.05", "-W", "2", &address])
            .run()
            .success();
        let known = from
            .namespace
            .ip(&["neigh", "show", "to", &address, "dev", INTERFACE]);
        assert!(
            known.contains("lladdr"),
            "{address} was not resolved: {known}"
        );
    }
}

fn host_traffic(pair: &Pair) {
    resolve_and_ping(&pair.a, &pair.b);
    resolve_and_ping(&pair.b, &pair.a);
    for family in Family::ALL {
        stream::exchange(&pair.a, &pair.b, family, STREAM);
        stream::exchange(&pair.b, &pair.a, family, STREAM);
    }
}

/// Seconds that the RDMA transfer lasts; the next one is tried when no round of host traffic fell
/// within one.
const DURATIONS: [&str; 3] = ["6", "30", "120"];

/// Runs host traffic while an RDMA transfer runs; both have to come out right.
fn beside_a_transfer(name: &str, link: &LinkOptions, daemon: &DaemonOptions) {
    let pair = Pair::with(name, link, daemon);
    let at = pair.b.address(Family::V4, PORT);
    let _server = tool::server(&pair.daemon_b, "rnic-perf", at, &[]);
    let fell_within = DURATIONS.into_iter().any(|seconds| {
        let more = ["--op", "write", "--size", "65536", "--depth", "8"];
        let lasts = ["--duration", seconds, "--verify"];
        let client = tool::client(
            &pair.daemon_a,
            "rnic-perf",
            at,
            &[&more[..], &lasts].concat(),
        );
        let mut client = client.spawn();
        std::thread::sleep(Duration::from_millis(500));
        let mut rounds = 0;
        loop {
            host_traffic(&pair);
            if !client.running() {
                break;
            }
            rounds += 1;
        }
        let _ = client.finish(Duration::from_secs(30)).success();
        rounds > 0
    });
    assert!(
        fell_within,
        "no round of host traffic within {DURATIONS:?} s"
    );
}

#[test]
fn host_traffic_works_beside_a_transfer_in_native_mode() {
    let daemon = DaemonOptions {
        mode: Some("native"),
        ..DaemonOptions::default()
    };
    beside_a_transfer("native", &LinkOptions::default(), &daemon);
}

#[test]
fn host_traffic_works_beside_a_transfer_in_generic_mode() {
    let daemon = DaemonOptions {
        mode: Some("generic"),
        ..DaemonOptions::default()
    };
    beside_a_transfer("generic", &LinkOptions::default(), &daemon);
}

#[test]
fn host_traffic_works_beside_a_transfer_with_the_hosts_offloads_on() {
    let link = LinkOptions {
        offloads: true,
        queues: 2,
        ..LinkOptions::default()
    };
    beside_a_transfer("offloads", &link, &DaemonOptions::default());
}

#[test]
fn no_rdma_byte_goes_through_the_kernels_tcp() {
    let pair = Pair::new("kernel-counters");
    let read = || [&pair.a, &pair.b].map(|host| TcpCounters::read(&host.namespace));
    let before = read();
    for (family, port) in [(Family::V4, PORT), (Family::V6, PORT + 1)] {
        let at = pair.b.address(family, port);
        let _server = tool::server(&pair.daemon_b, "rnic-perf", at, &[]);
        for op in ["write", "send", "read"] {
            let more = [
                "--op", op, "--size", "65536", "--depth", "4", "--bytes", "4194304", "--verify",
            ];
            let _ = tool::client(&pair.daemon_a, "rnic-perf", at, &more)
                .run()
                .success();
        }
    }
    // Two families, three operations, 4 MiB each, in segments of at most 1460 bytes.
    assert!(pair.daemon_a.counter("tcp_segments_out") > 2 * 2 * 2900);
    assert!(pair.daemon_b.counter("tcp_segments_out") > 2 * 2900);
    assert_eq!(
        before,
        read(),
        "the kernel's TCP has seen segments of the RNIC"
    );
}
