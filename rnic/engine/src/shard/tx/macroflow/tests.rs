use std::net::Ipv4Addr;
use std::time::Duration;

use super::*;
use crate::shard::conn_ids::conn_ids;

mod random;

const LIMIT: usize = 4096;
const PEER: IpAddr = IpAddr::V4(Ipv4Addr::new(198, 18, 0, 2));
const OTHER: IpAddr = IpAddr::V4(Ipv4Addr::new(198, 18, 0, 3));

fn client(number: u32) -> ClientId {
    ClientId(number)
}

/// Each of these connections posts as much as it may, at most so much; what they have under way.
fn post(flows: &mut Macroflows, ids: &[ConnId], most: usize) -> usize {
    let mut sum = 0;
    for id in ids {
        let allowed = flows.allowance(*id).min(most);
        flows.under_way(*id, allowed, Instant::ZERO);
        if allowed < most {
            flows.wait(*id);
        }
        sum += allowed;
    }
    sum
}

#[test]
fn few_connections_are_not_held_back() {
    let ids = conn_ids(FEW as u16);
    let mut flows = Macroflows::new(ids.len(), LIMIT);
    for id in &ids {
        flows.join(*id, client(1), PEER);
    }
    assert_eq!(post(&mut flows, &ids, 100), 100 * FEW);
    assert_eq!(flows.pop_unblocked(), None);
}

#[test]
fn many_connections_have_one_window() {
    let ids = conn_ids(1000);
    let mut flows = Macroflows::new(ids.len(), LIMIT);
    for id in &ids {
        flows.join(*id, client(1), PEER);
    }
    assert_eq!(post(&mut flows, &ids, 10), window::INITIAL);
    assert!(flows.is_idle());
}

#[test]
fn a_peer_that_acknowledges_nothing_holds_up_nobody_elses_connections() {
    let ids = conn_ids(600);
    let (theirs, others) = ids.split_at(300);
    let mut flows = Macroflows::new(ids.len(), LIMIT);
    for id in theirs {
        flows.join(*id, client(1), PEER);
    }
    for id in others {
        flows.join(*id, client(1), OTHER);
    }
    assert_eq!(post(&mut flows, theirs, 10), window::INITIAL);
    assert_eq!(post(&mut flows, others, 10), window::INITIAL);
}

#[test]
fn those_that_wait_go_on_in_turn_client_by_client() {
    let ids = conn_ids(200);
    let (busy, rest) = ids.split_at(100);
    let (many, one) = rest.split_at(99);
    let mut flows = Macroflows::new(ids.len(), LIMIT);
    for id in busy {
        flows.join(*id, client(1), PEER);
    }
    for id in many {
        flows.join(*id, client(2), PEER);
    }
    flows.join(one[0], client(3), PEER);
    assert_eq!(post(&mut flows, busy, 6), window::INITIAL);
    assert_eq!(post(&mut flows, many, 1), 0);
    assert_eq!(post(&mut flows, one, 1), 0);
    for id in busy {
        flows.under_way(*id, 4, Instant::ZERO);
    }
    let mut unblocked = Vec::new();
    for _ in 0..4 {
        let (id, of) = flows.pop_unblocked().expect("there is room");
        unblocked.push(of);
        assert!(flows.allowance(id) > 0);
        flows.under_way(id, 1, Instant::ZERO);
    }
    // The last of the busy ones had found no room, and were there first.
    assert_eq!(unblocked, [client(1), client(2), client(3), client(1)]);
    // One that comes now does not overtake.
    assert_eq!(flows.allowance(busy[0]), 0);
}

#[test]
fn one_that_was_called_and_posts_nothing_leaves_its_place_to_the_next() {
    let ids = conn_ids(100);
    let mut flows = Macroflows::new(ids.len(), LIMIT);
    for id in &ids {
        flows.join(*id, client(1), PEER);
    }
    let (busy, waiting) = ids.split_at(60);
    assert_eq!(post(&mut flows, &busy[..51], 10), 510);
    assert_eq!(post(&mut flows, &busy[51..52], 2), 2);
    assert_eq!(post(&mut flows, waiting, 1), 0);
    flows.under_way(busy[0], 0, Instant::ZERO);
    flows.under_way(busy[1], 4, Instant::ZERO);
    for expected in &waiting[..5] {
        let (id, _) = flows.pop_unblocked().expect("room for one");
        assert_eq!(id, *expected);
        assert_eq!(flows.pop_unblocked(), None, "only one has room");
        let turn = SEGMENTS_PER_TURN..2 * SEGMENTS_PER_TURN;
        assert!(turn.contains(&flows.allowance(id)));
    }
}

