use userspace_tcp::{Config, CongestionControl, Event, Options, SoftError};

use crate::script::*;

fn with_sack() -> Config {
    Config {
        sack: true,
        ..plain()
    }
}

#[test]
fn the_last_segment_lost_is_sent_again_after_the_timeout() {
    let mut script = Script::active(plain());
    script.send(1000).unwrap();
    let first = script.one();
    for wait in [200, 400, 800] {
        assert_eq!(script.wait_for_timer(), wait * MS);
        assert_eq!(script.one(), first);
    }
    assert_eq!(script.info().cwnd, 1460);
    script.give(ACK, 1, 1001, 0);
    assert_eq!(
        (script.released(), script.stack.next_deadline()),
        (vec![0], None)
    );
}

#[test]
fn segments_that_wait_for_the_link_keep_no_timeout_from_what_went_before_them() {
    let mut script = Script::active(plain());
    for _ in 0..3 {
        script.send(1000).unwrap();
    }
    let first = script.next_out();
    assert!(script.stack.wants_transmit());
    assert_eq!(script.wait_for_timer(), 200 * MS);
    assert_eq!(script.next_out(), first);
    assert_eq!(script.next_out(), None, "the window is one segment");
    assert_eq!(script.wait_for_timer(), 400 * MS);
    assert_eq!(script.next_out(), first);
}

#[test]
fn an_ambiguous_acknowledgment_measures_nothing() {
    let mut script = Script::active(plain());
    script.send(1000).unwrap();
    script.one();
    script.wait_for_timer();
    script.one();
    script.wait(20 * SEC / 100);
    let before = script.info().srtt;
    script.give(ACK, 1, 1001, 0);
    assert_eq!(script.info().srtt, before);
    // The back-off stays until something is measured (RFC 6298 section 5, Karn).
    assert_eq!(script.info().rto, 400 * MS);
    script.send(1000).unwrap();
    script.one();
    script.wait(MS);
    script.give(ACK, 1, 2001, 0);
    assert_eq!(script.info().rto, 200 * MS);
}

#[test]
fn a_segment_still_with_the_link_is_not_sent_again() {
    let mut script = Script::active(plain());
    script.keep_with_link = true;
    script.send(1000).unwrap();
    script.one();
    assert_eq!(script.wait_for_timer(), 200 * MS);
    assert_eq!((script.out(), script.info().counters.timeouts), (vec![], 0));
    assert_eq!(script.wait_for_timer(), 10 * MS);
    assert_eq!(script.out(), []);
    assert_eq!(script.link_returns(), []);
    script.wait_for_timer();
    assert_eq!(
        (script.out().len(), script.info().counters.timeouts),
        (1, 1)
    );
}

#[test]
fn a_segment_acknowledged_while_with_the_link_comes_out_of_the_link() {
    let mut script = Script::active(plain());
    script.keep_with_link = true;
    script.send_thousands(2);
    script.give(ACK, 1, 1001, 0);
    assert_eq!(script.released(), []);
    assert_eq!(script.link_returns(), [0]);
    script.give(ACK, 1, 2001, 0);
    assert_eq!(script.released(), [1]);
}

#[test]
fn the_user_timeout_ends_a_silent_connection() {
    let config = Config {
        user_timeout: 3 * SEC,
        ..plain()
    };
    let mut script = Script::active(config);
    script.send(1000).unwrap();
    script.send(1000).unwrap();
    let start = script.now;
    let mut events = Vec::new();
    while script.now < start + 3 * SEC {
        script.out();
        script.wait_for_timer();
        events.append(&mut script.events());
    }
    // R1, then R2 of RFC 9293 section 3.8.3.
    let no_answer = Event::SoftError(SoftError::NoAnswer);
    assert_eq!(events, [no_answer, Event::TimedOut]);
    assert_eq!(script.now.saturating_duration_since(start), 3 * SEC);
    assert_eq!(script.released(), [0, 1]);
    assert!(script.is_gone());
}

#[test]
fn three_duplicate_acks_send_the_first_segment_again() {
    let mut script = Script::active(Config {
        congestion: CongestionControl::NewReno,
        ..plain()
    });
    script.send_thousands(10);
    script.give(ACK, 1, 1, 0);
    script.give(ACK, 1, 1, 0);
    assert_eq!(script.out(), []);
    script.give(ACK, 1, 1, 0);
    assert_eq!(script.one().seq, 1);
    assert_eq!(script.info().ssthresh, 5000);
    // A partial acknowledgment: the next one is lost, too (RFC 6582).
    script.give(ACK, 1, 3001, 0);
    assert_eq!(script.one().seq, 3001);
    script.give(ACK, 1, 10_001, 0);
    assert_eq!((script.info().cwnd, script.info().pipe), (5000, 0));
}

#[test]
fn a_window_update_is_no_duplicate_ack() {
    let mut script = Script::active(plain());
    script.send_thousands(10);
    for i in 0..5 {
        script.give_window(1, 50_000 + i);
    }
    assert_eq!(script.out(), []);
}

#[test]
fn limited_transmit_sends_new_segments_on_the_first_duplicates() {
    let mut script = Script::active(plain());
    for _ in 0..12 {
        script.send(1460).unwrap();
    }
    assert_eq!(script.out().len(), 10);
    script.give(ACK, 1, 1, 0);
    assert_eq!(script.one().seq, 14_601);
    script.give(ACK, 1, 1, 0);
    assert_eq!(script.one().seq, 16_061);
}

