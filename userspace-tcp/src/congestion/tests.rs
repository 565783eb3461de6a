use super::*;

const SMSS: u64 = 1000;

fn congestion() -> Congestion {
    Congestion::new(SMSS, 1_000_000)
}

#[test]
fn the_initial_window_is_ten_segments_or_14600_octets() {
    assert_eq!(congestion().cwnd(), 10_000);
    assert_eq!(Congestion::new(8960, 1_000_000).cwnd(), 17_920);
    assert_eq!(Congestion::new(1460, 1_000_000).cwnd(), 14_600);
}

#[test]
fn slow_start_grows_by_what_is_acknowledged_but_two_segments_at_most() {
    let mut c = congestion();
    c.acknowledged(1500, 1500, 10_000);
    assert_eq!(c.cwnd(), 11_500);
    c.acknowledged(9000, 10_500, 10_000);
    assert_eq!(c.cwnd(), 13_500);
}

#[test]
fn an_unused_window_does_not_grow() {
    let mut c = congestion();
    c.acknowledged(1000, 1000, 1000);
    assert_eq!(c.cwnd(), 10_000);
}

#[test]
fn congestion_avoidance_grows_one_segment_per_window() {
    let mut c = congestion();
    c.enter_recovery(20_000, 20_000);
    assert_eq!((c.cwnd(), c.ssthresh()), (10_000, 10_000));
    c.acknowledged(20_000, 20_000, 20_000);
    assert_eq!(c.phase(), Phase::Open);
    for i in 1..=10 {
        assert_eq!(c.cwnd(), 10_000);
        c.acknowledged(1000, 20_000 + i * 1000, 10_000);
    }
    assert_eq!(c.cwnd(), 11_000);
}

#[test]
fn partial_acknowledgments_stay_in_recovery() {
    let mut c = congestion();
    c.enter_recovery(20_000, 20_000);
    c.acknowledged(5000, 19_999, 20_000);
    assert_eq!((c.phase(), c.cwnd()), (Phase::Recovery, 10_000));
}

#[test]
fn a_timeout_leaves_one_segment_and_slow_starts_to_half_the_flight() {
    let mut c = congestion();
    c.timed_out(20_000, 20_000);
    assert_eq!((c.cwnd(), c.ssthresh()), (SMSS, 10_000));
    c.timed_out(1000, 20_000);
    assert_eq!((c.cwnd(), c.ssthresh()), (SMSS, 10_000));
    c.acknowledged(1000, 1000, 1000);
    assert_eq!(c.cwnd(), 2000);
}

#[test]
fn ssthresh_is_two_segments_at_least() {
    let mut c = congestion();
    c.timed_out(100, 100);
    assert_eq!(c.ssthresh(), 2 * SMSS);
}
