//! RNICs that speak DDP over SCTP in UDP (RFC 6951), for networks that drop SCTP. What is on the wire is judged by
//! tshark.

use std::process::Command;

use rnic_tests::daemon::DaemonOptions;
use rnic_tests::lab::{Family, LinkOptions};
use rnic_tests::pair::Pair;
use rnic_tests::tool;
use rnic_tests::tshark::frames;

const PORT: u16 = 18515;
/// UDP ports of the side that connects, and of the one that listens.
const UDP: [u16; 2] = [9900, 9899];

fn options(arguments: &[&str]) -> DaemonOptions {
    DaemonOptions {
        capture: true,
        arguments: arguments.iter().map(|&word| word.to_owned()).collect(),
        ..DaemonOptions::default()
    }
}

#[test]
fn verified_bytes_move_in_udp_and_nothing_goes_without() {
    let [ours, theirs] = UDP.map(|port| port.to_string());
    let connects = ["--sctp-udp-port", &ours, "--sctp-udp-peer-port", &theirs];
    let pair = Pair::with_each(
        "sctp-udp",
        &LinkOptions::default(),
        [&options(&connects), &options(&["--sctp-udp-port", &theirs])],
    );
    for family in [Family::V4, Family::V6] {
        let at = pair.b.address(family, PORT);
        let _server = tool::server(&pair.daemon_b, "rnic-ping", at, &["--sctp"]);
        let ping = &["--sctp", "--count", "20", "--size", "60000"];
        let pinged = tool::client(&pair.daemon_a, "rnic-ping", at, ping).run();
        assert_eq!(tool::report(&pinged.success())["rounds"], 20);
        let at = pair.b.address(family, PORT + 1);
        let _server = tool::server(&pair.daemon_b, "rnic-perf", at, &["--sctp"]);
        for op in ["write", "read"] {
            let plan = ["--sctp", "--op", op, "--verify", "--bytes", "5M"];
            let client = tool::client(&pair.daemon_a, "rnic-perf", at, &plan);
            let report = tool::report(&client.run().success());
            assert!(
                report["verified_bytes"].as_u64() >= Some(5 << 20),
                "{report}"
            );
        }
    }
    let (_lab, captures) = pair.captures();
    for capture in captures {
        let all = frames(&capture, "frame");
        assert!(all > 10_000, "{all}");
        for right in [
            "sctp and udp.port == 9899 and udp.port == 9900",
            "udp.checksum.status == 1",
            "sctp.checksum.status == 1",
        ] {
            assert_eq!(frames(&capture, right), all, "{right}");
        }
        assert_eq!(frames(&capture, "_ws.malformed"), 0);
    }
}

/// What is asked of the interface can't be half asked.
#[test]
fn a_peer_port_without_a_port_of_ours_is_refused() {
    let refused = Command::new(rnic_tests::binary::path("rnicd"))
        .args([
            "--check",
            "--interface",
            "lo",
            "--sctp-udp-peer-port",
            "9899",
        ])
        .output()
        .expect("it is built");
    assert!(!refused.status.success());
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(
        said.contains("sctp_udp_peer_port without sctp_udp_port"),
        "{said}"
    );
}
