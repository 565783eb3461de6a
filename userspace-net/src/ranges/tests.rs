// A list of one range is meant where it stands.
#![allow(clippy::single_range_in_vec_init)]

use super::*;

/// Most ranges of a set.
const RANGES_MAX: usize = 1024;

struct Set {
    set: RangeSet,
    pool: RangePool,
}

impl Default for Set {
    fn default() -> Self {
        Self {
            set: RangeSet::default(),
            pool: RangePool::new(RANGES_MAX, 0),
        }
    }
}

impl Set {
    fn insert(&mut self, new: Range<u64>) -> Result<Gaps, Full> {
        self.set.insert(new, &mut self.pool)
    }

    fn join_front(&mut self, new: Range<u64>) -> (Vec<Range<u64>>, u64) {
        let (gaps, end) = self.set.join_front(new, &mut self.pool);
        (gaps.as_slice().to_vec(), end)
    }

    fn ranges(&self) -> Vec<Range<u64>> {
        self.set.iter().cloned().collect()
    }
}

fn inserted(set: &mut Set, new: Range<u64>) -> Vec<Range<u64>> {
    set.insert(new).unwrap().as_slice().to_vec()
}

#[test]
fn only_what_was_not_there_is_new() {
    let mut set = Set::default();
    assert_eq!(inserted(&mut set, 10..20), [10..20]);
    assert_eq!(inserted(&mut set, 30..40), [30..40]);
    assert_eq!(inserted(&mut set, 12..18), []);
    assert_eq!(inserted(&mut set, 15..35), [20..30]);
    assert_eq!(set.ranges(), [10..40]);
}

#[test]
fn touching_ranges_become_one() {
    let mut set = Set::default();
    inserted(&mut set, 10..20);
    inserted(&mut set, 30..40);
    assert_eq!(inserted(&mut set, 20..30), [20..30]);
    assert_eq!(set.ranges(), [10..40]);
}

#[test]
fn the_fifth_gap_and_what_follows_is_left_out() {
    let mut set = Set::default();
    for i in 0..6 {
        inserted(&mut set, 10 + i * 10..15 + i * 10);
    }
    assert_eq!(inserted(&mut set, 5..100), [5..10, 15..20, 25..30, 35..40]);
    assert_eq!(set.ranges(), [5..45, 50..55, 60..65]);
}

#[test]
fn the_fifth_gap_at_the_end_is_left_out() {
    let mut set = Set::default();
    for i in 0..4 {
        inserted(&mut set, 10 + i * 10..15 + i * 10);
    }
    assert_eq!(inserted(&mut set, 5..100), [5..10, 15..20, 25..30, 35..40]);
    assert_eq!(set.ranges(), [5..45]);
}

#[test]
fn a_full_set_refuses_a_new_range_but_not_what_joins_one() {
    let mut set = Set::default();
    for i in 0..RANGES_MAX as u64 {
        inserted(&mut set, 10 + i * 10..15 + i * 10);
    }
    assert_eq!(set.insert(20_000..20_001), Err(Full));
    assert_eq!(inserted(&mut set, 15..20), [15..20]);
    assert_eq!(inserted(&mut set, 20_000..20_001), [20_000..20_001]);
    assert_eq!(set.ranges().len(), RANGES_MAX);
    assert_eq!(set.join_front(3..5), (vec![3..5], 5));
    assert_eq!(set.join_front(5..12), (vec![5..10], 25));
}

#[test]
fn what_joins_the_front_takes_away_what_it_touches() {
    let mut set = Set::default();
    for i in 0..6 {
        inserted(&mut set, 10 + i * 10..15 + i * 10);
    }
    assert_eq!(set.join_front(5..8), (vec![5..8], 8));
    assert_eq!(set.join_front(8..20), (vec![8..10, 15..20], 25));
    assert_eq!(set.ranges(), [30..35, 40..45, 50..55, 60..65]);
    // After the fourth gap the rest is left out.
    let gaps = vec![25..30, 35..40, 45..50, 55..60];
    assert_eq!(set.join_front(25..100), (gaps, 65));
    assert_eq!(set.ranges(), []);
    assert_eq!(set.set.ranges.capacity(), 0, "its memory went back");
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
    let mut set = Set::default();
    let mut bitmap = vec![false; 600];
    for _ in 0..2000 {
        let start = next() % 500;
        let new = start..start + 1 + next() % 90;
        if let Ok(gaps) = set.insert(new.clone()) {
            let mut covered = Vec::new();
            for gap in gaps.as_slice() {
                for at in gap.clone() {
                    assert!(new.contains(&at) && !bitmap[at as usize]);
                    bitmap[at as usize] = true;
                    covered.push(at);
                }
            }
            if gaps.as_slice().len() < GAPS_MAX {
                assert!(new.clone().all(|at| bitmap[at as usize]));
            }
        }
        for range in &set.ranges() {
            assert!(range.clone().all(|at| bitmap[at as usize]));
        }
        let held: u64 = set
            .ranges()
            .iter()
            .map(|range| range.end - range.start)
            .sum();
        assert_eq!(held, bitmap.iter().filter(|bit| **bit).count() as u64);
        if next() % 20 == 0
            && let Some(first) = set.ranges().first().cloned()
        {
            let base = first.start - first.start.min(next() % 3);
            let (gaps, end) = set.join_front(base..first.end);
            let covered: Vec<u64> = gaps.into_iter().flatten().collect();
            assert_eq!(covered, (base..first.start).collect::<Vec<_>>());
            assert_eq!(end, first.end);
            first.for_each(|at| bitmap[at as usize] = false);
        }
    }
}
