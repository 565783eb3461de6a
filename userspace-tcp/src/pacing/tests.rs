use super::*;

const SMSS: u64 = 1000;

/// 10 bytes each microsecond: a segment takes 100 us, a quantum of ten segments 1 ms.
const PACE: Pace = Pace {
    bytes: 500_000,
    per: Duration::from_millis(50),
    quantum: 10 * SMSS,
};

fn us(us: u64) -> Instant {
    Instant::from_nanos(us * 1000)
}

/// Sends segments as long as it may; how many.
fn burst(pacer: &mut Pacer, now: Instant, pace: &Pace) -> u64 {
    pacer.advance(now);
    let mut segments = 0;
    while pacer.closed_until().is_none() && segments < 1_000_000 {
        pacer.sent(now, SMSS, Some(pace));
        segments += 1;
    }
    segments
}

#[test]
fn without_a_pace_nothing_waits() {
    let mut pacer = Pacer::default();
    for _ in 0..1000 {
        pacer.sent(us(0), SMSS, None);
        assert_eq!(pacer.closed_until(), None);
    }
}

#[test]
fn bytes_go_in_quanta() {
    let mut pacer = Pacer::default();
    let start = us(1_000_000);
    // The first one makes good half a quantum of the time before.
    assert_eq!(burst(&mut pacer, start, &PACE), 10);
    assert_eq!(pacer.closed_until(), Some(us(1_000_500)));
    assert_eq!(burst(&mut pacer, us(1_000_499), &PACE), 0);
    assert_eq!(burst(&mut pacer, us(1_000_500), &PACE), 10);
    assert_eq!(pacer.closed_until(), Some(us(1_001_500)));
}

#[test]
fn a_fast_path_has_quanta_of_a_millisecond() {
    let mut pacer = Pacer::default();
    let pace = Pace::of_window(5_000_000, PACE.per, SMSS);
    assert_eq!(burst(&mut pacer, us(1_000_000), &pace), 100);
    assert_eq!(pacer.closed_until(), Some(us(1_000_500)));
}

#[test]
fn a_window_has_quanta_of_ten_segments_at_least() {
    let pace = Pace::of_window(PACE.bytes, PACE.per, SMSS);
    assert_eq!(pace, PACE);
}

/// draft-ietf-ccwg-bbr-06 section 5.6.3.
#[test]
fn a_rate_has_quanta_of_a_quarter_of_a_millisecond_within_bounds() {
    for (rate, quantum) in [
        (1, 2 * SMSS),
        (8_000_000, 2 * SMSS),
        (40_000_000, 10 * SMSS),
        (10_000_000_000, 65_536),
    ] {
        assert_eq!(Pace::of_rate(rate, SMSS).quantum(), quantum, "{rate}");
    }
}

/// Whoever wakes up late gets the rate nevertheless.
#[test]
fn late_timers_make_no_drift() {
    let mut pacer = Pacer::default();
    let mut now = us(1_000_000);
    let mut segments = 0;
    let mut late = 0;
    while now < us(11_000_000) {
        segments += burst(&mut pacer, now, &PACE);
        late = (late + 137) % 400;
        now = pacer.closed_until().unwrap() + Duration::from_micros(late);
    }
    // Ten seconds at 10 MB/s.
    assert!((99_900..=100_100).contains(&segments), "{segments}");
}

/// Segments sent in a second by a sender that runs for 3 of 8 ms.
fn sent_in_three_eighths_of_a_second(held: bool) -> u64 {
    let mut pacer = Pacer::default();
    let mut segments = 0;
    for us_now in (1_000_000..2_000_000).filter(|at| at % 8000 >= 5000) {
        segments += burst(&mut pacer, us(us_now), &PACE);
        pacer.holds(held);
    }
    segments
}

/// As on a core that others use as well: what waited for nothing but the pace is sent later.
#[test]
fn the_rate_is_kept_by_a_sender_that_runs_now_and_then() {
    let segments = sent_in_three_eighths_of_a_second(true);
    // 10 MB/s.
    assert!((9_900..=10_000).contains(&segments), "{segments}");
    let segments = sent_in_three_eighths_of_a_second(false);
    assert!(segments < 6_000, "{segments}: nothing waited");
}

#[test]
fn no_more_than_ten_milliseconds_are_made_good() {
    let mut pacer = Pacer::default();
    burst(&mut pacer, us(1_000_000), &PACE);
    pacer.holds(true);
    let until = pacer.closed_until().unwrap();
    let late = until + Duration::from_millis(50);
    // What they are worth, and the present quantum.
    assert_eq!(burst(&mut pacer, late, &PACE), 100 + 10);
    pacer.holds(true);
    let until = pacer.closed_until().unwrap();
    assert_eq!(
        burst(&mut pacer, until, &PACE),
        10,
        "they are made good once"
    );
}

#[test]
fn acknowledgments_that_trickle_in_do_not_exceed_the_rate() {
    let mut pacer = Pacer::default();
    let mut segments = 0;
    // The window opens for two segments each 100 us: twice the pace.
    let mut room = 0;
    for i in 0..10_000 {
        let now = us(1_000_000 + i * 100);
        pacer.advance(now);
        room += 2;
        while room > 0 && pacer.closed_until().is_none() {
            pacer.sent(now, SMSS, Some(&PACE));
            segments += 1;
            room -= 1;
        }
    }
    assert!((9_980..=10_020).contains(&segments), "{segments}");
}

#[test]
fn idle_time_is_not_made_good_by_a_burst() {
    let mut pacer = Pacer::default();
    burst(&mut pacer, us(1_000_000), &PACE);
    let now = us(100_000_000);
    let mut segments = burst(&mut pacer, now, &PACE);
    assert_eq!(segments, 10);
    for i in 1..=5 {
        segments += burst(&mut pacer, now + Duration::from_micros(i * 100), &PACE);
    }
    assert_eq!(segments, 20);
}

#[test]
fn nothing_waits_longer_than_a_round_trip() {
    for segments in [1, 2, 9, 10, 11, 100, 10_000] {
        for per in [1, 50, 5000] {
            let per = Duration::from_millis(per);
            let pace = Pace::of_window(segments * SMSS * 6 / 5, per, SMSS);
            let mut pacer = Pacer::default();
            let mut now = us(1_000_000);
            // A window each round trip, as congestion control lets it.
            for _ in 0..100 {
                for _ in 0..segments {
                    pacer.advance(now);
                    if let Some(until) = pacer.closed_until() {
                        let wait = until.saturating_duration_since(now);
                        assert!(wait <= pace.per, "{segments} {per:?}: {wait:?}");
                        now = until;
                        pacer.advance(now);
                    }
                    pacer.sent(now, SMSS, Some(&pace));
                }
                now += pace.per;
            }
        }
    }
}

#[test]
fn no_number_is_too_great() {
    for bytes in [0, 1, u64::MAX] {
        for per in [Duration::ZERO, Duration::MAX] {
            for pace in [
                Pace::of_window(bytes, per, 65_535),
                Pace::of_rate(bytes, 65_535),
            ] {
                let mut pacer = Pacer::default();
                for now in [0, 1, u64::MAX] {
                    pacer.sent(Instant::from_nanos(now), bytes, Some(&pace));
                    pacer.advance(Instant::from_nanos(now));
                }
            }
        }
    }
}
