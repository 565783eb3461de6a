use std::time::Duration;

use userspace_tcp::{Config, Event, Flags, Options, Segment, SendRefusal, State};

use crate::script::*;

const FIN: Flags = Flags(Flags::FIN.0 | Flags::ACK.0);

#[test]
fn we_close_first() {
    let mut script = Script::active(plain());
    script.close();
    let fin = script.one();
    assert_eq!(
        (fin.flags, fin.seq, script.info().state),
        (FIN, 1, State::FinWait1)
    );
    assert_eq!(script.send(10), Err(SendRefusal::Closed));
    script.give(ACK, 1, 2, 0);
    assert_eq!(script.info().state, State::FinWait2);
    // Half-close: the peer goes on sending.
    assert_eq!(script.give(ACK, 1, 2, 100).new.len(), 1);
    script.give(FIN, 101, 2, 0);
    assert_eq!(script.events(), [Event::PeerClosed, Event::Closed]);
    assert_eq!(script.info().state, State::TimeWait);
    assert_eq!(script.one().ack, 102);
    script.wait(Config::default().time_wait - MS);
    assert_eq!(script.info().state, State::TimeWait);
    script.wait(MS);
    assert_eq!(script.events(), [Event::TimeWaitOver]);
    assert!(script.is_gone());
}

#[test]
fn the_peer_closes_first() {
    let mut script = Script::active(plain());
    script.give(FIN, 1, 1, 0);
    assert_eq!(
        (script.events(), script.info().state),
        (vec![Event::PeerClosed], State::CloseWait)
    );
    assert_eq!(script.one().ack, 2);
    script.send_thousands(1);
    script.close();
    let fin = script.one();
    assert_eq!(
        (fin.flags, fin.seq, script.info().state),
        (FIN, 1001, State::LastAck)
    );
    script.give(ACK, 2, 1001, 0);
    assert_eq!(script.info().state, State::LastAck);
    script.give(ACK, 2, 1002, 0);
    assert_eq!(script.events(), [Event::Closed]);
    assert!(script.is_gone());
    assert_eq!(script.released(), [0]);
}

#[test]
fn both_close_at_the_same_time() {
    let mut script = Script::active(plain());
    script.close();
    script.one();
    script.give(FIN, 1, 1, 0);
    assert_eq!(
        (script.events(), script.info().state),
        (vec![Event::PeerClosed], State::Closing)
    );
    assert_eq!(script.one().ack, 2);
    script.give(ACK, 2, 2, 0);
    assert_eq!(
        (script.events(), script.info().state),
        (vec![Event::Closed], State::TimeWait)
    );
}

#[test]
fn a_fin_that_acknowledges_ours_goes_straight_to_time_wait() {
    let mut script = Script::active(plain());
    script.close();
    script.one();
    script.give(FIN, 1, 2, 50);
    assert_eq!(script.events(), [Event::PeerClosed, Event::Closed]);
    assert_eq!(
        (script.info().state, script.one().ack),
        (State::TimeWait, 52)
    );
}

#[test]
fn a_fin_waits_for_every_byte_before_it() {
    let mut script = Script::active(plain());
    script.give(FIN, 101, 1, 100);
    assert_eq!((script.events(), script.one().ack), (vec![], 1));
    script.give(ACK, 1, 1, 100);
    assert_eq!(
        (script.events(), script.one().ack),
        (vec![Event::PeerClosed], 202)
    );
}

#[test]
fn our_fin_goes_behind_everything_queued() {
    let mut script = Script::active(plain());
    script.give_window(1, 1000);
    script.send(1000).unwrap();
    script.send(1000).unwrap();
    script.close();
    assert_eq!(script.out().len(), 1);
    script.give_window(1001, 1000);
    let flags: Vec<Flags> = script.out().iter().map(|out| out.flags).collect();
    assert_eq!(flags, [Flags::ACK | Flags::PSH, FIN]);
    assert_eq!(script.info().state, State::FinWait1);
}

#[test]
fn a_lost_fin_is_sent_again() {
    let mut script = Script::active(plain());
    script.close();
    let fin = script.one();
    for wait in [200, 400, 800] {
        assert_eq!(script.wait_for_timer(), wait * MS);
        assert_eq!(script.one(), fin);
    }
    script.give(ACK, 1, 2, 0);
    assert_eq!(script.info().state, State::FinWait2);
}

