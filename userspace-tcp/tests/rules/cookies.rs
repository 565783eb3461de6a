//! SYN cookies (RFC 4987 section 3.6).

use userspace_net::{Endpoint, FourTuple};
use userspace_tcp::{Config, Counters, Event, Flags, Options, Segment, TcpHeader};

use crate::script::*;

/// A listener whose SYN queue is full of a stranger's SYN.
fn full(config: Config) -> Script {
    let mut script = Script::new(config);
    script.stack.listen(local(), 1).unwrap();
    let header = script.header(Flags::SYN, 0, 0, 1000, Options::default());
    give_stranger(&mut script, header);
    assert!(script.stack.poll_transmit(script.now).is_some());
    script
}

fn give_stranger(script: &mut Script, header: TcpHeader) {
    let stranger = Endpoint {
        port: 1,
        ..remote()
    };
    let tuple = FourTuple::new(local(), stranger);
    let segment = Segment::new(header, &[]);
    script.stack.receive(script.now, tuple, &segment, OPTIONS);
}

fn cookies(script: &Script) -> [u64; 3] {
    let Counters {
        cookies_sent,
        cookies_accepted,
        cookies_rejected,
        ..
    } = script.stack.counters();
    [cookies_sent, cookies_accepted, cookies_rejected]
}

/// The network doubles a SYN. One copy is answered by a cookie, which the script's peer knows of; when
/// the other comes there is room for a half-open connection.
fn doubled_syn() -> Script {
    let mut script = full(plain());
    script.give(Flags::SYN, 0, 0, 0);
    script.one();
    let cookie = script.iss;
    let header = script.header(Flags::RST, 1, 0, 1000, Options::default());
    give_stranger(&mut script, header);
    script.give(Flags::SYN, 0, 0, 0);
    script.one();
    assert_ne!(script.iss, cookie);
    script.iss = cookie;
    script
}

#[test]
fn a_cookie_counts_although_a_copy_of_the_syn_has_made_a_half_open_connection() {
    let mut script = doubled_syn();
    let received = script.give(ACK, 1, 1, 100);
    assert!(matches!(script.events()[..], [Event::Incoming { .. }]));
    assert_eq!((received.new[0].offset, received.new[0].len), (0, 100));
    assert_eq!(script.stack.resource_usage().half_open, 0);
    assert_eq!(cookies(&script), [1, 1, 0]);
}

/// The bytes that bring the cookie are overtaken: a reset would end an honest peer's connection.
#[test]
fn a_half_open_connection_resets_no_peer_whose_cookie_is_on_its_way() {
    let mut script = doubled_syn();
    script.give(ACK, 101, 1, 100);
    assert_eq!(script.out(), []);
    assert_eq!(script.stack.resource_usage().half_open, 1);
    script.give(ACK, 1, 1, 100);
    assert!(matches!(script.events()[..], [Event::Incoming { .. }]));
    assert_eq!(cookies(&script), [1, 1, 1]);
}

#[test]
fn what_the_link_does_not_take_bounds_the_answers() {
    let mut script = full(plain());
    for _ in 0..1000 {
        script.give(Flags::SYN, 0, 0, 0);
    }
    assert_eq!(script.out().len(), 256);
    assert_eq!(script.stack.counters().backlog_full, 1000 - 256);
}
