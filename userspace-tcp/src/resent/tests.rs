use super::*;

fn resent(ranges: &[(Position, Position)]) -> Resent {
    let mut resent = Resent::default();
    resent.begin(1000, Cause::Loss);
    for &(start, end) in ranges {
        resent.sent(start, end, Instant::ZERO);
    }
    resent
}

#[test]
fn a_recovery_was_needless_when_all_of_it_came_twice() {
    let mut resent = resent(&[(1000, 2000), (2000, 3000), (5000, 6000)]);
    for (left, right) in [(2000, 3000), (5000, 6000)] {
        assert!(resent.came_twice(left, right));
        assert!(!resent.all_came_twice());
    }
    assert!(resent.came_twice(1000, 2000));
    assert!(resent.all_came_twice());
}

#[test]
fn what_was_not_sent_again_was_doubled_by_the_network() {
    let mut resent = resent(&[(1000, 2000)]);
    assert!(!resent.came_twice(2000, 3000));
    assert!(!resent.came_twice(0, 1000));
    assert!(!resent.all_came_twice());
}

#[test]
fn a_segment_that_was_sent_twice_has_to_come_twice_more() {
    let mut resent = resent(&[(1000, 2000), (1000, 2000)]);
    assert!(resent.came_twice(1000, 2000));
    assert!(!resent.all_came_twice());
    assert!(resent.came_twice(1000, 2000));
    assert!(resent.all_came_twice());
}

#[test]
fn neighbours_are_one_range_and_too_many_prove_nothing() {
    let neighbours: Vec<_> = (1..50).map(|i| (i * 1000, (i + 1) * 1000)).collect();
    assert!(!resent(&neighbours).ranges.overflow);
    let scattered: Vec<_> = (1..6).map(|i| (i * 2000, i * 2000 + 1000)).collect();
    let mut resent = resent(&scattered);
    for &(left, right) in &scattered {
        assert!(resent.came_twice(left, right));
    }
    assert!(!resent.all_came_twice());
}

#[test]
fn nothing_sent_again_is_no_needless_recovery() {
    let mut resent = resent(&[]);
    assert!(!resent.all_came_twice());
    assert!(!resent.came_twice(1000, 2000));
    assert_eq!(resent.since_if_covered(9000), None);
}

#[test]
fn an_echo_counts_once_all_of_it_is_acknowledged() {
    let at = Instant::ZERO.plus_nanos(5);
    let mut resent = resent(&[]);
    resent.sent(1000, 2000, at);
    resent.sent(2000, 3000, at.plus_nanos(9));
    assert_eq!(resent.since_if_covered(2999), None);
    assert_eq!(resent.since_if_covered(3000), Some(at));
}

#[test]
fn a_report_may_come_when_the_next_recovery_has_begun() {
    let mut resent = resent(&[(1000, 2000)]);
    resent.begin(5000, Cause::Loss);
    assert!(resent.came_twice(1000, 2000));
    assert!(!resent.came_twice(2000, 3000));
    resent.begin(9000, Cause::Loss);
    assert!(resent.came_twice(1000, 2000));
    assert!(!resent.all_came_twice());
}
