//! The same API without a daemon: the RNIC in the program's own process.

use std::net::SocketAddr;

use rnic_tests::daemon::{Daemon, DaemonOptions, assert_nothing_attached};
use rnic_tests::lab::{Command, Family, Host, INTERFACE, Lab, LinkOptions, Process};
use rnic_tests::{binary, tool, wait};

const PORT: u16 = 18515;

/// A tool that opens the host's interface itself.
fn embedded(host: &Host, program: &str, role: &str) -> Command {
    host.namespace
        .command(binary::path(program))
        .label(&format!("{program}-{role}-embedded"))
        .args([role, "--embedded", INTERFACE])
}

fn embedded_server(host: &Host, program: &str, at: SocketAddr) -> Process {
    let mut server = embedded(host, program, "server")
        .args(["--listen", &at.to_string()])
        .spawn();
    wait::until("the embedded server listens", tool::LISTEN_LIMIT, || {
        assert!(server.running(), "it ended: {}", server.stderr());
        server.stdout().contains("listening").then_some(())
    });
    server
}

/// Every operation, verified, from an embedded client.
#[track_caller]
fn everything_works(a: &Host, at: SocketAddr) {
    for op in ["write", "send", "read"] {
        let more = ["--op", op, "--size", "20000", "--iterations", "500"];
        let done = embedded(a, "rnic-perf", "client")
            .args(["--connect", &at.to_string(), "--json", "--verify"])
            .args(more)
            .run()
            .success();
        let octets = tool::report(&done)["verified_octets"].as_u64();
        assert_eq!(octets, Some(20_000 * 500), "{op}");
    }
    let _ = embedded(a, "rnic-perf", "client")
        .args(["--connect", &at.to_string(), "--op", "write", "--latency"])
        .args(["--size", "64", "--iterations", "200"])
        .run()
        .success();
}

#[test]
fn two_embedded_rnics_transfer() {
    for family in [Family::V4, Family::V6] {
        let mut lab = Lab::new("embedded");
        let (a, b) = lab.pair(&LinkOptions::default());
        let at = b.address(family, PORT);
        let server = embedded_server(&b, "rnic-perf", at);
        everything_works(&a, at);
        drop(server);
        assert_nothing_attached(&a.namespace, INTERFACE);
        assert_nothing_attached(&b.namespace, INTERFACE);
    }
}

#[test]
fn an_embedded_rnic_and_a_daemon_transfer() {
    let mut lab = Lab::new("embedded-daemon");
    let (a, b) = lab.pair(&LinkOptions::default());
    let daemon = Daemon::start(&lab, &b, &DaemonOptions::default());
    let at = b.address(Family::V4, PORT);
    let _server = tool::server(&daemon, "rnic-perf", at, &[]);
    everything_works(&a, at);
}

#[test]
fn an_embedded_rnic_on_an_unknown_interface_is_a_named_error() {
    let mut lab = Lab::new("embedded-unknown");
    let (a, b) = lab.pair(&LinkOptions::default());
    let at = b.address(Family::V4, PORT).to_string();
    let error = a
        .namespace
        .command(binary::path("rnic-perf"))
        .args(["client", "--embedded", "nosuch0", "--connect", &at])
        .run()
        .failure();
    assert!(
        error.contains("nosuch0"),
        "the interface is not named:\n{error}"
    );
}
