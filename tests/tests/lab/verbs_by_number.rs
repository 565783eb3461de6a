//! Debian's programs that connect queue pairs by `ibv_modify_qp`, unmodified, between two daemons.

use std::io::Write;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::Duration;

use rnic::{MpaOptions, WcStatus, WorkRequest};
use rnic_tests::daemon::{Daemon, DaemonOptions};
use rnic_tests::lab::{Command, Family, INTERFACE, Lab, LinkOptions};
use rnic_tests::linksim::Linksim;
use rnic_tests::pair::Pair;
use rnic_tests::programs::Programs;
use rnic_tests::verbs::{Endpoint, LIMIT};

use super::verbs_semantics::{C, built};
use super::wrong_input_peer::{request, tell};

/// The first of the ports of joins.
const JOIN_PORT: u16 = 30720;

/// perftest's programs, without `-R`.
const PERFTEST: [&str; 9] = [
    "ib_write_bw -n 200",
    "ib_write_bw -n 10 -a",
    "ib_write_bw -n 100 -q 4 -b",
    "ib_read_bw -n 200 -q 8",
    "ib_write_lat -n 100 -I 64",
    "ib_read_lat -n 100 -e",
    "ib_send_lat -n 100 -s 8192",
    "ib_atomic_bw -n 100",
    "ib_atomic_lat -n 100 -A CMP_AND_SWAP",
];

/// Those that end with this line, on an RNIC and without `-R`: they keep a region for credits, which Debian's perftest
/// (4.5) deregisters only with `-R`.
const PERFTEST_SEND: [&str; 3] = [
    "ib_send_bw -n 200",
    "ib_send_bw -n 200 -e -Q 1 -s 4096",
    "ib_send_bw -n 200 -r 16 --use-srq",
];
const LEFT_OVER: &str =
    "Failed to deallocate PD - Device or resource busy\nCouldn't destroy all SEND resources\n";

#[test]
fn perftest_measures_over_queue_pairs_joined_by_number() {
    let programs = Programs::new("number-perftest");
    for program in PERFTEST {
        let line = format!("{program} -F -d rnic_{INTERFACE}");
        let both = programs.run_by_number(&line, &programs.address()).success();
        assert!(both.client.stdout.contains("#bytes"), "{}", both.client);
    }
    for program in PERFTEST_SEND {
        let line = format!("{program} -F -d rnic_{INTERFACE}");
        let both = programs.run_by_number(&line, &programs.address());
        // The row of results.
        assert!(both.client.stdout.contains(" 200  "), "{}", both.client);
        assert_eq!(both.client.stderr, LEFT_OVER, "{}", both.client);
    }
    for program in ["ib_write_bw -n 200", "ib_send_lat -n 100"] {
        let line = format!("{program} -F -d rnic_{INTERFACE} --ipv6");
        let both = programs.run_by_number(&line, &programs.address()).success();
        let gid = both.client.stdout.contains(" GID: 32:01:13:184");
        assert!(gid, "{}", both.client);
    }
}

#[test]
fn ping_pongs_find_their_peers_by_number() {
    let programs = Programs::new("number-pingpong");
    for program in [
        "ibv_rc_pingpong -g 0 -c",
        "ibv_rc_pingpong -g 0 -c -e",
        "ibv_rc_pingpong -g 0 -n 20000 -r 1",
        "ibv_rc_pingpong -g 0 -c -N",
        "ibv_rc_pingpong -g 0 -c -s 4000000 -n 20",
        "ibv_rc_pingpong -g 1 -c",
        "ibv_srq_pingpong -g 0 -q 16",
    ] {
        let line = format!("{program} -d rnic_{INTERFACE}");
        let both = programs.run_by_number(&line, &programs.address()).success();
        assert!(both.client.stdout.contains("usec/iter"), "{}", both.client);
    }
    let line = format!("ibv_rc_pingpong -d rnic_{INTERFACE}");
    // Whose state changes first.
    let said = programs.run_by_number(&line, &programs.address());
    let said = said.server.failure();
    assert!(said.contains("give a GID index"), "{said}");
}

/// On which host a program runs.
type On = fn(&Programs, &str) -> Command;

/// Runs both ends of `joined.c`, of which the second is killed.
fn run_joined(programs: &Programs, rounds: u32, [first, killed]: [On; 2]) {
    let program = built(programs, "joined.c", C);
    let socket = programs.pair.lab.directory().join("socket");
    let (program, socket) = (program.display(), socket.display());
    let end = |role: &str| format!("env {program} {role} {socket} {rounds}");
    let b = killed(programs, &end("b")).spawn();
    let a = first(programs, &end("a")).run();
    let b = b.finish(Duration::from_secs(30));
    assert!(a.status.success(), "{a}\n{b}");
    assert_eq!(b.stderr, "", "{b}");
}

#[test]
fn joined_queue_pairs_are_as_those_of_infiniband() {
    let programs = Programs::new("number-joined");
    run_joined(&programs, 1000, [Programs::on_a, Programs::on_b]);
}

/// The end that goes away is the one that has connected.
#[test]
fn joined_queue_pairs_are_as_those_of_infiniband_from_the_other_end() {
    let programs = Programs::new("number-turned");
    run_joined(&programs, 1000, [Programs::on_b, Programs::on_a]);
}

#[test]
fn joined_queue_pairs_of_one_rnic_are_as_those_of_infiniband() {
    let programs = Programs::new("number-one-rnic");
    run_joined(&programs, 1000, [Programs::on_b, Programs::on_b]);
}

