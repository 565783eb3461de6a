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

/// A segment can't be split: when the window stays open, but too small, the segment goes out whole
/// at last, and the peer takes the part that it has room for.
#[test]
fn a_window_smaller_than_a_segment_is_overrun_at_last() {
    let mut script = Script::active(plain());
    script.give_window(1, 300);
    script.send(1000).unwrap();
    for _ in 0..2 {
        script.wait_for_timer();
        assert_eq!(script.one().seq, 0);
        script.give_window(1, 300);
    }
    script.wait_for_timer();
    let whole = script.one();
    assert_eq!((whole.seq, whole.len), (1, 1000));
    // The rest of it goes by retransmission of the same segment.
    script.give_window(301, 300);
    script.wait_for_timer();
    assert_eq!(script.one(), whole);
    script.give_window(601, 300);
    script.wait_for_timer();
    assert_eq!(script.one(), whole);
    script.give_window(1001, 300);
    assert_eq!(
        (script.released(), script.stack.next_deadline()),
        (vec![0], None)
    );
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

/// RFC 9293 section 3.10.7.4 (MUST-66): a closed window shuts out octets only.
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
