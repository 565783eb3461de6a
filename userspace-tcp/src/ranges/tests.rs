// A list of one range is meant where it stands.
#![allow(clippy::single_range_in_vec_init)]

use super::*;

fn inserted(set: &mut RangeSet, new: Range<u64>) -> Vec<Range<u64>> {
    set.insert(new, 0).unwrap().as_slice().to_vec()
}

#[test]
fn only_what_was_not_there_is_new() {
    let mut set = RangeSet::default();
    assert_eq!(inserted(&mut set, 10..20), [10..20]);
    assert_eq!(inserted(&mut set, 30..40), [30..40]);
    assert_eq!(inserted(&mut set, 12..18), []);
    assert_eq!(inserted(&mut set, 15..35), [20..30]);
    assert_eq!(set.as_slice(), [10..40]);
}

#[test]
fn touching_ranges_become_one() {
    let mut set = RangeSet::default();
    inserted(&mut set, 10..20);
    inserted(&mut set, 30..40);
    assert_eq!(inserted(&mut set, 20..30), [20..30]);
    assert_eq!(set.as_slice(), [10..40]);
}

#[test]
fn the_fifth_gap_and_what_follows_is_left_out() {
    let mut set = RangeSet::default();
    for i in 0..6 {
        inserted(&mut set, 10 + i * 10..15 + i * 10);
    }
    assert_eq!(inserted(&mut set, 5..100), [5..10, 15..20, 25..30, 35..40]);
    assert_eq!(set.as_slice(), [5..45, 50..55, 60..65]);
}

#[test]
fn the_fifth_gap_at_the_end_is_left_out() {
    let mut set = RangeSet::default();
    for i in 0..4 {
        inserted(&mut set, 10 + i * 10..15 + i * 10);
    }
    assert_eq!(inserted(&mut set, 5..100), [5..10, 15..20, 25..30, 35..40]);
    assert_eq!(set.as_slice(), [5..45]);
}

#[test]
fn a_full_set_refuses_a_new_range_but_not_the_one_at_the_base() {
    let mut set = RangeSet::default();
    for i in 0..RANGES_MAX as u64 {
        inserted(&mut set, 10 + i * 10..15 + i * 10);
    }
    assert_eq!(set.insert(1000..1001, 3), Err(Full));
    assert_eq!(set.insert(4..5, 3), Err(Full));
    assert_eq!(set.insert(15..20, 3).unwrap().as_slice(), [15..20]);
    inserted(&mut set, 1000..1001);
    assert_eq!(set.insert(3..5, 3).unwrap().as_slice(), [3..5]);
    assert_eq!(set.take_front(3), Some(5));
    assert_eq!(set.as_slice().len(), RANGES_MAX);
}

#[test]
fn a_set_agrees_with_a_bitmap() {
    let mut random = 0x9e37_79b9_u64;
    let mut next = move || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random
    };
    let mut set = RangeSet::default();
    let mut bitmap = vec![false; 600];
    for _ in 0..2000 {
        let start = next() % 500;
        let new = start..start + 1 + next() % 90;
        if let Ok(gaps) = set.insert(new.clone(), u64::MAX) {
            let mut covered = Vec::new();
            for gap in gaps.as_slice() {
                for at in gap.clone() {
                    assert!(new.contains(&at) && !bitmap[at as usize]);
                    bitmap[at as usize] = true;
                    covered.push(at);
                }
            }
            if gaps.as_slice().len() < NEW_RANGES_MAX {
                assert!(new.clone().all(|at| bitmap[at as usize]));
            }
        }
        for range in set.as_slice() {
            assert!(range.clone().all(|at| bitmap[at as usize]));
        }
        let held: u64 = set
            .as_slice()
            .iter()
            .map(|range| range.end - range.start)
            .sum();
        assert_eq!(held, bitmap.iter().filter(|bit| **bit).count() as u64);
        if next() % 20 == 0
            && let Some(first) = set.as_slice().first().cloned()
        {
            set.take_front(first.start);
            first.for_each(|at| bitmap[at as usize] = false);
        }
    }
}
