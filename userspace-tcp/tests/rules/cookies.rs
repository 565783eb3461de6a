//! SYN cookies (RFC 4987 section 3.6).

use userspace_net::{Endpoint, FourTuple};
use userspace_tcp::{Config, Counters, Event, Flags, Options, Segment, TcpHeader, Timestamps};

use crate::script::*;

/// What a peer offers that can everything.
fn offer() -> Options {
    Options {
        mss: Some(1460),
        window_scale: Some(7),
        sack_permitted: true,
        timestamps: Some(Timestamps {
            value: 500,
            echo: 0,
        }),
        ..Options::default()
    }
}

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

/// The options of the peer's segments behind its SYN.
fn echo(syn_ack: &Out) -> Options {
    Options {
        timestamps: syn_ack.options.timestamps.map(answer),
        ..Options::default()
    }
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

#[test]
fn a_syn_beyond_the_backlog_is_answered_without_memory() {
    let mut script = full(Config::default());
    for _ in 0..3 {
        let received = script.give_options(Flags::SYN, 0, 0, 0, offer());
        assert_eq!(received.conn, None);
        assert_eq!(script.one().flags, Flags::SYN | ACK);
    }
    assert_eq!(script.stack.connections_at(local()), 1);
    assert_eq!(cookies(&script), [3, 0, 0]);
}

#[test]
fn a_cookie_opens_the_connection_that_the_syn_asked_for() {
    let config = Config {
        ecn: true,
        ..Config::default()
    };
    // The same handshake with a place in the SYN queue.
    let mut plain = Script::new(config.clone());
    plain.stack.listen(local(), 1).unwrap();
    let mut infos = Vec::new();
    for mut script in [plain, full(config)] {
        let syn = Flags::SYN | Flags::ECE | Flags::CWR;
        script.give_options(syn, 0, 0, 0, offer());
        let syn_ack = script.one();
        let again = Options {
            timestamps: None,
            ..syn_ack.options
        };
        script.wait(MS);
        let received = script.give_options(ACK, 1, 1, 0, echo(&syn_ack));
        assert!(matches!(script.events()[..], [Event::Incoming { .. }]));
        assert_eq!(received.conn, script.conn);
        let info = script.info();
        infos.push((
            (syn_ack.flags, syn_ack.ack, syn_ack.window, again),
            (info.state, info.mss, info.timestamps, info.ecn),
            (info.peer_window, info.cwnd),
        ));
        // Bytes both ways.
        let received = script.give_options(ACK, 1, 1, 100, echo(&syn_ack));
        assert_eq!(received.in_order_to, 100);
        script.send(1000).unwrap();
        let out = script.one();
        assert_eq!((out.seq, out.ack, out.len), (1, 101, 1000));
    }
    assert_eq!(infos[0], infos[1]);
}

#[test]
fn bytes_and_fin_with_the_ack_that_brings_the_cookie_count() {
    let mut script = full(plain());
    script.give(Flags::SYN, 0, 0, 0);
    script.one();
    let received = script.give(ACK | Flags::FIN, 1, 1, 100);
    assert_eq!((received.new[0].offset, received.new[0].len), (0, 100));
    let events = script.events();
    assert!(matches!(
        events[..],
        [Event::Incoming { .. }, Event::PeerClosed]
    ));
    assert_eq!(script.one().ack, 102);
    assert_eq!(cookies(&script), [1, 1, 0]);
}

#[test]
fn a_forged_cookie_is_dropped_and_a_stale_one_reset() {
    let mut script = full(plain());
    script.give(Flags::SYN, 0, 0, 0);
    script.one();
    script.give(ACK, 1, 2, 0);
    script.give(ACK, 2, 1, 0);
    assert_eq!(script.out(), []);
    assert_eq!(cookies(&script), [1, 0, 2]);
    script.wait(128 * SEC);
    script.out_to_anybody();
    script.give(ACK, 1, 1, 0);
    assert_eq!(script.one().flags, Flags::RST);
    assert_eq!(script.events(), []);
}

/// The ACK and the first bytes are lost; what comes first is the second segment.
#[test]
fn a_later_segment_of_an_honest_peer_does_not_reset_it() {
    let mut script = full(plain());
    script.give(Flags::SYN, 0, 0, 0);
    script.one();
    script.give(ACK, 101, 1, 100);
    assert_eq!(script.out(), []);
    script.give(ACK, 1, 1, 100);
    assert!(matches!(script.events()[..], [Event::Incoming { .. }]));
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

/// Nobody who has seen no SYN-ACK can open a connection at a listener under no flood, whatever luck
/// he has.
#[test]
fn a_listener_that_gave_no_cookies_believes_none() {
    let mut script = full(plain());
    script.give(Flags::SYN, 0, 0, 0);
    script.one();
    assert!(script.stack.unlisten(local()));
    script.stack.listen(local(), 1).unwrap();
    script.out_to_anybody();
    script.give(ACK, 1, 1, 0);
    assert_eq!(script.one().flags, Flags::RST);
    assert_eq!(cookies(&script), [1, 0, 0]);
}

#[test]
fn a_full_table_takes_no_connection_by_a_cookie() {
    let mut script = full(Config {
        connections: 1,
        ..plain()
    });
    script.give(Flags::SYN, 0, 0, 0);
    script.one();
    let received = script.give(ACK, 1, 1, 100);
    assert_eq!((received.conn, script.out()), (None, vec![]));
    assert_eq!(script.stack.counters().table_full, 1);
    // The stranger's half-open connection times out and gives way.
    script.wait(SEC);
    script.out_to_anybody();
    script.give(ACK, 1, 1, 100);
    assert!(matches!(script.events()[..], [Event::Incoming { .. }]));
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
