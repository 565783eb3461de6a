use super::*;

/// RFC5043-10-2 to 10-6: by the number alone, from the first place on and where it wraps.
#[test]
fn a_place_is_found_again_from_wherever_its_receiver_is() {
    for next in [
        0,
        1,
        32_766,
        32_767,
        65_535,
        65_536,
        1 << 40,
        (1 << 40) + 65_535,
    ] {
        for ahead in [0, 1, 100, IN_FLIGHT_MAX - 1] {
            assert_eq!(DdpSsn::of(next + ahead).place(next), Some(next + ahead));
        }
        for ahead in [IN_FLIGHT_MAX, IN_FLIGHT_MAX + 1, 65_535] {
            assert_eq!(
                DdpSsn::of(next + ahead).place(next),
                None,
                "{next} + {ahead}"
            );
        }
    }
}

#[test]
fn every_number_is_either_a_place_ahead_or_none() {
    let places = (0..=u16::MAX).filter_map(|ssn| DdpSsn(ssn).place(70_000));
    let places: std::collections::BTreeSet<_> = places.collect();
    assert_eq!(places.first(), Some(&70_000));
    assert_eq!(places.len() as u64, IN_FLIGHT_MAX);
    assert_eq!(places.last(), Some(&(70_000 + IN_FLIGHT_MAX - 1)));
}
