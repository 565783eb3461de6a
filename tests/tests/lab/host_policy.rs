//! What the host's routes and rules reject (`blackhole`, `unreachable`, `prohibit`) is neither sent nor taken: with
//! connections that are there, that programs begin, and that peers begin.

#![allow(clippy::unwrap_used)]

use std::net::IpAddr;
use std::time::Duration;

use rnic::{AcceptOptions, ConnectOptions, DisconnectReason, Error, ListenOptions, RefusalCode};
use rnic::{Transport, WcStatus, WorkRequest};
use rnic_tests::daemon::Daemon;
use rnic_tests::lab::{Family, Host};
use rnic_tests::pair::Pair;
use rnic_tests::verbs::{Endpoint, connect, connect_with};
use rnic_tests::wait;

const PORT: u16 = 18515;
const LIMIT: Duration = Duration::from_secs(20);

/// What rejects, as words of `ip` after the family: a route of each kind to the peer, and a rule of each.
fn rejections(peer: &str) -> Vec<Vec<String>> {
    let words = |text: &str| text.split(' ').map(str::to_owned).collect();
    let kinds = ["blackhole", "unreachable", "prohibit"];
    let routes = kinds.map(|kind| words(&format!("route add {kind} {peer}")));
    let rules = kinds.map(|kind| words(&format!("rule add to {peer} priority 100 {kind}")));
    routes.into_iter().chain(rules).collect()
}

/// `ip`, for one family.
fn ip(host: &Host, family: Family, words: &[String]) {
    let family = match family {
        Family::V4 => "-4",
        Family::V6 => "-6",
    };
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    host.namespace.ip(&[&[family], &words[..]].concat());
}

/// The same words, to take it away.
fn undo(words: &[String]) -> Vec<String> {
    let verb = |word: &String| word.replace("add", "del");
    words.iter().map(verb).collect()
}

fn address(host: &Host, family: Family) -> String {
    host.address(family, 0).ip().to_string()
}

fn sent(daemon: &Daemon) -> u64 {
    let all = daemon.counters();
    let sent = all
        .iter()
        .filter(|(name, _)| name.starts_with("port") && name.ends_with("_transmitted"));
    sent.map(|(_, count)| *count).sum()
}

/// A Write from one end to the other.
fn moves(from: &Endpoint, to: &Endpoint) {
    let all = [from.element(0..64)];
    from.post(WorkRequest::write(1, &all, to.remote()));
    assert_eq!(from.completion().status, WcStatus::Success);
}

#[test]
fn a_connection_ends_when_the_host_comes_to_reject_its_peer_and_another_begins_when_it_no_longer_does()
 {
    let pair = Pair::new("rejects-live");
    let mut ended = [0, 0];
    for family in Family::ALL {
        // Whose host rejects: that of the side that began the connection, or of the one that accepted it.
        for (side, host, peer) in [(0, &pair.a, &pair.b), (1, &pair.b, &pair.a)] {
            let daemon = [&pair.daemon_a, &pair.daemon_b][side];
            for words in rejections(&address(peer, family)) {
                let client = Endpoint::new(&pair.daemon_a, 4096);
                let server = Endpoint::new(&pair.daemon_b, 4096);
                connect(&client, &server, pair.b.address(family, PORT));
                moves(&client, &server);
                let ours = [&client, &server][side];
                let theirs = [&server, &client][side];
                ip(host, family, &words);
                assert_eq!(ours.ending(), DisconnectReason::HostPolicy, "{words:?}");
                ended[side] += 1;
                // A client that asks often gets counters that are a moment old.
                wait::until("it is counted", LIMIT, || {
                    let now = daemon.counter("routes_ended_connections");
                    (now == ended[side]).then_some(())
                });
                // The peer is not told, and gets no answer.
                let before = sent(daemon);
                let all = [theirs.element(0..4096)];
                theirs.post(WorkRequest::write(1, &all, ours.remote()));
                let waited = theirs.qp.disconnected().wait(Duration::from_millis(300));
                let is_waiting = matches!(waited, Err(Error::Timeout { .. }));
                assert!(is_waiting, "{words:?}: {waited:?}");
                assert_eq!(sent(daemon), before, "{words:?}");
                ip(host, family, &undo(&words));
                drop((client, server));
                // What was rejected is told as it was, and is rejected no more.
                wait::until("connections come about again", LIMIT, || {
                    let client = Endpoint::new(&pair.daemon_a, 64);
                    let server = Endpoint::new(&pair.daemon_b, 64);
                    let at = pair.b.address(family, PORT);
                    let options = ListenOptions::default();
                    let _listener = server.context.listen(at, options).unwrap();
                    let options = ConnectOptions::default();
                    // Nobody accepts: a peer that is answered by TCP waits, one that is not too. It is the daemon's
                    // counter that tells.
                    let before = daemon.counter("passive_opens") + daemon.counter("active_opens");
                    let refused = client
                        .qp
                        .connect(at, options)
                        .wait(Duration::from_millis(300));
                    assert!(refused.is_err());
                    let now = daemon.counter("passive_opens") + daemon.counter("active_opens");
                    (now > before).then_some(())
                });
            }
        }
    }
    let log = pair.daemon_a.log();
    for named in [
        "route `blackhole 198.18.",
        "route `prohibit 2001:db8:",
        "rule `100: from all to 198.18.",
        "see `ip rule` and `ip route`",
    ] {
        assert!(log.contains(named), "{named}: {log}");
    }
}

