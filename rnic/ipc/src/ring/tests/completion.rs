//! Completion queues.

use std::sync::mpsc;

use super::{TURNS, private};
use crate::ring::{CqConsumer, CqMemory, CqProducer, CqPushError};
use crate::work::Completion;

fn cq(depth: u32) -> (CqProducer, CqConsumer) {
    let memory = private(CqMemory::size(depth, 1).unwrap());
    let producer = CqMemory::create_in(&memory, depth, 1).unwrap().remove(0);
    (
        producer,
        CqMemory::attach(&memory, depth, 1).unwrap().remove(0),
    )
}

fn completion(id: u64) -> Completion {
    Completion {
        wr_id: id,
        qp: id as u32 ^ 0x1234_5678,
        byte_len: !(id as u32),
        status: id as u8 % 7,
        opcode: id as u8 % 5,
        flags: id as u16 | 0x8001,
        invalidated: id as u32 | 0x4000_0002,
        immediate: id << 3,
    }
}

#[test]
fn completions_come_out_as_they_went_in_and_in_order() {
    let (mut engine, mut client) = cq(4);
    let mut out = [Completion::default(); 3];
    let mut next = 0;
    for id in 0..100 {
        engine.push(&completion(id)).unwrap();
        if id % 3 == 2 {
            assert_eq!(client.available(), Ok(3));
            assert_eq!(client.poll(&mut out), Ok(3));
            for found in &out {
                assert_eq!(*found, completion(next));
                next += 1;
            }
        }
    }
    assert_eq!(client.poll(&mut out), Ok(1));
    assert_eq!(client.poll(&mut out), Ok(0));
}

#[test]
fn a_full_queue_overflows_and_loses_nothing_that_was_in_it() {
    let (mut engine, mut client) = cq(2);
    engine.push(&completion(0)).unwrap();
    engine.push(&completion(1)).unwrap();
    assert_eq!(
        engine.push(&completion(2)),
        Err(CqPushError::Overflow { depth: 2 })
    );
    let mut out = [Completion::default(); 8];
    assert_eq!(client.poll(&mut out), Ok(2));
    assert_eq!(out[1], completion(1));
    engine.push(&completion(3)).unwrap();
}

#[test]
fn arming_wakes_once() {
    let (mut engine, mut client) = cq(8);
    engine.push(&completion(0)).unwrap();
    assert!(!engine.take_armed(true), "nobody armed it");
    client.arm(false);
    engine.push(&completion(1)).unwrap();
    assert!(engine.take_armed(false));
    assert!(!engine.take_armed(true));
}

#[test]
fn arming_for_solicited_waits_for_one_and_the_wider_wish_stays() {
    let (mut engine, mut client) = cq(8);
    client.arm(true);
    assert!(!engine.take_armed(false));
    assert!(engine.take_armed(true));
    client.arm(false);
    client.arm(true);
    assert!(engine.take_armed(false));
}

#[test]
fn no_wake_up_is_lost_when_the_client_arms_and_polls_again() {
    let (mut engine, mut client) = cq(64);
    let (wake, woken) = mpsc::channel();
    let producer = std::thread::spawn(move || {
        for id in 0..u64::from(TURNS) {
            while engine.push(&completion(id)).is_err() {
                std::thread::yield_now();
            }
            if engine.take_armed(false) {
                wake.send(()).unwrap();
            }
        }
    });
    let mut out = [Completion::default(); 16];
    let mut next = 0;
    while next < u64::from(TURNS) {
        let mut count = client.poll(&mut out).unwrap();
        if count == 0 {
            client.arm(false);
            count = client.poll(&mut out).unwrap();
            if count == 0 {
                // A lost wake-up would hang the test, or fail it when the producer is done.
                woken.recv().unwrap();
            }
        }
        for found in &out[..count] {
            assert_eq!(*found, completion(next));
            next += 1;
        }
    }
    producer.join().unwrap();
}

#[test]
fn a_look_finds_what_a_poll_would() {
    let (mut engine, mut client) = cq(2);
    let look = client.look();
    let mut out = [Completion::default(); 1];
    for id in 0..10 {
        assert!(look.is_empty());
        engine.push(&completion(id)).unwrap();
        assert!(!look.is_empty());
        engine.push(&completion(id)).unwrap();
        assert_eq!(client.poll(&mut out), Ok(1));
        assert!(!look.is_empty(), "one of two is left");
        assert_eq!(client.poll(&mut out), Ok(1));
    }
    assert!(look.is_empty());
}

#[test]
fn what_is_fetched_ahead_is_written_a_line_of_completions_later() {
    let (mut engine, mut client) = cq(8);
    let mut out = [Completion::default(); 8];
    let starts: Vec<usize> = (0..24)
        .map(|id| {
            let ahead = engine.memory_ahead().addr();
            engine.push(&completion(id)).unwrap();
            client.poll(&mut out).unwrap();
            ahead
        })
        .collect();
    // Two completions a line, four lines, lap after lap.
    for (id, ahead) in starts.iter().enumerate().skip(8) {
        assert_eq!(*ahead, starts[id - 8]);
    }
    let first = starts[6..14].iter().min().unwrap();
    for (id, ahead) in starts.iter().enumerate() {
        assert_eq!(ahead - first, (id + 2) % 8 * size_of::<Completion>());
    }
}

#[test]
fn the_rings_of_a_queue_have_entries_of_their_own_and_one_wish() {
    let memory = private(CqMemory::size(1, 3).unwrap());
    let mut engine = CqMemory::create_in(&memory, 1, 3).unwrap();
    let mut client = CqMemory::attach(&memory, 1, 3).unwrap();
    client[2].arm(false);
    for (ring, id) in engine.iter_mut().zip(0..) {
        ring.push(&completion(id)).unwrap();
    }
    assert!(engine[1].take_armed(false));
    assert!(!engine[0].take_armed(false), "it was fulfilled");
    let mut out = [Completion::default(); 2];
    for (ring, id) in client.iter_mut().zip(0..) {
        assert_eq!(ring.poll(&mut out), Ok(1));
        assert_eq!(out[0], completion(id));
    }
}

#[test]
fn a_wish_goes_over_to_the_rings_that_follow() {
    let before = private(CqMemory::size(2, 2).unwrap());
    let after = private(CqMemory::size(4, 2).unwrap());
    let old = CqMemory::create_in(&before, 2, 2).unwrap();
    let mut new = CqMemory::create_in(&after, 4, 2).unwrap();
    CqMemory::attach(&before, 2, 2).unwrap()[0].arm(true);
    for (new, old) in new.iter_mut().zip(&old) {
        assert!(new.follow(old), "there is another");
    }
    assert!(!new[0].take_armed(false), "for a solicited one only");
    assert!(new[1].take_armed(true));
}