#[test]
fn one_that_waits_goes_on_when_there_is_room_for_a_whole_turn() {
    let ids = conn_ids(100);
    let mut flows = Macroflows::new(ids.len(), LIMIT);
    for id in &ids {
        flows.join(*id, client(1), PEER);
    }
    assert_eq!(post(&mut flows, &ids, 10), window::INITIAL);
    let mut one_less = |of: usize, left: usize| {
        assert_eq!(flows.pop_unblocked(), None);
        flows.under_way(ids[of], left, Instant::ZERO);
    };
    (0..10).rev().for_each(|left| one_less(0, left));
    // The window has grown by one meanwhile.
    (5..10).rev().for_each(|left| one_less(1, left));
    flows.under_way(ids[1], 4, Instant::ZERO);
    assert!(flows.pop_unblocked().is_some());
}

#[test]
fn those_that_left_while_they_waited_hold_up_nobody() {
    let ids = conn_ids(1000);
    let mut flows = Macroflows::new(ids.len(), LIMIT);
    for id in &ids {
        flows.join(*id, client(1), PEER);
    }
    assert_eq!(post(&mut flows, &ids, 10), window::INITIAL);
    let (busy, waiting) = ids.split_at(52);
    let (gone, last) = waiting.split_at(900);
    for (before, id) in gone.iter().enumerate() {
        flows.leave(*id, Instant::ZERO);
        let party = &flows.flows[0].as_ref().expect("it has members").parties[&1];
        let entries = party.waiting.len();
        assert!(entries <= 2 * (ids.len() - 51 - before), "{entries}");
    }
    for id in busy {
        flows.leave(*id, Instant::ZERO);
    }
    let unblocked: Vec<ConnId> = std::iter::from_fn(|| flows.pop_unblocked())
        .map(|(id, _)| id)
        .collect();
    assert_eq!(unblocked, last);
}

#[test]
fn nothing_is_left_of_connections_that_are_gone() {
    let ids = conn_ids(100);
    let mut flows = Macroflows::new(ids.len(), LIMIT);
    for round in 0..3 {
        for id in &ids {
            flows.join(*id, client(round), PEER);
        }
        assert_eq!(post(&mut flows, &ids, 10), window::INITIAL);
        for id in &ids {
            flows.leave(*id, Instant::ZERO);
            flows.leave(*id, Instant::ZERO);
        }
        assert!(flows.is_idle() && flows.by_peer.is_empty());
        assert!(flows.flows.iter().all(Option::is_none) && flows.flows.len() == 1);
    }
}

#[test]
fn those_that_wait_go_on_when_the_busy_ones_end() {
    let ids = conn_ids(100);
    let mut flows = Macroflows::new(ids.len(), LIMIT);
    for id in &ids {
        flows.join(*id, client(1), PEER);
    }
    assert_eq!(post(&mut flows, &ids, 10), window::INITIAL);
    for id in &ids[..52] {
        flows.leave(*id, Instant::ZERO);
    }
    assert!(flows.pop_unblocked().is_some());
}

#[test]
fn losses_at_one_peer_are_no_others() {
    let ids = conn_ids(200);
    let (theirs, others) = ids.split_at(100);
    let mut flows = Macroflows::new(ids.len(), LIMIT);
    for id in theirs {
        flows.join(*id, client(1), PEER);
    }
    for id in others {
        flows.join(*id, client(1), OTHER);
    }
    post(&mut flows, theirs, 10);
    let later = Instant::ZERO + Duration::from_millis(1);
    let smaller = theirs[..60]
        .iter()
        .filter(|id| flows.lost(**id, Instant::ZERO + Duration::from_micros(1), later))
        .count();
    assert_eq!(smaller, 1);
    assert_eq!(post(&mut flows, others, 10), window::INITIAL);
}
