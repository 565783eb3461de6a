//! RACK (RFC 8985), with a peer that is 40 ms away and has SACK.

use userspace_tcp::{Config, CongestionControl};

use crate::script::*;

fn with_sack() -> Config {
    Config {
        sack: true,
        congestion: CongestionControl::NewReno,
        ..plain()
    }
}

/// Ten segments are out, for 40 ms.
fn ten_out() -> Script {
    let mut script = Script::distant(with_sack(), 40 * MS);
    script.send_thousands(10);
    script.wait(40 * MS);
    script
}

fn seqs(script: &mut Script) -> Vec<i64> {
    script.out().iter().map(|out| out.seq).collect()
}

#[test]
fn holes_below_three_sacked_segments_are_lost_at_once() {
    let mut script = ten_out();
    script.give_sack(1, &[(1001, 2001)]);
    script.give_sack(1, &[(3001, 4001), (1001, 2001)]);
    assert_eq!(script.out(), []);
    script.give_sack(1, &[(3001, 5001), (1001, 2001)]);
    assert_eq!(script.one().seq, 1);
    // Pipe still holds half of the flight: the other hole waits (RFC 6675 section 5).
    script.give_sack(1, &[(3001, 6001), (1001, 2001)]);
    script.give_sack(1, &[(3001, 7001), (1001, 2001)]);
    assert_eq!(seqs(&mut script), [2001]);
    // Neither is sent a third time by further SACKs.
    script.give_sack(1, &[(3001, 10_001), (1001, 2001)]);
    assert_eq!(script.out(), []);
    assert_eq!(script.info().counters.fast_recoveries, 1);
    script.wait(40 * MS);
    script.give_sack(10_001, &[]);
    assert_eq!(script.released().len(), 10);
    assert_eq!(script.stack.next_deadline(), None);
}

#[test]
fn a_hole_below_one_sacked_segment_is_lost_when_the_reordering_window_is_over() {
    let mut script = ten_out();
    script.give_sack(1, &[(1001, 2001)]);
    assert_eq!(script.out(), []);
    // A quarter of the minimal round trip.
    assert_eq!(script.wait_for_timer(), 10 * MS);
    assert_eq!(script.one().seq, 1);
    let counters = script.info().counters;
    assert_eq!((counters.fast_recoveries, counters.timeouts), (1, 0));
}

#[test]
fn what_was_sent_within_the_round_trip_is_not_lost_with_the_rest() {
    let mut script = Script::distant(with_sack(), 40 * MS);
    script.send_thousands(1);
    script.wait(20 * MS);
    script.send_thousands(1);
    script.wait(15 * MS);
    script.send_thousands(1);
    script.wait(40 * MS);
    script.give_sack(1, &[(2001, 3001)]);
    // The first is overdue by 35 ms, which is more than the reordering window; the second by 15.
    assert_eq!((script.one().seq, script.info().pipe), (1, 1000));
    let mut script = Script::distant(with_sack(), 40 * MS);
    for pause in [20, 5, 40] {
        script.send_thousands(1);
        script.wait(pause * MS);
    }
    script.give_sack(1, &[(2001, 3001)]);
    assert_eq!((script.one().seq, script.info().pipe), (1, 2000));
}

#[test]
fn a_lost_retransmission_is_found_by_one_that_was_sent_later() {
    let mut script = ten_out();
    script.give_sack(1, &[(1001, 2001), (3001, 10_001)]);
    assert_eq!(seqs(&mut script), [1, 2001]);
    script.wait(40 * MS);
    // The second retransmission has arrived, the first has not.
    script.give_sack(1, &[(1001, 10_001)]);
    assert_eq!(script.one().seq, 1);
    script.wait(40 * MS);
    script.give_sack(10_001, &[]);
    let counters = script.info().counters;
    assert_eq!((counters.retransmits, counters.timeouts), (3, 0));
    assert_eq!(script.stack.next_deadline(), None);
}

#[test]
fn once_reordering_is_seen_three_sacked_segments_trigger_nothing() {
    let mut script = ten_out();
    script.give_sack(1, &[(1001, 3001)]);
    script.give_sack(3001, &[]);
    script.give_sack(3001, &[(4001, 9001)]);
    assert_eq!(script.out(), []);
    script.give_sack(10_001, &[]);
    let counters = script.info().counters;
    assert_eq!((counters.retransmits, counters.fast_recoveries), (0, 0));
}

/// A recovery whose retransmission of segment 0 was needless, as the peer reports.
fn needless(script: &mut Script, at: u32) {
    script.give_sack(at.into(), &[(at + 1000, at + 4000)]);
    assert_eq!(script.next_out().map(|out| out.seq), Some(at.into()));
    script.give_sack(i64::from(at) + 10_000, &[]);
    script.wait(40 * MS);
    script.give_sack(i64::from(at) + 10_000, &[(at, at + 1000)]);
}

#[test]
fn a_duplicate_at_the_peer_widens_the_reordering_window() {
    let mut script = ten_out();
    needless(&mut script, 1);
    script.send_thousands(5);
    script.wait(40 * MS);
    // Below DupThresh, as no reordering was seen between originals.
    script.give_sack(10_001, &[(11_001, 12_001)]);
    assert_eq!(script.wait_for_timer(), 20 * MS);
    assert_eq!(script.one().seq, 10_001);
}

/// RFC 8985 section 6.3: what left less than a round trip ago is not lost by a timeout.
#[test]
fn a_timeout_leaves_young_segments_in_flight() {
    let mut script = Script::distant(with_sack(), 40 * MS);
    script.send_thousands(2);
    script.wait(81 * MS);
    // The tail loss probe.
    assert_eq!(script.one().seq, 1001);
    let rto = script.info().rto;
    script.wait(rto - 20 * MS);
    script.send_thousands(2);
    script.wait(20 * MS);
    assert_eq!(script.one().seq, 1);
    assert_eq!(script.info().pipe, 3000);
    script.wait(40 * MS);
    script.give_sack(1001, &[]);
    assert_eq!(seqs(&mut script), [1001, 2001]);
}
