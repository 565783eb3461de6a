//! DDP over SCTP between two RNICs, as programs use it: daemons on the two ends of a veth pair.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use rnic::{
    AcceptOptions, ConnectOptions, Context, DisconnectReason, Error, ListenOptions, Listener,
    QpConfig, QueuePair, Transport,
};
use rnic_tests::daemon::Daemon;
use rnic_tests::lab::Family;
use rnic_tests::pair::Pair;
use rnic_tests::{tool, wait};

const PORT: u16 = 18515;
const LIMIT: Duration = Duration::from_secs(30);
const FAMILIES: [Family; 2] = [Family::V4, Family::V6];

#[test]
fn rnic_ping_and_rnic_perf_move_verified_bytes_over_both_families() {
    let pair = Pair::new("sctp-tools");
    for family in FAMILIES {
        let at = pair.b.address(family, PORT);
        let _server = tool::server(&pair.daemon_b, "rnic-ping", at, &["--sctp"]);
        let ping = &["--sctp", "--count", "20", "--size", "60000"];
        let report = tool::report(
            &tool::client(&pair.daemon_a, "rnic-ping", at, ping)
                .run()
                .success(),
        );
        assert_eq!(report["rounds"], 20, "{report}");
        let at = pair.b.address(family, PORT + 1);
        let _server = tool::server(&pair.daemon_b, "rnic-perf", at, &["--sctp"]);
        for op in ["write", "read", "send"] {
            let plan = ["--sctp", "--op", op, "--verify", "--bytes", "20M"];
            let client = tool::client(&pair.daemon_a, "rnic-perf", at, &plan);
            let report = tool::report(&client.run().success());
            assert!(
                report["verified_bytes"].as_u64() >= Some(20 << 20),
                "{report}"
            );
        }
        let plan = [
            "--sctp",
            "--op",
            "write",
            "--latency",
            "--iterations",
            "200",
        ];
        let client = tool::client(&pair.daemon_a, "rnic-perf", at, &plan);
        assert!(tool::report(&client.run().success())["latency"].is_object());
    }
}

/// A queue pair of a program.
fn queue_pair(context: &Context) -> QueuePair {
    let pd = context.alloc_pd().expect("within limits");
    let cq = context.create_cq(16).expect("within limits");
    pd.create_qp(&cq, &cq, QpConfig::default())
        .expect("within limits")
}

fn sctp() -> ConnectOptions {
    ConnectOptions::default().transport(Transport::Sctp)
}

/// TCP and SCTP are listened to on one port, and each brings its own.
#[test]
fn the_ports_of_tcp_and_sctp_are_apart() {
    let pair = Pair::new("sctp-ports");
    let at = pair.b.address(Family::V4, PORT);
    let [a, b] = [&pair.daemon_a, &pair.daemon_b].map(|daemon| daemon.open());
    let over_tcp = b
        .listen(at, ListenOptions::default().backlog(4))
        .expect("nobody listens there");
    let refused = queue_pair(&a).connect(at, sctp()).wait(LIMIT);
    let refused = refused.expect_err("nobody listens with SCTP");
    let is_refused = matches!(
        &refused,
        Error::ConnectFailed { reason, .. } if *reason == DisconnectReason::Refused
    );
    assert!(is_refused, "{refused:?}");
    let options = ListenOptions::default().transport(Transport::Sctp);
    let over_sctp = b.listen(at, options).expect("a port of its own");
    for (listener, transport) in [(&over_tcp, Transport::Tcp), (&over_sctp, Transport::Sctp)] {
        let (asks, takes) = (queue_pair(&a), queue_pair(&b));
        std::thread::scope(|scope| {
            let accepted = scope.spawn(|| {
                let request = listener.accept().wait(LIMIT).expect("a peer asks");
                assert_eq!(request.private_data(), b"who");
                request
                    .accept(&takes, AcceptOptions::default().private_data(b"me"))
                    .wait(LIMIT)
            });
            let options = sctp().transport(transport).private_data(*b"who");
            let established = asks
                .connect(at, options)
                .wait(LIMIT)
                .expect("it is accepted");
            assert_eq!(established.private_data, b"me");
            assert_eq!(established.mpa.crc, transport == Transport::Tcp);
            accepted.join().expect("no panic").expect("it is accepted");
        });
    }
}