#[test]
fn a_fin_that_comes_again_is_acknowledged_again_and_restarts_time_wait() {
    let mut script = Script::active(plain());
    script.close();
    script.one();
    script.give(FIN, 1, 2, 0);
    script.one();
    script.wait(30 * SEC);
    script.give(FIN, 1, 2, 0);
    assert_eq!(script.one().ack, 2);
    script.wait(59 * SEC);
    assert_eq!(script.info().state, State::TimeWait);
    script.wait(SEC);
    assert!(script.is_gone());
}

/// Who is about to leave stays for the peer's next FIN, should the last ACK have been lost, and for the one
/// behind that.
#[test]
fn a_lost_last_ack_is_worth_two_retransmission_timeouts() {
    let mut script = Script::active(plain());
    let linger = |script: &Script| script.stack.linger(script.now);
    script.close();
    script.one();
    assert_eq!(linger(&script), Duration::ZERO, "FIN-WAIT-1");
    script.give(FIN, 1, 2, 0);
    script.one();
    let rto = script.info().rto;
    assert_eq!(linger(&script), 2 * rto);
    script.wait(rto);
    assert_eq!(linger(&script), rto);
    script.give(FIN, 1, 2, 0);
    script.one();
    assert_eq!(linger(&script), 2 * rto, "it was lost again");
    script.wait(2 * rto);
    assert_eq!(linger(&script), Duration::ZERO);
    assert_eq!(script.info().state, State::TimeWait);
}

#[test]
fn nobody_lingers_longer_than_time_wait() {
    let mut script = Script::active(Config {
        time_wait: 50 * MS,
        ..plain()
    });
    script.close();
    script.one();
    script.give(FIN, 1, 2, 0);
    script.one();
    assert_eq!(script.stack.linger(script.now), 50 * MS);
    script.wait(50 * MS);
    assert!(script.is_gone());
    assert_eq!(script.stack.linger(script.now), Duration::ZERO);
}

#[test]
fn fin_wait_2_ends_when_nothing_comes() {
    let mut script = Script::active(plain());
    script.close();
    script.one();
    script.give(ACK, 1, 2, 0);
    script.wait(50 * SEC);
    script.give(ACK, 1, 2, 10);
    script.wait(50 * SEC);
    assert_eq!(script.info().state, State::FinWait2);
    script.wait(10 * SEC);
    script.events();
    assert!(script.is_gone());
}

#[test]
fn time_wait_ignores_resets() {
    let mut script = Script::active(plain());
    script.close();
    script.one();
    script.give(FIN, 1, 2, 0);
    script.one();
    script.give(Flags::RST, 2, 0, 0);
    assert_eq!(script.info().state, State::TimeWait);
}

#[test]
fn a_later_syn_may_reopen_what_stands_in_time_wait() {
    let mut script = Script::passive(plain());
    let first = script.conn();
    script.close();
    script.one();
    script.give(FIN, 1, 2, 0);
    script.one();
    script.events();
    let old = script.header(Flags::SYN, -5, 0, 1000, Options::default());
    script.give_header(old, 0);
    assert_eq!(script.info().state, State::TimeWait);
    script.out();
    let new = script.header(Flags::SYN, 100, 0, 1000, Options::default());
    script.give_header(new, 0);
    assert_eq!(script.one().flags, Flags::SYN | ACK);
    assert_eq!(script.events(), [Event::TimeWaitOver]);
    assert_eq!(script.stack.info(first), None);
}

#[test]
fn a_full_table_evicts_the_oldest_time_wait() {
    let mut script = Script::passive(Config {
        connections: 1,
        ..plain()
    });
    script.close();
    script.one();
    script.give(FIN, 1, 2, 0);
    script.one();
    script.events();
    let remote = userspace_net::Endpoint {
        port: 1,
        ..remote()
    };
    let tuple = userspace_net::FourTuple::new(local(), remote);
    let header = script.header(Flags::SYN, 0, 0, 1000, Options::default());
    let segment = Segment::new(header, &[]);
    let received = script.stack.receive(script.now, tuple, &segment, OPTIONS);
    assert!(received.conn.is_some());
    assert_eq!(script.events(), [Event::TimeWaitOver]);
    assert_eq!(script.stack.counters().time_wait_evicted, 1);
}

