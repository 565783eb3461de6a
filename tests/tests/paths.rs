//! Paths of several links: what routers say of segments, and what becomes of the connection.

#![allow(clippy::unwrap_used)]

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use rnic::{ConnectOptions, DisconnectReason, Error};
use rnic_tests::daemon::{Daemon, DaemonOptions};
use rnic_tests::lab::{Family, Host, INTERFACE, Lab, LinkOptions, Routers};
use rnic_tests::verbs::Endpoint;
use rnic_tests::{tool, wait};
use rustix::net::{AddressFamily, SendFlags, SocketType, ipproto};
use userspace_net::checksum;

const PORT: u16 = 18515;

/// Two hosts with an RNIC each, two routers between them. Daemons are dropped first.
struct Far {
    daemon_a: Daemon,
    daemon_b: Daemon,
    a: Host,
    b: Host,
    routers: Routers,
    _lab: Lab,
}

impl Far {
    fn new(name: &str) -> Self {
        let mut lab = Lab::new(name);
        let (a, b, routers) = lab.routed(&LinkOptions::default());
        let daemon_a = Daemon::start(&lab, &a, &DaemonOptions::default());
        let daemon_b = Daemon::start(&lab, &b, &DaemonOptions::default());
        Self {
            daemon_a,
            daemon_b,
            a,
            b,
            routers,
            _lab: lab,
        }
    }
}

#[test]
fn a_connection_that_a_router_prohibits_is_refused_at_once() {
    let far = Far::new("prohibited");
    far.routers.prohibit(&far.b);
    for family in Family::ALL {
        let end = Endpoint::new(&far.daemon_a, 64);
        let start = Instant::now();
        let refused = end
            .qp
            .connect(far.b.address(family, PORT), ConnectOptions::default());
        match refused {
            Err(Error::ConnectFailed { reason, .. }) => {
                assert_eq!(reason, DisconnectReason::Refused, "{family:?}");
            }
            other => panic!("{family:?}: {other:?}"),
        }
        assert!(start.elapsed() < Duration::from_secs(30), "{family:?}");
    }
    assert_eq!(far.daemon_a.counter("icmp_ignored"), 0);
    assert!(far.daemon_a.counter("steering_icmp_taken") >= 2);
    assert!(far.daemon_b.counter("established") == 0);
}

/// A "packet too big" that quotes a segment of this connection, for a raw socket to send.
fn forged(from: SocketAddr, to: SocketAddr, seq: u32) -> Vec<u8> {
    let mut quoted = match (from.ip(), to.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let mut ip = vec![0x45, 0, 5, 0xdc, 0, 0, 0x40, 0, 64, 6, 0, 0];
            ip.extend(from.octets());
            ip.extend(to.octets());
            ip
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            let mut ip = vec![0x60, 0, 0, 0, 5, 0xb4, 6, 64];
            ip.extend(from.octets());
            ip.extend(to.octets());
            ip
        }
        _ => unreachable!("both are of one family"),
    };
    quoted.extend(from.port().to_be_bytes());
    quoted.extend(to.port().to_be_bytes());
    quoted.extend(seq.to_be_bytes());
    // An MTU of 600. The kernel writes the checksum of ICMPv6.
    let kind = if from.is_ipv4() { [3, 4] } else { [2, 0] };
    let mut message = [&kind[..], &[0, 0, 0, 0, 2, 0x58], &quoted].concat();
    if from.is_ipv4() {
        let sum = checksum::fold(checksum::sum(&message)).to_be_bytes();
        message[2..4].copy_from_slice(&sum);
    }
    message
}