#[test]
fn after_a_timeout_what_is_sacked_is_not_sent_again() {
    let mut script = Script::active(with_sack());
    script.send_thousands(4);
    script.give_sack(1, &[(1001, 2001), (3001, 4001)]);
    assert_eq!(script.out().len(), 2);
    script.wait(200 * MS);
    assert_eq!(script.one().seq, 1);
    script.give_sack(2001, &[(3001, 4001)]);
    assert_eq!(script.one().seq, 2001);
    script.give_sack(4001, &[]);
    assert_eq!(script.stack.next_deadline(), None);
}

/// RFC 2018 section 8: the peer may take its SACKs back.
#[test]
fn a_peer_that_reneges_gets_everything_again() {
    let mut script = Script::active(with_sack());
    script.send_thousands(4);
    script.give_sack(1, &[(1001, 4001)]);
    assert_eq!(script.one().seq, 1);
    script.give_sack(1001, &[]);
    script.wait(200 * MS);
    let mut at = 1001;
    while at < 4001 {
        let all = script.out();
        assert!(!all.is_empty());
        for out in all {
            assert_eq!(out.seq, at);
            at += 1000;
        }
        script.give_sack(at, &[]);
    }
    assert_eq!(script.stack.next_deadline(), None);
}

#[test]
fn senseless_sack_blocks_are_ignored() {
    let mut script = Script::active(with_sack());
    script.send_thousands(5);
    let blocks = [
        (5001, 6001),
        (2001, 1001),
        (0, 3001),
        (1500, 1600),
        (1501, 2500),
    ];
    for block in blocks {
        script.give_sack(1, &[block]);
    }
    assert_eq!((script.info().pipe, script.out()), (5000, vec![]));
}

#[test]
fn the_send_queue_is_bounded() {
    let config = Config {
        send_queue_segments: 3,
        ..plain()
    };
    let mut script = Script::active(config);
    for _ in 0..3 {
        script.send(10).unwrap();
    }
    assert_eq!(script.stack.send_room(script.conn()), 0);
    let full = userspace_tcp::SendRefusal::QueueFull { limit: 3 };
    assert_eq!(script.send(10), Err(full));
    let long = userspace_tcp::SendRefusal::Length {
        len: 1461,
        mss: 1460,
    };
    assert_eq!(script.send(1461), Err(long));
    assert!(script.send(0).is_err());
}

#[test]
fn after_a_long_idle_time_the_window_starts_again() {
    let mut script = Script::active(plain());
    for round in 0..2 {
        let count = script.info().cwnd / 1000;
        script.send_thousands(count as usize);
        let mut acked = i64::from(script.next_buf) * 1000 + 1 - count as i64 * 1000;
        for _ in 0..count {
            acked += 1000;
            script.give(ACK, 1, acked, 0);
        }
        assert!(script.info().cwnd > 14_600, "round {round}");
    }
    let grown = script.info().cwnd;
    script.wait(SEC);
    script.send_thousands(1);
    assert!(grown > 35_000 && script.info().cwnd == 14_600);
}

/// RFC 6298 section 5.3.
#[test]
fn progress_starts_the_timeout_anew() {
    let mut script = Script::active(plain());
    script.send_thousands(2);
    script.wait(150 * MS);
    script.give(ACK, 1, 1001, 0);
    script.wait(150 * MS);
    assert_eq!((script.out(), script.info().counters.timeouts), (vec![], 0));
    let rto = script.info().rto;
    script.wait(rto - 150 * MS);
    assert_eq!(script.one().seq, 1001);
}

#[test]
fn a_lost_segment_goes_out_again_as_soon_as_the_link_gives_it_back() {
    let mut script = Script::active(plain());
    script.keep_with_link = true;
    script.send_thousands(5);
    for _ in 0..3 {
        script.give(ACK, 1, 1, 0);
    }
    assert_eq!(script.out(), []);
    assert_eq!(script.link_returns(), []);
    assert_eq!(script.one().seq, 1);
}

/// RFC 6298 section 3. When an ACK is lost, the peer has nothing new in the retransmission, and
/// answers it with the echo of the first transmission.
#[test]
fn an_echo_of_a_transmission_before_the_last_is_no_round_trip() {
    let mut script = Script::active(Config {
        timestamps: true,
        ..plain()
    });
    let echo = |out: &Out| Options {
        timestamps: out.options.timestamps.map(answer),
        ..Options::default()
    };
    let before = script.info().srtt;
    script.send(1000).unwrap();
    let first = script.one();
    script.wait_for_timer();
    assert_eq!(script.one().seq, first.seq);
    script.give_options(ACK, 1, 1001, 0, echo(&first));
    assert_eq!(script.info().srtt, before);
    script.send(1000).unwrap();
    script.out();
    script.wait_for_timer();
    let again = script.one();
    script.wait(20 * MS);
    script.give_options(ACK, 1, 2001, 0, echo(&again));
    assert!(script.info().srtt > before);
    assert!(script.info().rto < SEC);
}

/// F-RTO's step 2 ends with the recovery: what is lost later does not wait for it.
#[test]
fn a_timeout_that_is_over_holds_nothing_back() {
    let mut script = Script::active(with_sack());
    script.send_thousands(1);
    while script.info().counters.timeouts == 0 {
        script.wait_for_timer();
        script.out();
    }
    script.give(ACK, 1, 1001, 0);
    let mut ack = 1001;
    while script.info().cwnd < 6000 {
        let count = script.info().cwnd / 1000;
        script.send_thousands(count as usize);
        ack += 1000 * count as i64;
        script.give(ACK, 1, ack, 0);
    }
    script.send_thousands(6);
    let at = ack as u32;
    script.give_sack(ack, &[(at + 2000, at + 6000)]);
    let again: Vec<i64> = script.out().iter().map(|out| out.seq).collect();
    assert_eq!(again, [ack, ack + 1000]);
}