/// A program that is killed, and a daemon that is killed, are no riddle to their peers.
#[test]
fn the_end_of_a_daemon_is_told_to_its_peer() {
    let mut pair = Pair::new("sctp-killed");
    let at = pair.b.address(Family::V6, PORT);
    let [a, b] = [&pair.daemon_a, &pair.daemon_b].map(|daemon| daemon.open());
    let options = ListenOptions::default().transport(Transport::Sctp);
    let listener = b.listen(at, options).expect("nobody listens there");
    let (asks, takes) = (queue_pair(&a), queue_pair(&b));
    connect_both(&listener, (&asks, &takes), at);
    pair.daemon_b.kill();
    let error = asks
        .disconnected()
        .wait(LIMIT)
        .expect_err("no end in peace");
    let is_reset = matches!(
        &error,
        Error::Disconnected { reason, .. } if *reason == DisconnectReason::Reset
    );
    assert!(is_reset, "{error:?}");
    pair.daemon_a.assert_alive();
}

/// Queue pairs of one client share an association; another client's have one of their own, and outlive it.
#[test]
fn queue_pairs_of_a_client_share_an_association() {
    const COUNT: usize = 3;
    let pair = Pair::new("sctp-shared");
    let at = pair.b.address(Family::V6, PORT);
    let open = |daemon: &Daemon| daemon.open();
    let b = open(&pair.daemon_b);
    let options = ListenOptions::default().transport(Transport::Sctp);
    let listener = b.listen(at, options).expect("nobody listens there");
    let associations = || [&pair.daemon_a, &pair.daemon_b].map(|it| it.counter("associations"));
    let connect = |context: &Context| {
        let (asks, takes) = (queue_pair(context), queue_pair(&b));
        connect_both(&listener, (&asks, &takes), at);
        (asks, takes)
    };
    let [first, second] = [(); 2].map(|()| {
        let context = open(&pair.daemon_a);
        let queue_pairs: Vec<_> = (0..COUNT).map(|_| connect(&context)).collect();
        (context, queue_pairs)
    });
    assert_eq!(associations(), [2, 2]);
    assert_eq!(pair.daemon_a.counter("connections"), 2 * COUNT as u64);
    for (_, queue_pairs) in [&first, &second] {
        let ports = queue_pairs.iter().map(|(asks, _)| asks.local_addr());
        let ports: BTreeSet<_> = ports
            .map(|local| local.expect("connected").port())
            .collect();
        assert_eq!(ports.len(), 1, "{ports:?}");
    }
    // One goes in order, and its client with all others in none.
    let (context, mut queue_pairs) = first;
    let (asks, takes) = queue_pairs.pop().expect("there are some");
    asks.disconnect().wait(LIMIT).expect("it is connected");
    takes.disconnected().wait(LIMIT).expect("an end in peace");
    assert_eq!(associations(), [2, 2]);
    let (asked, taken): (Vec<_>, Vec<_>) = queue_pairs.into_iter().unzip();
    drop((asked, context));
    for takes in taken {
        takes
            .disconnected()
            .wait(LIMIT)
            .expect_err("no end in peace");
    }
    wait::until("the association is gone", LIMIT, || {
        (associations() == [1, 1]).then_some(())
    });
    let (_context, queue_pairs) = second;
    for (asks, takes) in queue_pairs {
        asks.disconnect().wait(LIMIT).expect("it is connected");
        takes.disconnected().wait(LIMIT).expect("an end in peace");
    }
    wait::until("nothing is left", LIMIT, || {
        (associations() == [0, 0]).then_some(())
    });
}

fn connect_both(listener: &Listener, (asks, takes): (&QueuePair, &QueuePair), at: SocketAddr) {
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let request = listener.accept().wait(LIMIT).expect("a peer asks");
            request
                .accept(takes, AcceptOptions::default())
                .wait(LIMIT)
                .expect("the peer waits");
        });
        asks.connect(at, sctp())
            .wait(LIMIT)
            .expect("it is accepted");
    });
}
