use rnic::admin::{ClientInfo, Stage};

use super::*;

fn shown(object: Object) -> Shown {
    Shown {
        interface: Some("eth0".to_owned()),
        object,
    }
}

fn client(number: u32) -> Shown {
    shown(Object::Client(ClientInfo {
        client: ClientId(number),
        pid: 4_000_000,
        uid: 1000,
        gid: 1000,
        program: "fifteen-letters".to_owned(),
        holds: Vec::new(),
        refused: 0,
    }))
}

fn connection(number: u32, client: u32, remote: &str, bytes_in: u64, bytes_out: u64) -> Shown {
    shown(Object::Connection(ConnectionInfo {
        connection: number,
        client: Some(ClientId(client)),
        qp: None,
        local: "198.18.0.1:50000".parse().unwrap(),
        remote: remote.parse().unwrap(),
        stage: Stage::Rdma,
        transport: rnic::Transport::Tcp,
        state: "ESTABLISHED".to_owned(),
        rtt_us: Some(40),
        rtt_deviation_us: 1,
        mss: 1448,
        cwnd: 14_480,
        in_flight: 0,
        bytes_in,
        bytes_out,
        retransmits: bytes_out / 1000,
        timeouts: 0,
        bytes_out_of_order: 0,
        udp_port: None,
        peer_addresses: Vec::new(),
    }))
}

const PEER: &str = "198.18.0.2:7471";
const TIME: Duration = Duration::from_secs(2);

#[test]
fn what_moves_most_is_first_and_a_client_has_the_sum_of_its_connections() {
    let before = [
        connection(1, 7, PEER, 1000, 0),
        connection(2, 8, PEER, 0, 50_000),
    ];
    let now = [
        connection(1, 7, PEER, 1400, 0),
        connection(2, 8, PEER, 0, 60_000),
        // It began after the first look.
        connection(3, 8, PEER, 0, 2000),
    ];
    let found = Activity::between(&before, &now, &[client(7), client(8), client(9)], TIME);
    let order: Vec<_> = found.connections.iter().map(|one| one.connection).collect();
    assert_eq!(order, [2, 3, 1]);
    let clients: Vec<_> = found
        .clients
        .iter()
        .map(|one| (one.client.0, one.connections, one.rates.moved()))
        .collect();
    assert_eq!(clients, [(8, 2, 6000.0), (7, 1, 200.0), (9, 0, 0.0)]);
    assert_eq!(found.clients[0].rates.retransmits, 6.0);
}

/// A number is another connection's when that of before is over.
#[test]
fn another_connection_of_the_same_number_is_counted_from_its_beginning() {
    let before = [connection(1, 7, PEER, 5000, 0)];
    let now = [connection(1, 7, "198.18.0.2:7472", 6000, 0)];
    let found = Activity::between(&before, &now, &[], TIME);
    assert_eq!(found.connections[0].rates.bytes_in, 3000.0);
}

#[test]
fn the_longest_addresses_and_names_fit_80_columns() {
    let peer = "[2001:db8:1111:2222:3333:4444:5555:6666]:65535";
    let now = [connection(12_345, 8, peer, 1 << 40, 1 << 40)];
    let clients = [client(8)];
    let found = Activity::between(&[], &now, &clients, TIME);
    let text = found.text(&Programs::of(&clients), true, Some(80), 10);
    for line in text.lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
    assert!(text.contains(peer) && text.contains("512 GiB"), "{text}");
    assert!(
        text.starts_with("1 clients, 1 connections: in 512 GiB/s"),
        "{text}"
    );
    let none = found.text(&Programs::default(), false, None, 0);
    assert!(!none.contains("fifteen-letters"), "{none}");
}

/// Programs depend on these names: a change of one is a change of the interface.
#[test]
fn json_has_the_documented_keys() {
    let found = Activity::between(&[], &[connection(1, 7, PEER, 1, 1)], &[client(7)], TIME);
    let value = serde_json::to_value(&found).unwrap();
    let keys = |value: &serde_json::Value| -> Vec<String> {
        value.as_object().unwrap().keys().cloned().collect()
    };
    assert_eq!(keys(&value), ["clients", "connections", "seconds"]);
    let rates = ["bytes_in_per_second", "bytes_out_per_second"];
    let client = keys(&value["clients"][0]);
    assert_eq!(client[..2], rates);
    assert_eq!(
        client[2..],
        [
            "client",
            "connections",
            "interface",
            "pid",
            "program",
            "retransmits_per_second"
        ]
    );
    let connection = keys(&value["connections"][0]);
    assert_eq!(connection[..2], rates);
    assert_eq!(
        connection[2..],
        [
            "client",
            "connection",
            "interface",
            "local",
            "remote",
            "retransmits_per_second",
            "rtt_us"
        ]
    );
}
