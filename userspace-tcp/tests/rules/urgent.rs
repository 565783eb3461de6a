//! The urgent pointer (RFC 9293 section 3.8.5): bytes stay in line, the layer above is notified.

use userspace_tcp::{Event, Flags, Options, State};

use crate::script::*;

const URG: Flags = Flags(Flags::URG.0 | Flags::ACK.0);

fn give_urgent(script: &mut Script, seq: i64, urgent: u16, len: usize) {
    let header = script.header(URG, seq, 1, PEER_WINDOW, Options::default());
    script.give_header(userspace_tcp::TcpHeader { urgent, ..header }, len);
}

#[test]
fn urgent_bytes_stay_in_line_and_the_layer_above_is_told() {
    let mut script = Script::active(plain());
    give_urgent(&mut script, 1, 60, 100);
    assert_eq!(script.events(), [Event::Urgent]);
    let info = script.info();
    assert_eq!((info.urgent_to, info.counters.bytes_in), (Some(60), 100));
    let conn = script.conn();
    script.stack.consumed(conn, 59);
    assert_eq!(script.info().urgent_to, Some(60));
    script.stack.consumed(conn, 60);
    assert_eq!(script.info().urgent_to, None);
}

/// MUST-32: when there was none, and when the pointer moves on.
#[test]
fn it_is_told_again_only_when_the_pointer_moves_on() {
    let mut script = Script::active(plain());
    // Before the bytes, as from a sender whose peer's window is closed.
    give_urgent(&mut script, 1, 500, 0);
    assert_eq!(
        (script.events(), script.info().urgent_to),
        (vec![Event::Urgent], Some(500))
    );
    give_urgent(&mut script, 1, 500, 100);
    give_urgent(&mut script, 101, 400, 100);
    give_urgent(&mut script, 201, 100, 100);
    assert_eq!(script.events(), []);
    give_urgent(&mut script, 301, 400, 100);
    assert_eq!(
        (script.events(), script.info().urgent_to),
        (vec![Event::Urgent], Some(700))
    );
}

#[test]
fn a_pointer_without_its_flag_and_one_out_of_the_window_mean_nothing() {
    let mut script = Script::active(plain());
    let header = script.header(ACK, 1, 1, PEER_WINDOW, Options::default());
    script.give_header(
        userspace_tcp::TcpHeader {
            urgent: 9,
            ..header
        },
        10,
    );
    give_urgent(&mut script, -70_000, 65_535, 10);
    assert_eq!((script.events(), script.info().urgent_to), (vec![], None));
}

#[test]
fn what_is_queued_can_be_called_urgent() {
    let mut script = Script::active(plain());
    let conn = script.conn();
    assert!(!script.stack.urge(conn), "nothing is queued");
    for _ in 0..3 {
        script.send(1000).unwrap();
    }
    assert!(script.stack.urge(conn));
    script.send(1000).unwrap();
    let out = script.out();
    let pointers: Vec<_> = out
        .iter()
        .map(|out| (out.seq, out.flags.contains(Flags::URG), out.urgent))
        .collect();
    // The segment that begins where the urgent bytes end says so, too.
    assert_eq!(
        pointers,
        [
            (1, true, 3000),
            (1001, true, 2000),
            (2001, true, 1000),
            (3001, true, 0)
        ]
    );
    script.give(ACK, 1, 3001, 0);
    script.give(ACK, 1, 3001, 100);
    script.wait_for_timer();
    assert!(
        script
            .out()
            .iter()
            .all(|out| !out.flags.contains(Flags::URG))
    );
}

#[test]
fn a_peer_with_a_closed_window_hears_of_it_at_once() {
    let mut script = Script::active(plain());
    script.give_window(1, 0);
    script.send(1000).unwrap();
    assert_eq!(script.out(), []);
    let conn = script.conn();
    assert!(script.stack.urge(conn));
    let out = script.one();
    assert_eq!((out.flags, out.seq, out.urgent, out.len), (URG, 1, 1000, 0));
}

#[test]
fn an_end_too_far_for_the_field_is_told_by_later_segments() {
    let mut script = Script::active(plain());
    for _ in 0..70 {
        script.send(1000).unwrap();
    }
    let conn = script.conn();
    script.stack.urge(conn);
    assert_eq!(script.out()[0].urgent, u16::MAX);
    loop {
        let sent = script.info().counters.bytes_out;
        script.give(ACK, 1, sent as i64 + 1, 0);
        let out = script.out();
        assert!(!out.is_empty(), "never told");
        if let Some(last) = out.iter().find(|out| out.seq == 69_001) {
            return assert_eq!((last.flags.contains(Flags::URG), last.urgent), (true, 1000));
        }
    }
}

#[test]
fn nothing_is_urgent_behind_a_close() {
    let mut script = Script::active(plain());
    script.send(1000).unwrap();
    script.close();
    let conn = script.conn();
    assert!(!script.stack.urge(conn));
    script.out();
    assert_eq!(script.info().state, State::FinWait1);
}
