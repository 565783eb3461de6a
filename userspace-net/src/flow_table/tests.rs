use std::collections::HashMap;

use super::*;

/// A stand-in for the keyed hash.
fn hash(flow: u64) -> FlowHash {
    let mut x = flow.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    FlowHash(x ^ (x >> 31))
}

/// Flows by index, as connections know them.
fn find(table: &FlowTable, flows: &HashMap<u32, u64>, flow: u64) -> Option<u32> {
    table.find(hash(flow), |index| flows.get(&index) == Some(&flow))
}

#[test]
fn a_table_full_of_churn_finds_what_is_there_and_nothing_else() {
    const FLOWS: u32 = 300;
    let mut table = FlowTable::new(FLOWS as usize);
    let mut flows: HashMap<u32, u64> = HashMap::new();
    let mut next = 0;
    for round in 0..50_000_u64 {
        let index = (hash(round).0 >> 20) as u32 % FLOWS;
        if let Some(old) = flows.remove(&index) {
            table.remove(hash(old), index);
            assert_eq!(find(&table, &flows, old), None);
        } else {
            next += 1;
            assert_eq!(find(&table, &flows, next), None);
            table.insert(hash(next), index);
            flows.insert(index, next);
        }
        if round % 1000 == 0 {
            for (&index, &flow) in &flows {
                assert_eq!(find(&table, &flows, flow), Some(index));
            }
        }
    }
    for (index, flow) in flows.drain() {
        table.remove(hash(flow), index);
        table.remove(hash(flow), index);
    }
    for bucket in &table.buckets {
        assert_eq!((bucket.tags, bucket.passed), ([EMPTY; SLOTS], 0));
    }
}

#[test]
fn flows_with_one_hash_find_a_place_up_to_the_limit() {
    for connections in [1, 7, 100] {
        let mut table = FlowTable::new(connections);
        for index in 0..connections as u32 {
            table.insert(FlowHash(u64::MAX), index);
        }
        for index in 0..connections as u32 {
            assert_eq!(table.find(FlowHash(u64::MAX), |i| i == index), Some(index));
        }
        for index in 0..connections as u32 {
            table.remove(FlowHash(u64::MAX), index);
        }
        assert_eq!(table.find(FlowHash(u64::MAX), |_| true), None);
    }
}

#[test]
fn a_lookup_in_a_full_table_sees_one_bucket_and_asks_one_connection() {
    const FLOWS: u32 = 100_000;
    let mut table = FlowTable::new(FLOWS as usize);
    for flow in 0..FLOWS {
        table.insert(hash(flow.into()), flow);
    }
    let at_home = (0..FLOWS).filter(|&flow| {
        let hash = hash(flow.into());
        let place = table.place(hash, flow);
        place.is_some_and(|(at, _)| at == table.home(hash))
    });
    assert!(at_home.count() > FLOWS as usize * 97 / 100);
    let asked = std::cell::Cell::new(0);
    for flow in 0..FLOWS {
        table.find(hash(flow.into()), |index| {
            asked.set(asked.get() + 1);
            index == flow
        });
    }
    assert!(asked.get() < FLOWS + FLOWS / 1000, "{}", asked.get());
}
