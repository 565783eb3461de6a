//! The backlog of a listener: silent connections keep no place that others want.

use std::time::Duration;

use rnic_engine::command::Command;

use crate::raw::{Duel, request};
use crate::side::SideConfig;

#[test]
fn who_says_nothing_is_reset_long_before_who_says_half_a_request() {
    let mut duel = Duel::new(SideConfig::default());
    duel.side.listen(4, duel.now);
    duel.connect();
    duel.run_for(Duration::from_millis(4900));
    assert_eq!(duel.side.shard.levels().connections, 1);
    duel.run_for(Duration::from_millis(200));
    assert_eq!(duel.side.shard.levels().connections, 0);
    duel.connect_from("198.18.0.9:5001");
    duel.send(&request(0, b"")[..1], 1448);
    duel.run_for(Duration::from_millis(9900));
    assert_eq!(duel.side.shard.levels().connections, 1);
    duel.run_for(Duration::from_millis(200));
    assert_eq!(duel.side.shard.levels().connections, 0);
    assert_eq!(duel.side.counter("startup_timeouts"), 2);
}

#[test]
fn silent_connections_do_not_close_a_listener_to_a_neighbour() {
    let mut duel = Duel::new(SideConfig::default());
    duel.side.listen(8, duel.now);
    for number in 0..100 {
        duel.connect_from(&format!("198.18.0.9:{}", 5000 + number));
    }
    duel.connect_innocent();
    duel.send_innocent(&request(0, b"honest"));
    let (_, _, data) = duel.side.take_request().expect("a request");
    assert_eq!(data, b"honest");
    assert_eq!(duel.side.counter("backlog_evicted"), 93);
    assert_eq!(duel.side.counter("backlog_full"), 0);
}

#[test]
fn a_flood_from_one_network_takes_no_place_of_another() {
    let mut duel = Duel::new(SideConfig::default());
    duel.side.listen(8, duel.now);
    let flood = |duel: &mut Duel, ports: std::ops::Range<u16>| {
        // With a first byte of a Request too: that alone keeps no place.
        for port in ports {
            duel.connect_from(&format!("198.18.0.{}:{port}", port % 200 + 3));
            duel.send(b"M", 1);
        }
    };
    flood(&mut duel, 5000..5100);
    // The oldest of all when the second half of the flood comes.
    duel.connect_innocent_from("198.18.7.10:5000");
    flood(&mut duel, 5100..5200);
    duel.send_innocent(&request(0, b"honest"));
    let (_, _, data) = duel.side.take_request().expect("a request");
    assert_eq!(data, b"honest");
    assert_eq!(duel.side.counter("backlog_full"), 0);
}

/// Nobody answers: the program looks at nothing.
#[test]
fn requests_of_one_network_do_not_close_a_listener_to_another() {
    let mut duel = Duel::new(SideConfig::default());
    duel.side.listen(8, duel.now);
    for port in 5000..5100 {
        duel.connect_from(&format!("198.18.0.{}:{port}", port % 200 + 3));
        duel.send(&request(0, b"flood"), 1448);
    }
    assert_eq!(duel.side.counter("backlog_full"), 92);
    duel.connect_innocent_from("198.18.7.10:5000");
    duel.send_innocent(&request(0, b"honest"));
    let mut asked = std::iter::from_fn(|| duel.side.take_request());
    assert!(asked.any(|(_, _, data)| data == b"honest"));
    assert_eq!(duel.side.counter("backlog_evicted"), 1);
    assert_eq!(duel.side.counter("backlog_full"), 92);
}

/// An innocent peer connects and asks, while others have filled the table of connections, which has 64
/// places.
fn assert_innocent_is_heard(duel: &mut Duel) {
    duel.connect_innocent_from("198.18.7.10:5000");
    duel.send_innocent(&request(0, b"honest"));
    let mut asked = std::iter::from_fn(|| duel.side.take_request());
    assert!(asked.any(|(_, _, data)| data == b"honest"));
    assert!(duel.side.counter("backlog_evicted") > 100);
    assert!(duel.side.shard.levels().connections < 64);
}

#[test]
fn rejected_peers_that_never_close_keep_no_place_that_others_want() {
    let mut duel = Duel::new(SideConfig::default());
    duel.side.listen(8, duel.now);
    for port in 5000..5200 {
        duel.connect_from(&format!("198.18.0.9:{port}"));
        duel.send(&request(0, b""), 1448);
        let (request, ..) = duel.side.take_request().expect("a request");
        let private_data = Vec::new();
        let reject = Command::Reject {
            request,
            private_data,
        };
        duel.side.shard.execute(reject, duel.now).unwrap();
        duel.pump();
    }
    assert_innocent_is_heard(&mut duel);
}

#[test]
fn a_backlog_of_more_places_than_there_are_connections_is_not_closed_by_silent_ones() {
    let mut duel = Duel::new(SideConfig::default());
    duel.side.listen(1000, duel.now);
    for port in 5000..5200 {
        duel.connect_from(&format!("198.18.0.9:{port}"));
    }
    assert_innocent_is_heard(&mut duel);
}
