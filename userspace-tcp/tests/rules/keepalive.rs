//! Keep-alive (RFC 9293 section 3.8.4) and the user timeout (section 3.9.1).

use userspace_tcp::{Config, Event, Flags, KeepAlive, State};

use crate::script::*;

const WANTED: KeepAlive = KeepAlive {
    idle: SEC.saturating_mul(100),
    interval: SEC.saturating_mul(10),
    probes: 3,
};

fn keepalive() -> Config {
    Config {
        keepalive: Some(WANTED),
        ..plain()
    }
}

/// Time passes to the next probe; how many seconds that took.
fn seconds_to_probe(script: &mut Script) -> u64 {
    let start = script.now;
    loop {
        script.wait_for_timer();
        let out = script.out();
        if let Some(probe) = out.first() {
            assert_eq!((probe.flags, probe.len, out.len()), (ACK, 0, 1));
            return script.now.saturating_duration_since(start).as_secs();
        }
    }
}

#[test]
fn without_the_wish_for_it_an_idle_connection_has_no_timer() {
    let mut script = Script::active(plain());
    assert_eq!(script.stack.next_deadline(), None);
    assert_eq!(KeepAlive::default().idle, 7200 * SEC);
    let conn = script.conn();
    assert!(script.stack.set_keepalive(conn, script.now, Some(WANTED)));
    assert_eq!(seconds_to_probe(&mut script), 100);
    assert!(script.stack.set_keepalive(conn, script.now, None));
    script.wait(1000 * SEC);
    assert_eq!((script.out(), script.stack.next_deadline()), (vec![], None));
}

#[test]
fn an_idle_peer_is_asked_by_the_number_before_the_next() {
    let mut script = Script::active(keepalive());
    script.send_thousands(1);
    script.give(ACK, 1, 1001, 0);
    let start = script.now;
    let probe = loop {
        script.wait_for_timer();
        if let Some(probe) = script.next_out() {
            break probe;
        }
    };
    assert_eq!(script.now.saturating_duration_since(start), 100 * SEC);
    assert_eq!(
        (probe.flags, probe.seq, probe.ack, probe.len),
        (ACK, 1000, 1, 0)
    );
    // It answers.
    script.give(ACK, 1, 1001, 0);
    assert_eq!(seconds_to_probe(&mut script), 100);
    assert_eq!(script.info().counters.keepalives, 2);
}

#[test]
fn whatever_comes_puts_the_probe_off() {
    let mut script = Script::active(keepalive());
    for i in 0..5 {
        script.wait(90 * SEC);
        script.give(ACK, 1 + i * 10, 1, 10);
        script.wait(SEC);
        assert_eq!(script.one().ack, 11 + i * 10);
    }
    assert_eq!(seconds_to_probe(&mut script), 99);
}

#[test]
fn a_peer_that_answers_no_probe_is_given_up_after_the_last() {
    let mut script = Script::active(keepalive());
    assert_eq!(seconds_to_probe(&mut script), 100);
    assert_eq!(seconds_to_probe(&mut script), 10);
    assert_eq!(seconds_to_probe(&mut script), 10);
    assert_eq!(script.info().state, State::Established);
    assert_eq!(script.wait_for_timer(), 10 * SEC);
    assert_eq!(script.events(), [Event::TimedOut]);
    assert!(script.is_gone());
}

/// MUST-29: one answer of several is enough.
#[test]
fn a_late_answer_keeps_the_connection() {
    let mut script = Script::active(keepalive());
    for _ in 0..10 {
        for expected in [100, 10, 10] {
            assert_eq!(seconds_to_probe(&mut script), expected);
        }
        script.give(ACK, 1, 1, 0);
    }
}

/// MUST-26: not while something that was sent is not acknowledged.
#[test]
fn what_is_outstanding_is_probe_enough() {
    let mut script = Script::active(keepalive());
    script.wait(95 * SEC);
    script.send(1000).unwrap();
    script.one();
    for _ in 0..5 {
        script.wait_for_timer();
        assert!(script.out().iter().all(|out| out.len == 1000));
    }
    assert_eq!(script.info().counters.keepalives, 0);
}

#[test]
fn a_segment_out_of_the_window_is_no_sign_of_life() {
    let mut script = Script::active(keepalive());
    script.wait(99 * SEC);
    script.give(ACK, -5000, 1, 0);
    script.one();
    assert_eq!(seconds_to_probe(&mut script), 1);
}

#[test]
fn the_user_timeout_is_the_connections_own() {
    let mut script = Script::active(plain());
    let conn = script.conn();
    assert!(script.stack.set_user_timeout(conn, script.now, 3 * SEC));
    script.send_thousands(1);
    let start = script.now;
    while !script.events().contains(&Event::TimedOut) {
        script.wait_for_timer();
        script.out();
    }
    assert_eq!(script.now.saturating_duration_since(start), 3 * SEC);
    assert!(!script.stack.set_user_timeout(conn, script.now, SEC));
}

#[test]
fn a_shorter_user_timeout_counts_for_what_is_outstanding() {
    let mut script = Script::active(plain());
    script.send_thousands(1);
    script.wait(100 * MS);
    let conn = script.conn();
    script.stack.set_user_timeout(conn, script.now, 50 * MS);
    script.wait(MS);
    assert_eq!(script.events(), [Event::TimedOut]);
}

/// Section 3.8.3, R2 of a SYN: by default for three minutes, whatever the user timeout.
#[test]
fn a_connection_attempt_lasts_three_minutes_unless_told_otherwise() {
    let attempt = |timeout| {
        let mut script = Script::new(plain());
        script.connect();
        let conn = script.conn();
        if let Some(timeout) = timeout {
            script.stack.set_user_timeout(conn, script.now, timeout);
        }
        let start = script.now;
        script.one();
        while !script.events().contains(&Event::TimedOut) {
            script.wait_for_timer();
            assert!(script.out().iter().all(|out| out.flags == Flags::SYN));
        }
        script.now.saturating_duration_since(start)
    };
    assert!(attempt(None) >= 180 * SEC);
    assert_eq!(attempt(Some(5 * SEC)), 5 * SEC);
}

/// RFC 9293 section 3.8.3 (SHLD-11): R2 is 100 seconds where nobody says otherwise.
#[test]
fn the_user_timeout_is_a_hundred_seconds_by_default() {
    let mut script = Script::active(plain());
    script.send_thousands(1);
    let start = script.now;
    while !script.events().contains(&Event::TimedOut) {
        script.wait_for_timer();
        script.out();
    }
    let after = script.now.saturating_duration_since(start);
    assert_eq!(after, 100 * SEC);
}
