//! Bytes arrive as they were sent: every kind of message, over every kind of link.

use std::time::Duration;

use rnic_tests::daemon::{Daemon, DaemonOptions};
use rnic_tests::lab::{Cable, Family, Host, INTERFACE, LinkOptions, Process};
use rnic_tests::pair::Pair;
use rnic_tests::{tool, tshark};

const PORT: u16 = 18515;
const OPS: [&str; 3] = ["write", "send", "read"];
/// Sizes at which something changes: nothing, the pad, one FPDU or two at an MTU of 1500.
const EDGES: [usize; 22] = [
    0, 1, 3, 4, 64, 1396, 1404, 1408, 1416, 1420, 1424, 1428, 1432, 1436, 1440, 1447, 1448, 1449,
    1454, 1460, 1461, 4096,
];
const LARGE: [usize; 2] = [65_536, 1 << 20];

fn start(daemon: &Daemon, to: &Host, family: Family, port: u16, arguments: &str) -> Process {
    let more: Vec<&str> = arguments.split_whitespace().collect();
    tool::client(daemon, "rnic-perf", to.address(family, port), &more).spawn()
}

/// Moves and verifies messages of each size by each operation from `a` to `b`.
fn moves(pair: &Pair, family: Family, sizes: impl IntoIterator<Item = usize>) {
    let at = pair.b.address(family, PORT);
    let _server = tool::server(&pair.daemon_b, "rnic-perf", at, &[]);
    for size in sizes {
        for op in OPS {
            let arguments = format!("--op {op} --size {size} --depth 4 --iterations 10 --verify");
            let client = start(&pair.daemon_a, &pair.b, family, PORT, &arguments);
            let _ = client.finish(Duration::from_secs(60)).success();
        }
    }
}

#[test]
fn messages_of_every_size_arrive_over_ipv4() {
    moves(
        &Pair::new("ipv4"),
        Family::V4,
        EDGES.into_iter().chain(LARGE),
    );
}

#[test]
fn messages_of_every_size_arrive_over_ipv6() {
    moves(
        &Pair::new("ipv6"),
        Family::V6,
        EDGES.into_iter().chain(LARGE),
    );
}

#[test]
fn messages_arrive_in_super_packets() {
    let link = LinkOptions {
        offloads: true,
        ..LinkOptions::default()
    };
    let daemon = DaemonOptions {
        mode: Some("super-packets"),
        ..DaemonOptions::default()
    };
    let pair = Pair::with("super", &link, &daemon);
    for family in Family::ALL {
        moves(
            &pair,
            family,
            [0, 1, 1428, 1429, 4096].into_iter().chain(LARGE),
        );
    }
    for daemon in [&pair.daemon_a, &pair.daemon_b] {
        // A Read's responder sends as much as a Write's initiator.
        assert!(daemon.counter("port0_super_packets_sent") > 0);
        assert!(daemon.counter("port0_chains_received") > 0);
        assert_eq!(daemon.counter("port0_bad_receive_chains"), 0);
        assert_eq!(daemon.counter("rx_bad_tcp_checksum"), 0);
    }
}

#[test]
fn messages_arrive_at_the_largest_mtu_of_one_buffer() {
    let link = LinkOptions {
        mtu: 3506,
        ..LinkOptions::default()
    };
    let daemon = DaemonOptions {
        mode: Some("native"),
        ..DaemonOptions::default()
    };
    let pair = Pair::with("mtu", &link, &daemon);
    for family in Family::ALL {
        moves(
            &pair,
            family,
            [0, 1, 3400, 3430, 3436, 3440, 3448, 3466, 3467, 1 << 20],
        );
    }
}

#[test]
fn messages_arrive_in_frames_of_several_buffers() {
    for (mtu, mode) in [(9000, "native"), (11_502, "native"), (9000, "generic")] {
        let link = LinkOptions {
            mtu,
            ..LinkOptions::default()
        };
        let daemon = DaemonOptions {
            mode: Some(mode),
            ..DaemonOptions::default()
        };
        let pair = Pair::with("jumbo", &link, &daemon);
        for family in Family::ALL {
            moves(&pair, family, [0, 1, 3750, 7600, 8960, 8961, 1 << 20]);
        }
    }
}

#[test]
fn segments_are_as_large_as_the_mtu_allows() {
    const BYTES: u64 = 1 << 20;
    // IPv4, TCP with timestamps, and an FPDU's length, DDP header and CRC.
    const HEADERS: u64 = 20 + 32 + 2 + 14 + 4;
    for mtu in [1500, 3506, 9000] {
        let link = LinkOptions {
            mtu,
            ..LinkOptions::default()
        };
        let pair = Pair::with("full", &link, &DaemonOptions::default());
        let at = pair.b.address(Family::V4, PORT);
        let _server = tool::server(&pair.daemon_b, "rnic-perf", at, &[]);
        let size = BYTES.to_string();
        let more = [
            "--op",
            "write",
            "--size",
            &size,
            "--iterations",
            "1",
            "--verify",
        ];
        let _ = tool::client(&pair.daemon_a, "rnic-perf", at, &more)
            .run()
            .success();
        let fpdus = pair.daemon_a.counter("fpdus_sent");
        // A few for the pad, and for what the tool says beside the Write.
        let fewest = BYTES.div_ceil(u64::from(mtu) - HEADERS);
        assert!(
            (fewest..fewest + 10).contains(&fpdus),
            "{fpdus} FPDUs at an MTU of {mtu}"
        );
    }
}