#[test]
fn joined_queue_pairs_are_as_those_of_infiniband_over_two_shards() {
    let link = LinkOptions {
        queues: 2,
        ..LinkOptions::default()
    };
    let daemon = DaemonOptions {
        queues: Some(2),
        ..DaemonOptions::default()
    };
    let programs = Programs::of(Pair::with("number-shards", &link, &daemon));
    run_joined(&programs, 1000, [Programs::on_a, Programs::on_b]);
    // Flows go to either shard.
    for program in ["ibv_srq_pingpong -g 0 -q 16", "ib_write_bw -n 20 -q 64 -F"] {
        let line = format!("{program} -d rnic_{INTERFACE}");
        let _ = programs.run_by_number(&line, &programs.address()).success();
    }
}

/// The private data of a Request: who joins whom (docs/extensions.md), after RFC 6581's words.
fn hello(version: u8, numbers: [u32; 2], addresses: [IpAddr; 2]) -> Vec<u8> {
    let enhanced = [0x80, 16, 0x80, 16];
    let mut bytes = [&enhanced[..], b"rnicjoin", &[version, 1, 0, 0]].concat();
    bytes.extend(numbers.iter().flat_map(|number| number.to_be_bytes()));
    for address in addresses {
        let gid = match address {
            IpAddr::V4(address) => address.to_ipv6_mapped(),
            IpAddr::V6(address) => address,
        };
        bytes.extend(gid.octets());
    }
    bytes
}

/// Requests of whoever can send to the port are rejected, all alike, and so are too many that are not whole; the right
/// one is served beside them.
#[test]
fn requests_to_join_that_fit_no_queue_pair_are_rejected_alike() {
    let pair = Pair::new("number-hostile");
    let [a, b] = [&pair.daemon_a, &pair.daemon_b].map(|daemon| Endpoint::new(daemon, 4096));
    let addresses = [&pair.a, &pair.b].map(|host| host.address(Family::V4, 0).ip());
    let number = |end: &Endpoint| {
        let number = end.context.join_number(end.qp.num());
        number.expect("the daemon serves").expect("it is small")
    };
    let numbers = [number(&a), number(&b)];
    let joins = |end: &Endpoint, [own, peer]: [usize; 2]| {
        let remote = (addresses[peer], numbers[peer]);
        end.qp
            .join(addresses[own], remote, MpaOptions::default())
            .detach()
    };
    joins(&b, [1, 0]).expect("it may be joined");
    let slot = u16::try_from(numbers[1] >> 20).expect("4 bits");
    let port = SocketAddr::new(addresses[1], JOIN_PORT + slot);
    let mpa = |private_data: &[u8]| {
        let length = u16::try_from(private_data.len()).expect("it is short");
        request(0x50, 2, length, private_data)
    };
    let swapped = [numbers[1], numbers[0]];
    let wrong = [
        mpa(&hello(1, numbers, addresses)[..4]),
        mpa(&hello(1, numbers, addresses)[..40]),
        mpa(&hello(2, numbers, addresses)),
        mpa(&hello(1, [numbers[0] ^ 1, numbers[1]], addresses)),
        mpa(&hello(1, [numbers[0], numbers[1] ^ 1], addresses)),
        mpa(&hello(1, swapped, addresses)),
        mpa(&hello(1, numbers, [addresses[1], addresses[1]])),
        mpa(&hello(1, numbers, [addresses[0], addresses[0]])),
    ];
    // Together, because some of them wait for their queue pair.
    let tell = |bytes: &[u8]| tell(&pair.a, port, bytes);
    let answers: Vec<Vec<u8>> = std::thread::scope(|scope| {
        let told = (wrong.iter()).map(|bytes| scope.spawn(|| tell(bytes)));
        let told: Vec<_> = told.collect();
        told.into_iter()
            .map(|told| told.join().expect("it is answered"))
            .collect()
    });
    for answer in &answers {
        assert_eq!(answer, &answers[0]);
        assert!(answer.starts_with(b"MPA ID Rep Frame"), "{answer:?}");
        // The reject bit, and nothing but RFC 6581's words.
        assert!(answer[16] & 0x20 != 0 && answer.len() <= 24, "{answer:?}");
    }
    assert_eq!(tell(b"GET / HTTP/1.1\r\n\r\n"), b"");
    // They are not whole.
    let connect = || {
        (0..300)
            .map(|_| TcpStream::connect_timeout(&port, LIMIT))
            .collect()
    };
    let halves: Vec<_> = pair.a.namespace.in_thread(connect);
    for mut half in halves.iter().flatten() {
        let _ = half.write_all(b"MPA ID Req Frame");
    }
    joins(&a, [0, 1]).expect("it may be joined");
    let mut random = [0; 64];
    a.fill(7);
    random.copy_from_slice(&a.content()[..64]);
    a.post(WorkRequest::write(1, &[a.element(0..64)], b.remote()));
    assert_eq!(a.completion().status, WcStatus::Success);
    assert_eq!(b.content()[..64], random);
}

/// A completion that came too early is seen here.
#[test]
fn joined_queue_pairs_are_as_those_of_infiniband_over_a_long_and_bad_link() {
    let mut lab = Lab::new("number-joined-far");
    let (a, middle, b) = lab.over(&LinkOptions::default());
    let options = DaemonOptions::default();
    let (daemon_a, daemon_b) = (
        Daemon::start(&lab, &a, &options),
        Daemon::start(&lab, &b, &options),
    );
    let _link = Linksim::start(&middle, &["--delay=20ms", "--loss=1%"]);
    let pair = Pair {
        daemon_a,
        daemon_b,
        a,
        b,
        lab,
    };
    run_joined(&Programs::of(pair), 30, [Programs::on_a, Programs::on_b]);
}
