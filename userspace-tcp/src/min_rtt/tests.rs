use super::*;

const MS: u64 = 1_000_000;

#[test]
fn the_least_counts_until_its_window_is_over() {
    let mut min = MinRtt::new();
    assert_eq!(min.get(), None);
    let mut now = Instant::ZERO.plus_nanos(WINDOW);
    min.measured(now, 30 * MS);
    min.measured(now, 10 * MS);
    min.measured(now, 20 * MS);
    assert_eq!(min.get(), Some(10 * MS));
    now = now.plus_nanos(WINDOW);
    min.measured(now, 40 * MS);
    assert_eq!(min.get(), Some(10 * MS));
    now = now.plus_nanos(WINDOW);
    min.measured(now, 50 * MS);
    assert_eq!(min.get(), Some(40 * MS));
}

#[test]
fn after_a_long_silence_only_the_present_counts() {
    let mut min = MinRtt::new();
    let now = Instant::ZERO.plus_nanos(WINDOW);
    min.measured(now, 10 * MS);
    min.measured(now.plus_nanos(2 * WINDOW), 40 * MS);
    assert_eq!(min.get(), Some(40 * MS));
}
