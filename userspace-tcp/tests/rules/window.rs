use userspace_tcp::{Config, Event, Flags, Options};

use crate::script::*;

#[test]
fn the_peers_window_limits_what_is_sent_but_never_splits() {
    let mut script = Script::active(plain());
    script.give_window(1, 2500);
    assert_eq!(script.stack.send_room(script.conn()), 2500);
    for _ in 0..3 {
        script.send(1000).unwrap();
    }
    let lens: Vec<u32> = script.out().iter().map(|out| out.len).collect();
    assert_eq!(lens, [1000, 1000]);
    script.give_window(1001, 2500);
    assert_eq!(script.one().seq, 2001);
}

#[test]
fn a_closed_window_is_probed_until_it_opens() {
    let mut script = Script::active(plain());
    script.give_window(1, 0);
    assert_eq!(script.stack.send_room(script.conn()), 1460);
    script.send(1000).unwrap();
    assert_eq!(
        (script.out(), script.stack.send_room(script.conn())),
        (vec![], 0)
    );
    for wait in [200, 400, 800, 1600] {
        assert_eq!(script.wait_for_timer(), wait * MS);
        let probe = script.one();
        assert_eq!((probe.flags, probe.seq, probe.len), (ACK, 0, 0));
        script.give_window(1, 0);
    }
    script.give_window(1, 1000);
    assert_eq!(script.one().len, 1000);
    assert_eq!(script.info().counters.timeouts, 0);
}

#[test]
fn a_window_may_stay_closed_as_long_as_the_peer_answers() {
    let mut script = Script::active(plain());
    script.give_window(1, 0);
    script.send(1000).unwrap();
    for _ in 0..50 {
        script.wait_for_timer();
        assert_eq!(script.one().seq, 0);
        script.give_window(1, 0);
    }
    assert_eq!(script.events(), []);
    // Without an answer it ends.
    for _ in 0..10 {
        if script.events() == [Event::TimedOut] {
            assert!(script.is_gone());
            assert_eq!(script.released(), [0]);
            return;
        }
        script.wait_for_timer();
        script.out();
    }
    panic!("still there");
}

/// Nothing goes beyond what the peer offers. A window that is open, but too small for a segment that is queued, is
/// probed like a closed one. The connection stays for as long as the peer answers.
#[test]
fn a_window_smaller_than_a_segment_is_never_overrun() {
    let mut script = Script::active(plain());
    script.send_thousands(3);
    // It waits for the link when the window shrinks.
    script.send(1000).unwrap();
    script.give_window(3001, 300);
    assert_eq!(script.out(), []);
    for _ in 0..50 {
        script.wait_for_timer();
        let probe = script.one();
        assert_eq!((probe.seq, probe.len), (3000, 0));
        script.give_window(3001, 300);
    }
    assert_eq!(script.events(), []);
    script.give_window(3001, 1000);
    assert_eq!(
        (script.one().seq, script.info().counters.timeouts),
        (3001, 0)
    );
}

/// RFC 5044 section 4.5, RFC 9293 section 3.8.6.2.1: where the peer offers less than a full segment,
/// segments are as small as what it offers, and go at once.
#[test]
fn segments_are_no_larger_than_what_the_peer_offers() {
    let mut script = Script::active(plain());
    script.give_window(1, 1024);
    assert_eq!(script.mss(), 1024);
    let refused = script.send(1025);
    assert_eq!(
        refused,
        Err(userspace_tcp::SendRefusal::Length {
            len: 1025,
            mss: 1024
        })
    );
    for round in 0..5 {
        let at = 1 + 1024 * round;
        script.send(1024).unwrap();
        let out = script.one();
        assert_eq!((out.seq, out.len), (at, 1024), "at once");
        script.give_window(at + 1024, 1024);
    }
    // A closed window says nothing of how wide it is going to be.
    script.give_window(5121, 0);
    assert_eq!(script.mss(), 1460);
    script.give_window(5121, 60_000);
    assert_eq!(script.mss(), 1460);
}

#[test]
fn a_window_that_shrinks_under_what_is_sent_is_survived() {
    let mut script = Script::active(plain());
    script.send_thousands(5);
    script.give_window(1001, 0);
    script.wait_for_timer();
    assert_eq!(
        (script.one().seq, script.info().counters.timeouts),
        (1001, 1)
    );
    let shut = script.header(ACK, 1, 1001, 0, userspace_tcp::Options::default());
    script.give_header(shut, 10);
    script.wait(10 * MS);
    // Our pure ACKs stay within what the peer still listens to.
    assert_eq!(script.one().seq, 1001);
    let open = script.header(ACK, 11, 5001, 4000, userspace_tcp::Options::default());
    script.give_header(open, 0);
    assert_eq!(
        (script.info().pipe, script.stack.next_deadline()),
        (0, None)
    );
}

#[test]
fn our_window_is_told_when_it_opens() {
    let mut script = Script::active(Config {
        receive_window: 5000,
        ..plain()
    });
    let mut at = 1;
    while at < 5001 {
        script.give(ACK, at, 1, 1000);
        at += 1000;
    }
    let acks = script.out();
    assert_eq!(
        (acks.last().unwrap().ack, acks.last().unwrap().window),
        (5001, 0)
    );
    // The peer's probe is answered.
    script.give(ACK, 5000, 1, 0);
    assert_eq!(script.one().window, 0);
    let conn = script.conn();
    script.stack.consumed(conn, 1000);
    assert_eq!(script.out(), []);
    script.stack.consumed(conn, 5000);
    assert_eq!(script.one().window, 5000);
}

#[test]
fn an_old_acknowledgment_does_not_bring_an_old_window_back() {
    let mut script = Script::active(plain());
    script.send_thousands(2);
    script.give_window(2001, 1000);
    script.give_window(1001, 50_000);
    assert_eq!(script.info().peer_window, 1000);
}

/// RFC 9293 section 3.10.7.4 (MUST-66): a closed window shuts out bytes only.
#[test]
fn a_closed_window_lets_acks_urgent_pointers_and_resets_in() {
    let config = Config {
        receive_window: 3000,
        ..plain()
    };
    let mut script = Script::active(config);
    for i in 0..3 {
        script.give(ACK, 1 + i * 1000, 1, 1000);
    }
    assert_eq!(script.out().last().unwrap().window, 0);
    script.send_thousands(1);
    let header = script.header(ACK | Flags::URG, 3001, 1001, 60_000, Options::default());
    let urgent = userspace_tcp::TcpHeader {
        urgent: 500,
        ..header
    };
    assert!(script.give_header(urgent, 100).new.is_empty());
    assert_eq!(script.released(), [0]);
    assert_eq!(script.events(), [Event::Urgent]);
    assert_eq!(
        (script.one().ack, script.info().urgent_to),
        (3001, Some(3500))
    );
    script.give(Flags::RST, 3001, 0, 0);
    assert_eq!(script.events(), [Event::Reset]);
}
