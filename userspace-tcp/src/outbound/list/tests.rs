use userspace_net::Instant;
use userspace_net::pool::QueuePool;

use super::*;
use crate::outbound::slot::{Slot, SlotState};
use crate::rate::Stamp;

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
            stamp: Stamp::default(),
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
    // Wherever it is looked for from: the last one, the one put in before, or the first one.
    let from_last = |_: &List, _: u32| None;
    let from_before = |_: &List, name: u32| name.checked_sub(1);
    let from_first = |list: &List, _: u32| list.first();
    for near in [from_last, from_before, from_first] as [fn(&List, u32) -> Option<u32>; 3] {
        let mut ring = ring(7);
        let mut list = List::default();
        for (name, time) in (0..).zip(times) {
            if let Some(slot) = ring.get_mut(name) {
                slot.sent_at = Instant::ZERO.plus_nanos(time);
            }
            let near = near(&list, name);
            list.insert(&mut ring, name, near);
        }
        assert_eq!(names(&list, &ring), [3, 6, 1, 0, 5, 4, 2]);
        for name in [3, 5, 2] {
            list.remove(&mut ring, name);
        }
        assert_eq!(names(&list, &ring), [6, 1, 0, 4]);
    }
}

/// What is put in in the order of time next to the one before is not compared with all the others.
#[test]
fn many_that_follow_each_other_take_few_steps() {
    const COUNT: u32 = 50_000;
    let mut ring = ring(2 * COUNT);
    let mut list = List::default();
    for name in 0..2 * COUNT {
        if let Some(slot) = ring.get_mut(name) {
            let late = u64::from(name >= COUNT) * 1_000_000;
            slot.sent_at = Instant::ZERO.plus_nanos(late + u64::from(name));
        }
    }
    for name in COUNT..2 * COUNT {
        list.push(&mut ring, name);
    }
    let begin = std::time::Instant::now();
    let mut near = None;
    for name in 0..COUNT {
        list.insert(&mut ring, name, near);
        near = Some(name);
    }
    // 2,500 million steps from the end would take longer by a factor of ten thousand.
    assert!(begin.elapsed() < std::time::Duration::from_secs(10));
    assert!(names(&list, &ring).into_iter().eq(0..2 * COUNT));
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