#[test]
fn a_route_that_rejects_for_less_than_a_second_ends_no_connection() {
    let pair = Pair::new("rejects-flap");
    let client = Endpoint::new(&pair.daemon_a, 4096);
    let server = Endpoint::new(&pair.daemon_b, 4096);
    connect(&client, &server, pair.b.address(Family::V4, PORT));
    let words = rejections(&address(&pair.b, Family::V4)).remove(0);
    for _ in 0..20 {
        ip(&pair.a, Family::V4, &words);
        ip(&pair.a, Family::V4, &undo(&words));
    }
    // Wider than what leads there.
    let wider: Vec<String> = ["route", "add", "blackhole", "198.18.0.0/15"]
        .map(str::to_owned)
        .to_vec();
    ip(&pair.a, Family::V4, &wider);
    let waited = client.qp.disconnected().wait(Duration::from_secs(2));
    assert!(matches!(waited, Err(Error::Timeout { .. })), "{waited:?}");
    moves(&client, &server);
    assert_eq!(pair.daemon_a.counter("routes_ended_connections"), 0);
}

#[test]
fn sctp_and_all_connections_with_a_peer_end_with_the_route() {
    let pair = Pair::new("rejects-sctp");
    let at = pair.b.address(Family::V4, PORT);
    let ends: Vec<_> = [Transport::Sctp, Transport::Sctp, Transport::Tcp]
        .into_iter()
        .map(|transport| {
            let client = Endpoint::new(&pair.daemon_a, 64);
            let server = Endpoint::new(&pair.daemon_b, 64);
            let options = ConnectOptions::default().transport(transport);
            let listen = ListenOptions::default().transport(transport);
            connect_with(&client, &server, at, listen, options);
            (client, server)
        })
        .collect();
    let words = rejections(&address(&pair.b, Family::V4)).remove(2);
    ip(&pair.a, Family::V4, &words);
    for (client, _) in &ends {
        assert_eq!(client.ending(), DisconnectReason::HostPolicy);
    }
}

