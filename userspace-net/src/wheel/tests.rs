use std::collections::BTreeMap;

use super::*;

const US: u64 = 1_000;
const MS: u64 = 1_000 * US;
const SEC: u64 = 1_000 * MS;

fn at(nanos: u64) -> Instant {
    Instant::from_nanos(nanos)
}

fn wheel() -> Wheel {
    Wheel::new(Instant::ZERO, 16)
}

fn all(wheel: &mut Wheel, now: Instant) -> Vec<u32> {
    let mut due: Vec<u32> = std::iter::from_fn(|| wheel.pop(now)).collect();
    due.sort_unstable();
    due
}

#[test]
fn no_entry_comes_before_its_time_or_after_it() {
    let mut wheel = wheel();
    let times = [1, 16_384, 20 * US, 3 * MS, 200 * MS, 100 * SEC, 7200 * SEC];
    for (index, time) in times.into_iter().enumerate() {
        wheel.set(index as u32, Some(at(time)));
    }
    for (index, time) in times.into_iter().enumerate() {
        assert_eq!(wheel.next(), Some(at(time)));
        assert_eq!(wheel.pop(at(time - 1)), None);
        assert_eq!(all(&mut wheel, at(time)), [index as u32]);
    }
    assert_eq!((wheel.next(), wheel.levels), (None, 0));
}

#[test]
fn an_earlier_deadline_replaces_a_later_one_stays() {
    let mut wheel = wheel();
    wheel.set(7, Some(at(50 * MS)));
    wheel.set(7, Some(at(20 * MS)));
    assert_eq!(wheel.next(), Some(at(20 * MS)));
    wheel.set(7, Some(at(90 * MS)));
    assert_eq!(wheel.next(), Some(at(20 * MS)));
    assert_eq!(all(&mut wheel, at(20 * MS)), [7]);
    assert_eq!(wheel.pop(at(SEC)), None);
}

#[test]
fn a_removed_deadline_never_comes() {
    let mut wheel = wheel();
    for index in 0..10 {
        wheel.set(index, Some(at(100 - u64::from(index))));
    }
    for index in (0..10).step_by(2) {
        wheel.set(index, None);
        wheel.set(index, None);
    }
    assert_eq!(all(&mut wheel, at(1000)), [1, 3, 5, 7, 9]);
    assert_eq!(wheel.next(), None);
}

#[test]
fn one_that_is_due_can_be_taken_away_or_wait_longer() {
    let mut wheel = wheel();
    for index in 0..4 {
        wheel.set(index, Some(at(MS)));
    }
    let first = wheel.pop(at(MS)).unwrap();
    wheel.set(first, Some(at(2 * MS)));
    wheel.set((first + 1) % 4, None);
    let left: Vec<u32> = (2..4).map(|i| (first + i) % 4).collect();
    assert!(
        all(&mut wheel, at(MS))
            .iter()
            .all(|index| left.contains(index))
    );
    assert_eq!(all(&mut wheel, at(2 * MS)), [first]);
}

#[test]
fn the_end_of_time_is_a_moment_like_others() {
    let mut wheel = wheel();
    wheel.set(1, Some(at(u64::MAX)));
    wheel.set(0, Some(at(5)));
    assert_eq!(all(&mut wheel, at(u64::MAX - 1)), [0]);
    assert_eq!(wheel.next(), Some(at(u64::MAX)));
    wheel.set(2, Some(at(3)));
    assert_eq!(all(&mut wheel, at(u64::MAX)), [1, 2]);
}

#[test]
fn idle_connections_are_not_touched_when_time_passes() {
    let mut wheel = Wheel::new(Instant::ZERO, 100_000);
    for index in 0..100_000 {
        wheel.set(index, Some(at(7200 * SEC)));
    }
    let places: Vec<u16> = wheel.nodes.iter().map(|node| node.list).collect();
    for tick in 0..1_000_000 {
        assert_eq!(wheel.pop(at(tick * 16 * US)), None);
    }
    assert!(wheel.nodes.iter().map(|node| node.list).eq(places));
}

/// What the wheel has to do, done simply.
#[derive(Default)]
struct Model(BTreeMap<u32, Instant>);

impl Model {
    fn set(&mut self, index: u32, deadline: Option<Instant>) {
        match deadline {
            Some(at) => {
                let present = self.0.entry(index).or_insert(at);
                *present = at.min(*present);
            }
            None => {
                self.0.remove(&index);
            }
        }
    }

    fn due(&mut self, now: Instant) -> Vec<u32> {
        let due: Vec<u32> = self
            .0
            .iter()
            .filter(|(_, at)| **at <= now)
            .map(|(i, _)| *i)
            .collect();
        self.0.retain(|_, at| *at > now);
        due
    }
}

#[test]
fn any_order_of_changes_gives_what_a_sorted_list_gives() {
    for seed in 1..=40_u64 {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut random = move |below: u64| {
            state ^= state >> 12;
            state ^= state << 25;
            state ^= state >> 27;
            (state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 20) % below
        };
        let mut now = random(1 << 44);
        let (mut wheel, mut model) = (Wheel::new(at(now), 64), Model::default());
        for step in 0..3000 {
            let reach = 1 << random(44);
            let index = random(64) as u32;
            match random(10) {
                0..5 => {
                    let deadline = (now + random(reach)).saturating_sub(random(2) * 100);
                    wheel.set(index, Some(at(deadline)));
                    model.set(index, Some(at(deadline)));
                }
                5 => {
                    wheel.set(index, None);
                    model.set(index, None);
                }
                6 => now += random(reach),
                _ => now = now.max(wheel.next().map_or(0, Instant::as_nanos)),
            }
            let earliest = model.0.values().min().copied();
            assert!(
                wheel.next() <= earliest || earliest.is_none(),
                "seed {seed} step {step}"
            );
            assert_eq!(
                all(&mut wheel, at(now)),
                model.due(at(now)),
                "seed {seed} step {step}"
            );
            assert!(
                wheel.next().is_none_or(|next| next > at(now)),
                "seed {seed} step {step}"
            );
            assert_eq!(
                wheel.next().is_some(),
                !model.0.is_empty(),
                "seed {seed} step {step}"
            );
        }
    }
}
