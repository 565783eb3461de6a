use std::time::Duration;

use super::{Bounds, Rto};

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

const NARROW: Bounds = Bounds {
    initial: ms(1000),
    min: ms(1),
    max: ms(60_000),
};

#[test]
fn measurements_follow_the_formulas_of_the_rfc() {
    let mut rto = Rto::new(NARROW);
    assert_eq!((rto.get(), rto.srtt()), (ms(1000), None));
    rto.measured(ms(100));
    // 100 + 4 * 50.
    assert_eq!((rto.get(), rto.srtt()), (ms(300), Some(ms(100))));
    rto.measured(ms(180));
    // RTTVAR = 3/4 * 50 + 1/4 * 80 = 57.5; SRTT = 7/8 * 100 + 1/8 * 180 = 110.
    assert_eq!((rto.get(), rto.srtt()), (ms(110 + 230), Some(ms(110))));
}

#[test]
fn the_timeout_stays_within_its_bounds() {
    let mut rto = Rto::new(Bounds::default());
    rto.measured(ms(1));
    assert_eq!(rto.get(), Duration::from_secs(1));
    for expected in [2, 4, 8, 16, 32, 60, 60] {
        rto.back_off();
        assert_eq!(rto.get(), Duration::from_secs(expected));
    }
    rto.measured(Duration::from_secs(500));
    assert_eq!(rto.get(), Duration::from_secs(60));
}

/// Rule G1.
#[test]
fn a_steady_round_trip_leaves_some_variance() {
    let mut rto = Rto::new(NARROW);
    (0..200).for_each(|_| rto.measured(ms(100)));
    assert!(rto.get() > ms(100));
}