#[test]
fn messages_arrive_over_two_queues() {
    let link = LinkOptions {
        queues: 2,
        ..LinkOptions::default()
    };
    let daemon = DaemonOptions {
        queues: Some(2),
        ..DaemonOptions::default()
    };
    let pair = Pair::with("queues", &link, &daemon);
    for family in Family::ALL {
        moves(&pair, family, [0, 1460, 1 << 20]);
    }
}

/// A veth needs no flow rules: what one end sends by a queue comes to the same queue of the other.
#[test]
fn messages_arrive_over_queues_that_are_the_rnic_s_alone() {
    let link = LinkOptions {
        queues: 4,
        ..LinkOptions::default()
    };
    let said = ["--dedicated-queues", "3,1", "--shards", "2"];
    let daemon = DaemonOptions {
        arguments: said.map(str::to_owned).to_vec(),
        ..DaemonOptions::default()
    };
    let pair = Pair::with("dedicated", &link, &daemon);
    for family in Family::ALL {
        moves(&pair, family, [0, 1460, 1 << 20]);
    }
    for daemon in [&pair.daemon_a, &pair.daemon_b] {
        let log = daemon.log();
        let has_socket =
            |queue: &u32| log.contains(&format!("AF_XDP on {INTERFACE} queue {queue}:"));
        assert_eq!(
            (0..4).filter(has_socket).collect::<Vec<_>>(),
            [1, 3],
            "{log}"
        );
        assert_eq!(daemon.counter("unserved_queues"), 0);
        assert_eq!(daemon.counter("steering_pass_no_socket"), 0);
    }
}

#[test]
fn messages_arrive_in_generic_mode() {
    let daemon = DaemonOptions {
        mode: Some("generic"),
        ..DaemonOptions::default()
    };
    let pair = Pair::with("generic", &LinkOptions::default(), &daemon);
    for family in Family::ALL {
        moves(&pair, family, [0, 1, 1460, 4096, 1 << 20]);
    }
}

#[test]
fn large_frames_arrive_over_a_link_that_loses_some() {
    let link = LinkOptions {
        mtu: 9000,
        cable: Some(Cable::Lossy(5)),
        ..LinkOptions::default()
    };
    let pair = Pair::with("jumbo-loss", &link, &DaemonOptions::default());
    for family in Family::ALL {
        moves(&pair, family, [8961, 1 << 20]);
    }
}

#[test]
fn messages_arrive_over_a_link_that_loses_frames() {
    let link = LinkOptions {
        cable: Some(Cable::Lossy(5)),
        ..LinkOptions::default()
    };
    let pair = Pair::with("lossy", &link, &DaemonOptions::default());
    for family in Family::ALL {
        moves(&pair, family, [1, 4096, 1 << 18]);
    }
}

#[test]
fn a_responder_answers_on_the_vlan_that_it_was_asked_on() {
    const VLAN: u16 = 7;
    let link = LinkOptions {
        cable: Some(Cable::Tagged(VLAN)),
        ..LinkOptions::default()
    };
    let daemon = DaemonOptions {
        capture: true,
        ..DaemonOptions::default()
    };
    let pair = Pair::with("vlan", &link, &daemon);
    // The kernel of the second host has no interface on the VLAN and so does not answer ARP.
    pair.a.knows(&pair.b);
    pair.b.knows(&pair.a);
    for family in Family::ALL {
        moves(&pair, family, [0, 1460, 1 << 16]);
    }
    let capture = pair.daemon_b.capture().to_path_buf();
    let _ = pair.daemon_b.stop();
    let tags = tshark::field(&capture, "vlan.id");
    assert!(
        tags.len() > 1000,
        "only {} frames were captured",
        tags.len()
    );
    assert!(
        tags.iter().all(|tag| *tag == VLAN.to_string()),
        "a frame without the VLAN's tag"
    );
}

#[test]
fn several_transfers_at_once_both_ways_arrive() {
    let pair = Pair::new("at-once");
    let _servers = [(&pair.daemon_b, &pair.b), (&pair.daemon_a, &pair.a)].map(|(daemon, host)| {
        Family::ALL.map(|family| tool::server(daemon, "rnic-perf", host.address(family, PORT), &[]))
    });
    let mut clients = Vec::new();
    for family in Family::ALL {
        for op in OPS {
            let arguments = format!("--op {op} --size 30001 --depth 4 --iterations 500 --verify");
            clients.push(start(&pair.daemon_a, &pair.b, family, PORT, &arguments));
            clients.push(start(&pair.daemon_b, &pair.a, family, PORT, &arguments));
        }
    }
    for client in clients {
        let _ = client.finish(Duration::from_secs(120)).success();
    }
}