#[test]
fn a_flood_of_forged_icmp_errors_does_nothing() {
    for family in Family::ALL {
        let far = Far::new("flood");
        let at = far.b.address(family, PORT);
        let _server = tool::server(&far.daemon_b, "rnic-perf", at, &[]);
        let more = [
            "--op",
            "read",
            "--size",
            "65536",
            "--depth",
            "8",
            "--duration",
            "5",
            "--verify",
        ];
        let client = tool::client(&far.daemon_a, "rnic-perf", at, &more).spawn();
        let from = far.a.address(family, 0);
        let flood = move || {
            let (family, protocol) = match family {
                Family::V4 => (AddressFamily::INET, ipproto::ICMP),
                Family::V6 => (AddressFamily::INET6, ipproto::ICMPV6),
            };
            let socket = rustix::net::socket(family, SocketType::RAW, Some(protocol)).unwrap();
            let (start, mut sent) = (Instant::now(), 0_u32);
            while start.elapsed() < Duration::from_secs(3) {
                // Every port and a different sequence number each time: no guess is right.
                let to = SocketAddr::new(from.ip(), sent as u16 | 0x8000);
                let message = forged(at, to, sent.wrapping_mul(0x9e37_79b9));
                let victim = SocketAddr::new(at.ip(), 0);
                let went = rustix::net::sendto(&socket, &message, SendFlags::empty(), &victim);
                sent += u32::from(went.is_ok());
            }
            sent
        };
        let sent = far.a.namespace.start_thread(flood).join().unwrap();
        let done = client.finish(Duration::from_secs(60)).success();
        let bytes = tool::report(&done)["verified_bytes"].as_u64();
        assert!(bytes >= Some(1 << 20), "{family:?}: {bytes:?}");
        let [taken, received, errors, ignored, changes] = [
            "steering_icmp_taken",
            "icmp_received",
            "icmp_errors",
            "icmp_ignored",
            "mss_changes",
        ]
        .map(|name| far.daemon_b.counter(name));
        println!("{family:?}: {sent} sent, {taken} taken, {received} read, {errors} errors");
        assert!(sent > 10_000, "the flood was a trickle of {sent}");
        // 16 every 5 ms, and the kernel drops what a full queue has no room for.
        assert!(received > 0 && received < 8 * 3200, "{received} of {sent}");
        assert_eq!((errors, ignored, changes), (received, received, 0));
    }
}

/// What the host does in the middle of a transfer, and what the daemons must count then.
fn in_the_middle_of_a_transfer(name: &str, change: impl Fn(&Far), counted: &[&str]) {
    for family in Family::ALL {
        let far = Far::new(name);
        let at = far.b.address(family, PORT);
        let _server = tool::server(&far.daemon_b, "rnic-perf", at, &[]);
        let more = ["--size", "65536", "--depth", "8", "--duration", "6"];
        let more = [&more[..], &["--op", "write", "--verify"]].concat();
        let client = tool::client(&far.daemon_a, "rnic-perf", at, &more).spawn();
        let patience = Duration::from_secs(30);
        wait::until("the transfer runs", patience, || {
            (far.daemon_a.counter("tcp_segments_out") > 500).then_some(())
        });
        change(&far);
        for counter in counted {
            wait::until(counter, patience, || {
                (far.daemon_a.counter(counter) > 0).then_some(())
            });
        }
        let before = far.daemon_a.counter("tcp_segments_out");
        // One that went on sending to nobody would not end in time.
        let done = client.finish(Duration::from_secs(60)).success();
        assert!(tool::report(&done)["verified_bytes"].as_u64() > Some(0));
        assert!(far.daemon_a.counter("tcp_segments_out") > before + 500);
    }
}

#[test]
fn a_connection_follows_when_another_machine_becomes_its_gateway() {
    let change = |far: &Far| far.routers.replace_gateway(&far.a);
    in_the_middle_of_a_transfer("gateway", change, &["path_moves"]);
}

#[test]
fn a_connection_follows_when_its_interface_becomes_narrower() {
    let change = |far: &Far| {
        let mtu = ["link", "set", "dev", INTERFACE, "mtu", "1400"];
        far.a.namespace.ip(&mtu);
    };
    in_the_middle_of_a_transfer("narrower", change, &["path_moves", "mss_changes"]);
}
