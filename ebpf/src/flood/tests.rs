use super::*;

/// Also where there are more processors than frames in a second.
#[test]
fn all_that_share_a_rate_let_no_more_through_than_it() {
    for rate in [1, 3, 200, 2_000, 1_000_000] {
        for queues in [1, 2, 64, 256] {
            let limits = FloodLimits {
                syns: Rate::of(rate),
                ..FloodLimits::NONE
            };
            let [[interval, depth], ..] = limits.shared_by(queues).words();
            let (rate, queues) = (u64::from(rate), u64::from(queues));
            let in_an_hour = queues * (3_600_000_000_000 / interval);
            assert!(
                in_an_hour <= 3600 * rate,
                "{rate} by {queues}: {in_an_hour}"
            );
            // An interval is of whole nanoseconds, and an hour of whole intervals.
            assert!(
                in_an_hour + queues >= 3599 * rate,
                "{rate} by {queues}: {in_an_hour}"
            );
            assert_eq!(depth, interval * 10 * rate);
        }
    }
}

#[test]
fn no_limit_stays_none_however_many_share_it() {
    assert_eq!(FloodLimits::NONE.shared_by(64).words(), [[0, 0]; 3]);
}
