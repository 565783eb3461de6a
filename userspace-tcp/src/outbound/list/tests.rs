use super::*;
use crate::outbound::slot::{Slot, SlotState};
use crate::pool::QueuePool;
use crate::time::Instant;

fn ring(count: u32) -> Ring<u32> {
    let mut ring = Ring::new();
    let mut pool = QueuePool::new(count as usize, 0);
    for buf in 0..count {
        let slot = Slot {
            buf: Some(buf),
            start: u64::from(buf),
            sent_at: Instant::ZERO,
            len: 1,
            previous: 0,
            next: 0,
            sum: 0,
            state: SlotState::Queued,
            transmitted: false,
            retransmitted: false,
            excused: false,
        };
        ring.push(slot, &mut pool);
    }
    ring
}

fn names(list: &List, ring: &Ring<u32>) -> Vec<u32> {
    let mut names: Vec<u32> = list.first().into_iter().collect();
    while let Some(&last) = names.last() {
        let next = ring.get(last).map_or(last, |slot| slot.next);
        if next == last {
            break;
        }
        names.push(next);
    }
    assert_eq!(names.len(), list.len as usize);
    names
}

#[test]
fn a_segment_leaves_from_anywhere() {
    let order = [7, 0, 3, 9, 1];
    for gone in order {
        let mut ring = ring(10);
        let mut list = List::default();
        for name in order {
            list.push(&mut ring, name);
        }
        assert_eq!(names(&list, &ring), order);
        list.remove(&mut ring, gone);
        let left: Vec<u32> = order.into_iter().filter(|&name| name != gone).collect();
        assert_eq!(names(&list, &ring), left);
        list.push(&mut ring, gone);
        assert_eq!(names(&list, &ring).last(), Some(&gone));
    }
}

#[test]
fn a_list_in_the_order_of_time_takes_a_segment_anywhere() {
    let times = [5, 3, 9, 1, 7, 5, 2];
    let mut ring = ring(7);
    let mut list = List::default();
    for (name, time) in (0..).zip(times) {
        if let Some(slot) = ring.get_mut(name) {
            slot.sent_at = Instant::ZERO.plus_nanos(time);
        }
        list.insert(&mut ring, name);
    }
    assert_eq!(names(&list, &ring), [3, 6, 1, 0, 5, 4, 2]);
    for name in [3, 5, 2] {
        list.remove(&mut ring, name);
    }
    assert_eq!(names(&list, &ring), [6, 1, 0, 4]);
}

#[test]
fn an_emptied_list_begins_again() {
    let mut ring = ring(3);
    let mut list = List::default();
    for name in [2, 0, 1] {
        list.push(&mut ring, name);
    }
    for name in [0, 1, 2] {
        list.remove(&mut ring, name);
    }
    assert_eq!(list.first(), None);
    list.push(&mut ring, 1);
    assert_eq!(names(&list, &ring), [1]);
}
