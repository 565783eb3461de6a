use super::*;

fn taken(pace: &mut Pace, rate: u32, now: Instant) -> u32 {
    (0..1000).map(|_| u32::from(pace.take(rate, now))).sum()
}

#[test]
fn a_burst_is_as_large_as_the_rate_and_a_second_brings_as_many_again() {
    let start = Instant::now();
    for rate in [1, 3, 10, 400] {
        let mut pace = Pace::default();
        assert_eq!(taken(&mut pace, rate, start), rate, "at once");
        let half = start + BURST / 2;
        assert_eq!(taken(&mut pace, rate, half), rate / 2, "half a second on");
        let later = half + BURST * 5;
        assert_eq!(taken(&mut pace, rate, later), rate, "nothing is saved up");
    }
}

#[test]
fn a_rate_of_none_allows_nothing() {
    let mut pace = Pace::default();
    assert!(!pace.take(0, Instant::now()));
}

#[test]
fn a_pace_is_idle_when_its_last_step_is_paid_for() {
    let start = Instant::now();
    let mut pace = Pace::default();
    assert!(pace.is_idle(start));
    assert!(pace.take(10, start));
    assert!(!pace.is_idle(start));
    assert!(pace.is_idle(start + BURST / 10));
}

#[test]
fn beyond_the_rate_each_waits_for_its_turn_and_no_longer() {
    let start = Instant::now();
    let mut pace = Pace::default();
    for _ in 0..10 {
        assert_eq!(pace.book(1, 10, start), Duration::ZERO, "a burst");
    }
    let interval = BURST / 10;
    for turn in 1..=5 {
        assert_eq!(
            pace.book(1, 10, start),
            interval * turn,
            "one after the other"
        );
    }
    let later = start + interval * 5;
    assert_eq!(pace.book(1, 10, later), interval, "as many are paid for");
    let much_later = start + BURST * 5;
    assert_eq!(pace.book(10, 10, much_later), Duration::ZERO);
    assert_eq!(pace.book(2, 10, much_later), interval * 2);
    assert_eq!(Pace::default().book(1, 0, start), Duration::ZERO);
}
