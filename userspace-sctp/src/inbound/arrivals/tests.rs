use std::collections::BTreeSet;

use proptest::prelude::*;

use super::{Arrival, Arrivals, DUPLICATES_MAX, RANGES_MAX, REACH};
use crate::chunk::GapBlock;
use crate::tsn::Tsn;

const FIRST: Tsn = Tsn(u32::MAX - 2);

fn tsn(number: u32) -> Tsn {
    FIRST.plus(number)
}

fn blocks(arrivals: &Arrivals) -> Vec<(u16, u16)> {
    let pair = |block: GapBlock| (block.start, block.end);
    arrivals.blocks().map(pair).collect()
}

#[test]
fn what_comes_in_order_moves_the_cumulative_tsn_over_the_wrap() {
    let mut arrivals = Arrivals::new(FIRST);
    for number in 0..6 {
        assert_eq!(arrivals.take(tsn(number)), Arrival::New);
        assert_eq!(arrivals.cumulative(), tsn(number));
    }
    assert!(!arrivals.has_gap());
}

/// The example of RFC 9260 section 3.3.4: TSNs 10, 11, 12, 14, 15, 17 are here.
#[test]
fn the_example_of_the_rfc_gives_its_blocks() {
    let mut arrivals = Arrivals::new(Tsn(10));
    for number in [17, 10, 14, 12, 11, 15] {
        assert_eq!(arrivals.take(Tsn(number)), Arrival::New);
    }
    assert_eq!(arrivals.cumulative(), Tsn(12));
    assert_eq!(blocks(&arrivals), [(2, 3), (5, 5)]);
    arrivals.take(Tsn(16));
    assert_eq!(blocks(&arrivals), [(2, 5)]);
    arrivals.take(Tsn(13));
    assert_eq!(
        (arrivals.cumulative(), arrivals.has_gap()),
        (Tsn(17), false)
    );
}

#[test]
fn a_tsn_is_new_once_and_duplicates_are_named_until_they_are_told() {
    let mut arrivals = Arrivals::new(FIRST);
    for number in [0, 2, 5] {
        assert_eq!(arrivals.take(tsn(number)), Arrival::New);
        assert_eq!(arrivals.take(tsn(number)), Arrival::Duplicate);
    }
    let old = FIRST.previous();
    assert_eq!(arrivals.take(old), Arrival::Duplicate);
    assert_eq!(arrivals.duplicates(), [tsn(0), tsn(2), tsn(5), old]);
    arrivals.acknowledged();
    assert_eq!(arrivals.duplicates(), []);
    for _ in 0..DUPLICATES_MAX + 3 {
        arrivals.take(tsn(0));
    }
    assert_eq!(arrivals.duplicates(), [tsn(0); DUPLICATES_MAX]);
}

#[test]
fn what_no_sack_could_name_is_not_taken() {
    let mut arrivals = Arrivals::new(FIRST);
    let last = FIRST.previous().plus(REACH);
    assert_eq!(arrivals.take(last.next()), Arrival::NotTaken);
    assert_eq!(arrivals.take(last), Arrival::New);
    assert_eq!(blocks(&arrivals), [(u16::MAX, u16::MAX)]);
    assert_eq!(
        arrivals.take(FIRST.previous().plus(1 << 31)),
        Arrival::Duplicate
    );
    assert_eq!(
        arrivals.take(FIRST.previous().plus((1 << 31) - 1)),
        Arrival::NotTaken
    );
}

#[test]
fn one_range_too_many_is_not_taken_but_what_extends_one_is() {
    let mut arrivals = Arrivals::new(FIRST);
    let ranges = RANGES_MAX as u32;
    for number in 1..=ranges {
        assert_eq!(arrivals.take(tsn(number * 3)), Arrival::New);
    }
    assert_eq!(arrivals.take(tsn(ranges * 3 + 3)), Arrival::NotTaken);
    assert_eq!(arrivals.take(tsn(ranges * 3 + 1)), Arrival::New);
    assert_eq!(arrivals.take(tsn(5)), Arrival::New);
    // The next in order always is.
    assert_eq!(arrivals.take(tsn(0)), Arrival::New);
    assert_eq!(arrivals.cumulative(), tsn(0));
    assert_eq!(
        arrivals.beyond.capacity(),
        RANGES_MAX,
        "nothing was allocated"
    );
}

proptest! {
    #[test]
    fn a_set_says_the_same(numbers in prop::collection::vec(0_u32..60, 0..200)) {
        let mut arrivals = Arrivals::new(FIRST);
        let mut here = BTreeSet::new();
        for number in numbers {
            let expected = if here.insert(number) { Arrival::New } else { Arrival::Duplicate };
            prop_assert_eq!(arrivals.take(tsn(number)), expected);
            let next = (0..).find(|number| !here.contains(number)).unwrap();
            prop_assert_eq!(arrivals.cumulative(), tsn(next).previous());
            let cumulative = arrivals.cumulative();
            let named: BTreeSet<u32> = arrivals
                .blocks()
                .flat_map(|block| block.start..=block.end)
                .map(|offset| cumulative.plus(offset.into()).since(FIRST))
                .collect();
            let beyond: BTreeSet<u32> = here.iter().copied().filter(|n| *n > next).collect();
            prop_assert_eq!(named, beyond);
        }
    }
}
