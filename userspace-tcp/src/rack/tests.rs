use super::*;

const MS: u64 = 1_000_000;

fn at(ms: u64) -> Instant {
    Instant::ZERO.plus_nanos(ms * MS)
}

/// With a minimal round trip of 40 ms.
fn rack() -> Rack {
    let mut rack = Rack::new();
    rack.opened(at(1000), 40 * MS);
    rack
}

/// The same, and reordering was seen.
fn reordered() -> Rack {
    Rack {
        reordering_seen: true,
        ..rack()
    }
}

#[test]
fn a_tie_in_time_is_broken_by_the_order_of_the_stream() {
    let mut rack = rack();
    rack.xmit_ts = at(5);
    rack.end_seq = 3000;
    assert!(rack.sent_after(at(4), 9000));
    assert!(rack.sent_after(at(5), 2000));
    assert!(!rack.sent_after(at(5), 3000));
    assert!(!rack.sent_after(at(6), 1000));
}

#[test]
fn before_reordering_is_seen_the_window_closes_by_dup_thresh_and_in_recovery() {
    let rack = rack();
    assert_eq!(rack.reo_wnd(false, 2, Some(50 * MS)), 10 * MS);
    assert_eq!(rack.reo_wnd(false, 3, Some(50 * MS)), 0);
    assert_eq!(rack.reo_wnd(true, 0, Some(50 * MS)), 0);
}

#[test]
fn once_reordering_is_seen_the_window_stays_open() {
    let rack = reordered();
    assert_eq!(rack.reo_wnd(true, 30, Some(50 * MS)), 10 * MS);
}

#[test]
fn needless_retransmissions_widen_the_window_once_a_round_trip_up_to_srtt() {
    let mut rack = reordered();
    rack.needless_retransmission(1000, 5000);
    rack.needless_retransmission(4999, 9000);
    assert_eq!(rack.reo_wnd(false, 0, Some(50 * MS)), 20 * MS);
    rack.needless_retransmission(5000, 9000);
    assert_eq!(rack.reo_wnd(false, 0, Some(50 * MS)), 30 * MS);
    for round in 1..100 {
        rack.needless_retransmission(9000 * round, 9000 * (round + 1));
    }
    assert_eq!(rack.reo_wnd(false, 0, Some(50 * MS)), 50 * MS);
}

#[test]
fn a_wide_window_is_kept_for_sixteen_recoveries() {
    let mut rack = reordered();
    rack.needless_retransmission(1000, 5000);
    for _ in 0..15 {
        rack.recovery_over();
        assert_eq!(rack.reo_wnd(false, 0, None), 20 * MS);
    }
    rack.recovery_over();
    assert_eq!(rack.reo_wnd(false, 0, None), 10 * MS);
}

#[test]
fn only_an_original_below_the_highest_that_arrived_shows_reordering() {
    let delivered = |lowest_original, highest| {
        let mut delivered = Delivered::default();
        delivered.lowest_original = lowest_original;
        delivered.highest = highest;
        delivered
    };
    let mut rack = rack();
    rack.delivered(at(0), &delivered(1000, 3000));
    assert!(!rack.reordering_seen);
    rack.delivered(at(0), &delivered(3000, 4000));
    rack.delivered(at(0), &delivered(Position::MAX, 2000));
    assert!(!rack.reordering_seen);
    rack.delivered(at(0), &delivered(2000, 2000));
    assert!(rack.reordering_seen);
}
