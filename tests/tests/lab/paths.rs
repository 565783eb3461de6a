//! Paths of several links: what routers say of segments, and what becomes of the connection.

#![allow(clippy::unwrap_used)]

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use rnic::{
    ConnectOptions, DisconnectReason, Error, ListenOptions, RefusalCode, Transport, WorkRequest,
};
use rnic_tests::daemon::{Daemon, DaemonOptions};
use rnic_tests::lab::{Family, Host, INTERFACE, Lab, LinkOptions, Routers};
use rnic_tests::pair::Pair;
use rnic_tests::verbs::{Endpoint, connect, connect_with};
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
            .connect(far.b.address(family, PORT), ConnectOptions::default())
            .wait(Duration::from_secs(10));
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
    const FLOODED: Duration = Duration::from_millis(1500);
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
            "3",
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
            while start.elapsed() < FLOODED {
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
        assert!(sent > 5000, "the flood was a trickle of {sent}");
        // 16 every 5 ms, and the kernel drops what a full queue has no room for.
        assert!(received > 0 && received < 4 * 3200, "{received} of {sent}");
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

/// Frames that a daemon's interface has sent, of whatever kind.
fn frames_sent(daemon: &Daemon) -> u64 {
    let all = daemon.counters();
    let sent = all
        .iter()
        .filter(|(name, _)| name.starts_with("port") && name.ends_with("_transmitted"));
    let counts: Vec<u64> = sent.map(|(_, count)| *count).collect();
    assert!(!counts.is_empty(), "{all:?}");
    counts.iter().sum()
}

const TRANSPORTS: [Transport; 2] = [Transport::Tcp, Transport::Sctp];
/// An ESP template as `ip xfrm policy` takes it.
const ESP: [&str; 6] = ["tmpl", "proto", "esp", "mode", "transport", "priority"];

/// `ip xfrm policy`, with the words for one host's policy of this direction with the other.
fn policy(host: &Host, verb: &str, direction: &str, other: &Host, family: Family, more: &[&str]) {
    let (ours, theirs) = (
        host.address(family, 0).ip().to_string(),
        other.address(family, 0).ip().to_string(),
    );
    let (from, to) = match direction {
        "out" => (&ours, &theirs),
        _ => (&theirs, &ours),
    };
    let words = [
        "xfrm", "policy", verb, "src", from, "dst", to, "dir", direction,
    ];
    host.namespace.ip(&[&words[..], more].concat());
}

/// Changes a host's policies, and waits until its daemon says that it follows.
fn change_policies(daemon: &Daemon, change: impl FnOnce()) {
    let told = || daemon.log().matches("the host's IPsec forbids").count();
    let before = told();
    change();
    wait::until("the policies are followed", Duration::from_secs(10), || {
        (told() > before).then_some(())
    });
}

fn flush_policies(host: &Host) {
    host.namespace.ip(&["xfrm", "policy", "flush"]);
}

/// Tries to connect `a` to a listener of `b`, for two seconds; nobody accepts.
fn try_connect(pair: &Pair, family: Family, transport: Transport) -> Error {
    let end = Endpoint::new(&pair.daemon_a, 64);
    let options = ConnectOptions::default().transport(transport);
    let listen = ListenOptions::default().transport(transport);
    let server = Endpoint::new(&pair.daemon_b, 64);
    let at = pair.b.address(family, PORT);
    let _listener = server.context.listen(at, listen).unwrap();
    end.qp
        .connect(at, options)
        .wait(Duration::from_secs(2))
        .unwrap_err()
}

#[test]
fn a_connection_that_the_hosts_ipsec_forbids_in_clear_is_refused_before_a_frame_leaves() {
    let pair = Pair::new("ipsec-connect");
    let wanted: [(&str, Vec<&str>, &str); 3] = [
        ("out", vec!["action", "block"], "dir out block"),
        ("in", vec!["action", "block"], "dir in block"),
        (
            "out",
            [&ESP[..], &["7"]].concat(),
            "dir out tmpl priority 7",
        ),
    ];
    for (family, transport) in Family::ALL
        .into_iter()
        .flat_map(|family| TRANSPORTS.map(|transport| (family, transport)))
    {
        for (direction, more, named) in &wanted {
            change_policies(&pair.daemon_a, || {
                policy(&pair.a, "add", direction, &pair.b, family, more);
            });
            let before = frames_sent(&pair.daemon_a);
            let counted = pair.daemon_a.counter("ipsec_refused_connects");
            match try_connect(&pair, family, transport) {
                Error::Refused(refusal) => {
                    assert_eq!(refusal.code, RefusalCode::NotPermitted, "{refusal}");
                    assert!(refusal.message.contains(named), "{refusal}");
                }
                other => panic!("{family:?}, {transport:?}, {named}: {other}"),
            }
            assert_eq!(frames_sent(&pair.daemon_a), before);
            // A client that asks often gets counters that are a moment old.
            wait::until("it is counted", Duration::from_secs(10), || {
                let now = pair.daemon_a.counter("ipsec_refused_connects");
                (now == counted + 1).then_some(())
            });
            change_policies(&pair.daemon_a, || flush_policies(&pair.a));
        }
        // Forwarded packets, and those of an XFRM interface, are others.
        policy(&pair.a, "add", "fwd", &pair.b, family, &["action", "block"]);
        let more = ["if_id", "7", "action", "block"];
        policy(&pair.a, "add", "out", &pair.b, family, &more);
        let client = Endpoint::new(&pair.daemon_a, 64);
        let server = Endpoint::new(&pair.daemon_b, 64);
        connect_with(
            &client,
            &server,
            pair.b.address(family, PORT),
            ListenOptions::default().transport(transport),
            ConnectOptions::default().transport(transport),
        );
        flush_policies(&pair.a);
    }
}

#[test]
fn a_listener_that_the_hosts_ipsec_forbids_to_answer_in_clear_is_silent() {
    let pair = Pair::new("ipsec-listen");
    for (family, transport) in Family::ALL
        .into_iter()
        .flat_map(|family| TRANSPORTS.map(|transport| (family, transport)))
    {
        for direction in ["in", "out"] {
            change_policies(&pair.daemon_b, || {
                let more = ["action", "block"];
                policy(&pair.b, "add", direction, &pair.a, family, &more);
            });
            let (before, dropped) = (
                frames_sent(&pair.daemon_b),
                pair.daemon_b.counter("ipsec_dropped_segments"),
            );
            let refused = try_connect(&pair, family, transport);
            assert!(matches!(refused, Error::Timeout { .. }), "{refused}");
            assert_eq!(
                frames_sent(&pair.daemon_b),
                before,
                "{family:?} {transport:?}"
            );
            assert!(pair.daemon_b.counter("ipsec_dropped_segments") > dropped);
            change_policies(&pair.daemon_b, || flush_policies(&pair.b));
        }
    }
    let log = pair.daemon_b.log();
    assert!(log.contains("[WARN audit] a segment from "), "{log}");
}

#[test]
fn a_connection_ends_without_a_word_when_the_hosts_ipsec_forbids_it_in_clear() {
    let pair = Pair::new("ipsec-change");
    for (family, transport) in Family::ALL
        .into_iter()
        .flat_map(|family| TRANSPORTS.map(|transport| (family, transport)))
    {
        let client = Endpoint::new(&pair.daemon_a, 4096);
        let server = Endpoint::new(&pair.daemon_b, 4096);
        connect_with(
            &client,
            &server,
            pair.b.address(family, PORT),
            ListenOptions::default().transport(transport),
            ConnectOptions::default().transport(transport),
        );
        let by_default = family == Family::V4;
        match by_default {
            true => drop(
                pair.a
                    .namespace
                    .ip(&["xfrm", "policy", "setdefault", "out", "block"]),
            ),
            false => policy(&pair.a, "add", "out", &pair.b, family, &["action", "block"]),
        }
        assert_eq!(client.ending(), DisconnectReason::HostPolicy);
        let before = frames_sent(&pair.daemon_a);
        // The peer goes on, and gets no answer.
        let all = [server.element(0..4096)];
        server.post(WorkRequest::write(1, &all, client.remote()));
        let ended = server.qp.disconnected().wait(Duration::from_millis(500));
        let is_waiting = matches!(ended, Err(Error::Timeout { .. }));
        assert!(is_waiting, "{family:?} {transport:?}: {ended:?}");
        assert_eq!(frames_sent(&pair.daemon_a), before);
        change_policies(&pair.daemon_a, || {
            let accept = ["xfrm", "policy", "setdefault", "out", "accept"];
            pair.a.namespace.ip(&accept);
            flush_policies(&pair.a);
        });
    }
    assert_eq!(pair.daemon_a.counter("ipsec_ended_connections"), 4);
}

#[test]
fn a_daemon_that_ignores_the_hosts_ipsec_says_so_and_the_loopback_is_exempt() {
    let ignores = DaemonOptions {
        arguments: vec!["--host-ipsec".to_owned(), "ignore".to_owned()],
        ..DaemonOptions::default()
    };
    let link = LinkOptions::default();
    let pair = Pair::with_each("ipsec-ignore", &link, [&ignores, &DaemonOptions::default()]);
    let at = pair.b.address(Family::V4, PORT);
    policy(
        &pair.a,
        "add",
        "out",
        &pair.b,
        Family::V4,
        &["action", "block"],
    );
    let told = "they are ignored, and what they select goes in clear";
    wait::until(told, Duration::from_secs(10), || {
        pair.daemon_a.log().contains(told).then_some(())
    });
    let [client, server] = [&pair.daemon_a, &pair.daemon_b].map(|it| Endpoint::new(it, 64));
    connect(&client, &server, at);

    let everything = [
        "xfrm",
        "policy",
        "setdefault",
        "out",
        "block",
        "in",
        "block",
    ];
    pair.b.namespace.ip(&everything);
    assert_eq!(server.ending(), DisconnectReason::HostPolicy);
    let [client, server] = [(); 2].map(|()| Endpoint::new(&pair.daemon_b, 64));
    connect(&client, &server, at);
}

#[test]
fn a_policy_of_one_interface_forbids_nothing_over_another() {
    let pair = Pair::new("ipsec-dev");
    let at = pair.b.address(Family::V4, PORT);
    let to = at.ip().to_string();
    let block = |interface: &str| {
        let words = ["xfrm", "policy", "add", "dst", &to, "dev", interface];
        let words = [&words[..], &["dir", "out", "action", "block"]].concat();
        pair.a.namespace.ip(&words);
    };
    block("lo");
    let [client, server] = [&pair.daemon_a, &pair.daemon_b].map(|it| Endpoint::new(it, 64));
    connect(&client, &server, at);
    flush_policies(&pair.a);
    block(INTERFACE);
    assert_eq!(client.ending(), DisconnectReason::HostPolicy);
}