#[test]
fn who_begins_a_connection_to_a_host_that_rejects_it_is_not_accepted_and_then_gets_no_answer() {
    let pair = Pair::new("rejects-accept");
    for family in Family::ALL {
        for words in rejections(&address(&pair.a, family)) {
            ip(&pair.b, family, &words);
            let at = pair.b.address(family, PORT);
            let server = Endpoint::new(&pair.daemon_b, 64);
            let listener = server
                .context
                .listen(at, ListenOptions::default().backlog(8))
                .unwrap();
            let try_connect = |patience: u64| {
                let client = Endpoint::new(&pair.daemon_a, 64);
                let options = ConnectOptions::default();
                client
                    .qp
                    .connect(at, options)
                    .wait(Duration::from_millis(patience))
            };
            // Until the daemon has followed, which takes some milliseconds, it accepts.
            let refusal = wait::until("a connection is not accepted", LIMIT, || {
                let end = Endpoint::of(server.context.clone(), 64);
                std::thread::scope(|scope| {
                    let client = scope.spawn(|| try_connect(1500));
                    let request = listener.accept().wait(LIMIT).unwrap();
                    let accepted = request
                        .accept(&end.qp, AcceptOptions::default())
                        .wait(LIMIT);
                    let connected = client.join().unwrap();
                    match accepted {
                        Err(Error::Refused(refusal)) => {
                            let is_silent = matches!(connected, Err(Error::Timeout { .. }));
                            assert!(is_silent, "{words:?}: {connected:?}");
                            Some(refusal)
                        }
                        _ => None,
                    }
                })
            });
            assert_eq!(refusal.code, RefusalCode::Unreachable, "{refusal}");
            assert!(refusal.message.contains("see `ip rule`"), "{refusal}");
            // Not even TCP answers any more.
            let opened = pair.daemon_b.counter("passive_opens");
            let refused = try_connect(500);
            assert!(matches!(refused, Err(Error::Timeout { .. })), "{refused:?}");
            assert_eq!(pair.daemon_b.counter("passive_opens"), opened, "{words:?}");
            // This host's own programs are not meant.
            drop(listener);
            let own = Endpoint::new(&pair.daemon_b, 64);
            connect(&own, &server, at);
            ip(&pair.b, family, &undo(&words));
            let end = Endpoint::new(&pair.daemon_b, 64);
            wait::until("the peer is accepted again", LIMIT, || {
                let client = Endpoint::new(&pair.daemon_a, 64);
                let listener = end
                    .context
                    .listen(at, ListenOptions::default().backlog(8))
                    .unwrap();
                std::thread::scope(|scope| {
                    let client = scope.spawn(|| {
                        let options = ConnectOptions::default();
                        client.qp.connect(at, options).wait(Duration::from_secs(1))
                    });
                    let request = listener.accept().wait(Duration::from_secs(1));
                    if let Ok(request) = request {
                        let _ = request.reject(&[]);
                    }
                    let ended = client.join().unwrap();
                    matches!(ended, Err(Error::Rejected { .. })).then_some(())
                })
            });
        }
    }
    assert!(pair.daemon_b.counter("routes_dropped_segments") > 0);
}

/// Connects by TCP with these IPv4 options in all packets, and says how that ends.
const WITH_OPTIONS: &str = r#"
import socket, sys

stream = socket.socket()
stream.settimeout(3)
stream.setsockopt(socket.IPPROTO_IP, socket.IP_OPTIONS, bytes.fromhex(sys.argv[3]))
try:
    stream.connect((sys.argv[1], int(sys.argv[2])))
    print("connected")
except TimeoutError:
    print("silent")
"#;

#[test]
fn a_peer_that_chooses_the_route_of_its_packets_gets_no_answer() {
    let pair = Pair::new("source-route");
    let at = pair.b.address(Family::V4, PORT);
    let server = Endpoint::new(&pair.daemon_b, 64);
    let _listener = server
        .context
        .listen(at, ListenOptions::default().backlog(8))
        .unwrap();
    let IpAddr::V4(ours) = at.ip() else {
        panic!("{at} is of IPv4")
    };
    let ours: String = ours.octets().map(|byte| format!("{byte:02x}")).concat();
    let connect = |options: &str| {
        let python = pair.a.namespace.command("python3");
        let (ip, port) = (at.ip().to_string(), PORT.to_string());
        let arguments = ["-c", WITH_OPTIONS, &ip, &port, options];
        python.args(arguments).run().success().stdout
    };
    assert_eq!(connect("01010101"), "connected\n");
    for (count, route) in [(1, "83"), (2, "89")] {
        let before = sent(&pair.daemon_b);
        // By way of the server itself.
        assert_eq!(connect(&format!("01{route}0704{ours}")), "silent\n");
        assert_eq!(sent(&pair.daemon_b), before);
        assert!(pair.daemon_b.counter("rx_source_route") >= count);
    }
}
