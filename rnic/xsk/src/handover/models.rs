//! Models of packets that are handed over: loom runs each through every order of its atomics' effects, one through those
//! of few preemptions.
//!
//! Each has few steps, because the orders are many. `scripts/loom` runs them.

use loom::thread;

use super::tests::{Shard, shards};
use crate::umem::ChunkSize;

const FRAMES: u32 = 4;

/// Of the one model that has too many orders.
const PREEMPTIONS: usize = 6;

fn two(depth: usize) -> [Shard; 2] {
    shards(2, FRAMES, ChunkSize::Bytes2048, depth)
        .try_into()
        .ok()
        .unwrap()
}

/// Two packets by a way that holds one, to a taker that looks meanwhile.
#[test]
fn each_packet_comes_once_and_in_order_or_is_counted_and_no_pool_shrinks() {
    loom::model(|| {
        let [mut a, mut b] = two(1);
        let giving = thread::spawn(move || {
            a.give(1, &[1]);
            a.give(1, &[2]);
            a
        });
        let mut seen = b.take();
        let mut a = giving.join().unwrap();
        seen.extend(b.take());
        let lost = a.end.statistics().full as usize;
        assert_eq!(seen.len() + lost, 2, "{seen:?}");
        let sent: [&[u8]; 2] = [&[1], &[2]];
        assert!(seen == sent[..seen.len()] || seen == sent[1..], "{seen:?}");
        assert_eq!([a.free_chunks(), b.free_chunks()], [FRAMES as usize; 2]);
        // The way carries as much as before.
        a.give(1, &[3]);
        assert_eq!(b.take(), [[3]]);
    });
}

/// Both hand over to each other at once.
#[test]
fn frames_that_come_back_are_not_those_that_are_given() {
    loom::model(|| {
        let [mut a, mut b] = two(1);
        let other = thread::spawn(move || {
            b.give(0, &[2]);
            let seen = b.take();
            (b, seen)
        });
        a.give(1, &[1]);
        let mut seen_a = a.take();
        let (mut b, mut seen_b) = other.join().unwrap();
        seen_a.extend(a.take());
        seen_b.extend(b.take());
        assert_eq!((seen_a, seen_b), (vec![vec![2]], vec![vec![1]]));
        assert_eq!([a.free_chunks(), b.free_chunks()], [FRAMES as usize; 2]);
    });
}

/// Two givers share the bell of one taker.
#[test]
fn a_packet_is_seen_before_sleeping_or_ends_the_sleep() {
    loom::model(|| {
        let [mut a, mut b, mut c]: [Shard; 3] = shards(3, FRAMES, ChunkSize::Bytes2048, 1)
            .try_into()
            .ok()
            .unwrap();
        let giving = [
            thread::spawn(move || a.give(2, &[1])),
            thread::spawn(move || b.give(2, &[2])),
        ];
        c.end.prepare_sleep();
        for thread in giving {
            thread.join().unwrap();
        }
        assert!(c.end.inbox.bell.is_rung(), "it would sleep for ever");
        let mut seen = c.take();
        seen.sort();
        assert_eq!(seen, [[1], [2]]);
    });
}

/// One that something else woke as well, perhaps. All orders would take hours: those are left out that change between the
/// two threads, where neither has to wait, more often than [`PREEMPTIONS`].
#[test]
fn a_taker_that_sleeps_again_misses_no_packet() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(PREEMPTIONS);
    model.check(|| {
        let [mut a, mut b] = two(2);
        let giving = thread::spawn(move || [1, 2].map(|number| a.give(1, &[number])));
        b.end.prepare_sleep();
        let mut seen = b.take().len();
        b.end.prepare_sleep();
        giving.join().unwrap();
        assert!(
            seen == 2 || b.end.inbox.bell.is_rung(),
            "{seen} seen, then it sleeps"
        );
        seen += b.take().len();
        assert_eq!(seen, 2);
        b.end.prepare_sleep();
        assert!(
            !b.end.inbox.bell.is_rung(),
            "there is nothing, and it does not sleep"
        );
    });
}

/// Two givers tell of theirs by one word.
#[test]
fn a_look_that_takes_the_news_of_one_giver_misses_no_packet_of_another() {
    loom::model(|| {
        let [mut a, mut b, mut c]: [Shard; 3] = shards(3, FRAMES, ChunkSize::Bytes2048, 1)
            .try_into()
            .ok()
            .unwrap();
        let giving = [
            thread::spawn(move || a.give(2, &[1])),
            thread::spawn(move || b.give(2, &[2])),
        ];
        let mut seen = c.take();
        for thread in giving {
            thread.join().unwrap();
        }
        seen.extend(c.take());
        seen.sort();
        assert_eq!(seen, [[1], [2]]);
    });
}
