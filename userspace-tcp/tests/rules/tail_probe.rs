//! Tail loss probes (RFC 8985 section 7), with a peer that is 40 ms away and has SACK.

use userspace_tcp::{Config, CongestionControl};

use crate::script::*;

fn with_sack() -> Config {
    Config {
        sack: true,
        congestion: CongestionControl::NewReno,
        ..plain()
    }
}

/// Ten segments were out for 40 ms, and the peer has said that it has the first eight.
fn two_left() -> Script {
    let mut script = Script::distant(with_sack(), 40 * MS);
    script.send_thousands(10);
    script.wait(40 * MS);
    script.give_sack(8001, &[]);
    assert_eq!(script.out(), []);
    script
}

#[test]
fn a_lost_tail_is_repaired_after_a_probe_and_not_by_a_timeout() {
    let mut script = two_left();
    script.wait(80 * MS);
    assert_eq!(script.out(), []);
    script.wait(MS);
    assert_eq!(script.one().seq, 9001);
    script.wait(40 * MS);
    script.give_sack(8001, &[(9001, 10_001)]);
    assert_eq!(script.one().seq, 8001);
    script.wait(40 * MS);
    script.give_sack(10_001, &[]);
    let counters = script.info().counters;
    assert_eq!((counters.timeouts, counters.tail_probes), (0, 1));
    assert_eq!((counters.retransmits, counters.fast_recoveries), (2, 1));
    assert_eq!(script.stack.next_deadline(), None);
}

#[test]
fn a_new_segment_is_the_better_probe_though_the_window_is_full() {
    let mut script = Script::distant(with_sack(), 40 * MS);
    for _ in 0..20 {
        script.send(1000).unwrap();
    }
    assert_eq!(script.out().len(), 14);
    script.wait(81 * MS);
    assert_eq!(script.one().seq, 14_001);
    assert_eq!(script.info().counters.retransmits, 0);
}

#[test]
fn a_lonely_segment_is_probed_when_its_delayed_acknowledgment_is_overdue() {
    let mut script = Script::distant(with_sack(), 40 * MS);
    script.send_thousands(1);
    script.wait(130 * MS);
    assert_eq!(script.out(), []);
    script.wait(MS);
    assert_eq!(script.one().seq, 1);
}

#[test]
fn the_timeout_follows_one_probe() {
    let mut script = two_left();
    script.wait(81 * MS);
    assert_eq!(script.one().seq, 9001);
    script.wait(199 * MS);
    assert_eq!(script.out(), []);
    script.wait(MS);
    assert_eq!(script.one().seq, 8001);
    assert_eq!(script.info().counters.timeouts, 1);
}

#[test]
fn a_probe_that_was_needless_costs_nothing() {
    let mut script = two_left();
    let cwnd = script.info().cwnd;
    script.wait(81 * MS);
    assert_eq!(script.one().seq, 9001);
    script.give_sack(10_001, &[]);
    // The probe itself comes there for the second time.
    script.wait(40 * MS);
    script.give_sack(10_001, &[(9001, 10_001)]);
    script.send_thousands(1);
    script.wait(40 * MS);
    script.give_sack(11_001, &[]);
    let info = script.info();
    assert!(info.cwnd >= cwnd, "{info:?}");
    assert_eq!(info.counters.fast_recoveries, 0);
    assert_eq!(info.counters.needless_recoveries, 0);
}

/// Section 7.4.2: only the last segment was lost, and the probe has repaired that.
#[test]
fn a_loss_that_a_probe_has_repaired_reduces_the_window() {
    let mut script = two_left();
    script.wait(81 * MS);
    assert_eq!(script.one().seq, 9001);
    script.wait(40 * MS);
    script.give_sack(10_001, &[]);
    let cwnd = script.info().cwnd;
    script.send_thousands(10);
    script.wait(40 * MS);
    script.give_sack(20_001, &[]);
    let info = script.info();
    assert!(info.ssthresh <= cwnd / 2, "{info:?}");
    assert_eq!(info.counters.fast_recoveries, 1);
}

#[test]
fn our_fin_is_probed() {
    let mut script = two_left();
    script.close();
    let fin = script.one();
    script.wait(81 * MS);
    assert_eq!(script.one(), fin);
    script.wait(40 * MS);
    // The peer has got it, but not the last two segments.
    script.give_sack(8001, &[(10_001, 10_002)]);
    assert_eq!(script.one().seq, 8001);
    script.give_sack(9001, &[(10_001, 10_002)]);
    assert_eq!(script.one().seq, 9001);
    script.give_sack(10_002, &[]);
    assert_eq!(script.info().counters.timeouts, 0);
    assert_eq!(script.released().len(), 10);
}

#[test]
fn without_sack_there_is_no_probe() {
    let mut script = Script::distant(plain(), 40 * MS);
    script.send_thousands(2);
    script.wait(199 * MS);
    assert_eq!(script.out(), []);
    script.wait(MS);
    assert_eq!(script.one().seq, 1);
}

#[test]
fn a_segment_that_has_not_left_is_no_probe() {
    let mut script = Script::distant(with_sack(), 40 * MS);
    script.keep_with_link = true;
    script.send_thousands(2);
    script.wait(81 * MS);
    assert_eq!(script.out(), []);
    assert_eq!(script.info().counters.tail_probes, 0);
}