#[test]
fn closing_before_the_handshake_ends() {
    let mut script = Script::new(plain());
    script.connect();
    script.one();
    script.close();
    assert!(script.is_gone());
    assert_eq!((script.events(), script.out()), (vec![], vec![]));
    assert!(!script.stack.close(script.conn()));
}

#[test]
fn abort_resets_and_gives_every_buffer_back() {
    let mut script = Script::active(plain());
    script.keep_with_link = true;
    for _ in 0..12 {
        script.send(1460).unwrap();
    }
    assert_eq!(script.out().len(), 10);
    assert!(script.stack.abort(script.conn()));
    assert!(!script.stack.abort(script.conn()));
    let reset = script.one();
    assert_eq!((reset.flags, reset.seq), (Flags::RST | ACK, 14_601));
    assert_eq!(script.released(), [10, 11]);
    assert_eq!(script.link_returns(), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
    assert!(script.is_gone() && script.events().is_empty());
    assert_eq!(script.send(1), Err(SendRefusal::Gone));
}

/// RFC 9293 section 3.10.7.4: in CLOSING and LAST-ACK nobody is told of a reset. It is what a host says
/// whose program got everything and is gone, when our FIN comes again because its last ACK was lost.
/// But bytes that nobody acknowledged may be lost (MUST-12).
#[test]
fn a_reset_behind_both_closes_is_an_end_in_order_unless_bytes_may_be_lost() {
    for peer_first in [false, true] {
        for bytes in [false, true] {
            let mut script = closed_by_both(peer_first, bytes);
            script.wait_for_timer();
            script.out();
            script.give(Flags::RST, 2, 0, 0);
            let end = if bytes { Event::Reset } else { Event::Closed };
            assert_eq!(script.events(), [Event::PeerClosed, end]);
            assert!(script.is_gone() && script.out().is_empty());
        }
    }
}

/// In LAST-ACK or CLOSING; `bytes`: of ours, too, nothing is acknowledged.
fn closed_by_both(peer_first: bool, bytes: bool) -> Script {
    let mut script = Script::active(plain());
    if peer_first {
        script.give(FIN, 1, 1, 0);
        script.one();
    }
    if bytes {
        script.send_thousands(1);
    }
    script.close();
    script.one();
    if !peer_first {
        script.give(FIN, 1, 1, 0);
        script.one();
    }
    let expected = if peer_first {
        State::LastAck
    } else {
        State::Closing
    };
    assert_eq!(script.info().state, expected);
    script
}

/// RFC 9293 section 3.10.5: in CLOSING and LAST-ACK the connection is just forgotten. But a peer
/// that won't get all bytes has to know (SHLD-3).
#[test]
fn abort_behind_both_closes_resets_only_if_bytes_are_lost() {
    for peer_first in [false, true] {
        for bytes in [false, true] {
            let mut script = closed_by_both(peer_first, bytes);
            assert!(script.stack.abort(script.conn()));
            let resets = script.out().iter().filter(|out| out.flags.rst()).count();
            assert_eq!(resets, usize::from(bytes));
            assert!(script.is_gone());
        }
    }
}

#[test]
fn half_a_connection_may_stay_open_as_long_as_the_peer_likes() {
    let mut script = Script::active(Config {
        fin_wait_2: Duration::MAX,
        ..plain()
    });
    script.close();
    script.one();
    script.give(ACK, 1, 2, 0);
    assert_eq!(script.stack.next_deadline(), None);
    script.wait(100_000 * SEC);
    assert_eq!(script.give(ACK, 1, 2, 10).new.len(), 1);
    // Asked now and then, if so wished.
    let keepalive = userspace_tcp::KeepAlive::default();
    let conn = script.conn();
    script
        .stack
        .set_keepalive(conn, script.now, Some(keepalive));
    script.wait(SEC);
    assert_eq!(script.one().ack, 11);
    script.wait(7200 * SEC);
    let probe = script.one();
    assert_eq!(
        (probe.seq, probe.len, script.info().state),
        (1, 0, State::FinWait2)
    );
}

#[test]
fn a_sign_of_life_makes_fin_wait_2_last() {
    let mut script = Script::active(plain());
    script.close();
    script.one();
    script.give(ACK, 1, 2, 0);
    for _ in 0..5 {
        script.wait(59 * SEC);
        script.give(ACK, 1, 2, 0);
    }
    assert_eq!(script.info().state, State::FinWait2);
    script.wait(60 * SEC);
    assert_eq!(script.events(), [Event::TimedOut]);
}
