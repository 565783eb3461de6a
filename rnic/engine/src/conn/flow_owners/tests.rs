use std::net::IpAddr;

use userspace_net::Endpoint;

use super::*;
use crate::random::Random;

const SECRET: [u8; 16] = *b"of no importance";

fn tuple(number: u32) -> FourTuple {
    let address = |host: u8| IpAddr::from([198, 18, host, 1]);
    FourTuple {
        local: Endpoint::new(address(0), 7174),
        remote: Endpoint::new(address(1 + (number >> 16) as u8), number as u16),
    }
}

#[test]
fn a_flow_is_its_shards_until_it_leaves() {
    let table = FlowOwners::new(100, SECRET);
    let (tcp, sctp) = (Transport::Tcp, Transport::Sctp);
    assert_eq!(table.other_than(0, tcp, &tuple(1)), None);
    assert!(table.enter(3, tcp, &tuple(1)));
    assert_eq!(table.other_than(0, tcp, &tuple(1)), Some(3));
    assert_eq!(table.other_than(3, tcp, &tuple(1)), None, "its own");
    assert_eq!(
        table.other_than(0, sctp, &tuple(1)),
        None,
        "another protocol's"
    );
    assert_eq!(table.other_than(0, tcp, &tuple(2)), None);
    table.remove(2, tcp, &tuple(1));
    assert_eq!(
        table.other_than(0, tcp, &tuple(1)),
        Some(3),
        "not that one's"
    );
    table.remove(3, tcp, &tuple(1));
    assert_eq!(table.other_than(0, tcp, &tuple(1)), None);
}

/// In TIME-WAIT in one place of a shard's table, and begun again in another.
#[test]
fn a_flow_that_was_entered_twice_leaves_twice() {
    let (table, tcp) = (FlowOwners::new(100, SECRET), Transport::Tcp);
    for _ in 0..2 {
        assert!(table.enter(1, tcp, &tuple(1)));
    }
    table.remove(1, tcp, &tuple(1));
    assert_eq!(table.other_than(0, tcp, &tuple(1)), Some(1));
    table.remove(1, tcp, &tuple(1));
    assert_eq!(table.other_than(0, tcp, &tuple(1)), None);
}

/// A shard never hands over what is of a connection of its own.
#[test]
fn a_flow_of_two_shards_is_each_ones_own() {
    let (table, tcp) = (FlowOwners::new(100, SECRET), Transport::Tcp);
    assert!(table.enter(1, tcp, &tuple(1)) && table.enter(2, tcp, &tuple(1)));
    assert_eq!(table.other_than(1, tcp, &tuple(1)), None);
    assert_eq!(table.other_than(2, tcp, &tuple(1)), None);
    assert!(matches!(table.other_than(0, tcp, &tuple(1)), Some(1 | 2)));
}

#[test]
fn a_full_table_has_a_place_for_each_flow_through_any_churn() {
    let flows = 10_000;
    let (table, tcp) = (FlowOwners::new(flows as usize, SECRET), Transport::Tcp);
    let shard = |number: u32| number as u8 % 8;
    for number in 0..flows {
        assert!(table.enter(shard(number), tcp, &tuple(number)));
    }
    let mut there: Vec<_> = (0..flows).collect();
    let mut random = Random::new(1);
    for number in flows..5 * flows {
        let gone = random.below(there.len() as u64) as usize;
        let gone = std::mem::replace(&mut there[gone], number);
        table.remove(shard(gone), tcp, &tuple(gone));
        assert!(table.enter(shard(number), tcp, &tuple(number)));
    }
    for number in there {
        let other = table.other_than(9, tcp, &tuple(number));
        assert_eq!(other, Some(shard(number)));
        table.remove(shard(number), tcp, &tuple(number));
    }
    let slots = table.buckets.iter().flat_map(|bucket| &bucket.0);
    let left = slots.filter(|slot| slot.load(Ordering::Relaxed) != EMPTY);
    assert_eq!(left.count(), 0);
}

/// So a full bucket is rare, long before the table is.
#[test]
fn a_flow_goes_to_the_emptier_of_its_buckets() {
    let (table, tcp) = (FlowOwners::new(100, SECRET), Transport::Tcp);
    let used = |bucket: usize| {
        let slots = table.buckets[bucket].0.iter();
        let used = slots.filter(|slot| slot.load(Ordering::Relaxed) != EMPTY);
        used.count()
    };
    let mut chose_the_second = 0;
    for number in 0..100 {
        let [first, second] = table.key(tcp, &tuple(number)).buckets;
        let before = [used(first), used(second)];
        assert!(table.enter(1, tcp, &tuple(number)));
        if first != second {
            let went_to_second = used(second) > before[1];
            assert_eq!(went_to_second, before[1] < before[0], "flow {number}");
            chose_the_second += usize::from(went_to_second);
        }
    }
    assert!(chose_the_second > 10, "{chose_the_second}");
}

#[test]
fn what_finds_no_place_is_told_and_harms_nobody() {
    let (table, tcp) = (FlowOwners::new(1, SECRET), Transport::Tcp);
    let entered = (0..100).filter(|number| table.enter(1, tcp, &tuple(*number)));
    let entered: Vec<_> = entered.collect();
    assert!(entered.len() >= SLOTS && entered.len() < 100, "{entered:?}");
    for number in 0..100 {
        let expected = entered.contains(&number).then_some(1);
        assert_eq!(table.other_than(0, tcp, &tuple(number)), expected);
        table.remove(1, tcp, &tuple(number));
    }
    assert!(table.enter(1, tcp, &tuple(0)));
}

/// Several threads at once, of which each sees its own flows.
#[test]
fn shards_enter_and_leave_at_once() {
    const ROUNDS: u32 = 2000;
    const FLOWS: u32 = 8;
    let (table, tcp) = (FlowOwners::new(64, SECRET), Transport::Tcp);
    std::thread::scope(|scope| {
        for shard in 0..4 {
            let table = &table;
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    // No two shards have a number in common.
                    let first = (u32::from(shard) * ROUNDS + round) * FLOWS;
                    let own: Vec<_> = (first..first + FLOWS).collect();
                    let place = |number: &u32| table.enter(shard, tcp, &tuple(*number));
                    assert!(own.iter().all(place));
                    for number in &own {
                        assert_eq!(table.other_than(9, tcp, &tuple(*number)), Some(shard));
                    }
                    own.iter()
                        .for_each(|number| table.remove(shard, tcp, &tuple(*number)));
                }
            });
        }
    });
}

/// Its segments go to the shard that awaits it; a shard that has a flow does not await it, whatever TCP has forgotten.
#[test]
fn a_flow_that_is_on_its_way_is_awaited_until_it_has_come() {
    let (table, tcp) = (FlowOwners::new(100, SECRET), Transport::Tcp);
    assert!(table.enter(1, tcp, &tuple(1)));
    assert!(!table.expects(1, tcp, &tuple(1)));
    assert!(table.enter_awaited(2, tcp, &tuple(1)));
    assert!(table.expects(2, tcp, &tuple(1)) && !table.expects(1, tcp, &tuple(1)));
    table.remove(1, tcp, &tuple(1));
    assert_eq!(table.other_than(1, tcp, &tuple(1)), Some(2));
    assert!(table.enter(2, tcp, &tuple(1)));
    table.leave_awaited(2, tcp, &tuple(1));
    assert!(!table.expects(2, tcp, &tuple(1)));
    assert_eq!(table.other_than(1, tcp, &tuple(1)), Some(2));
    table.remove(2, tcp, &tuple(1));
    assert_eq!(table.other_than(1, tcp, &tuple(1)), None);
}
