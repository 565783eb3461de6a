//! The doorbell ring.

use std::sync::mpsc;

use super::{TURNS, private};
use crate::id::QpNum;
use crate::ring::{DoorbellConsumer, DoorbellProducer, RingFull};

fn doorbells(entries: u32) -> (DoorbellProducer, DoorbellConsumer) {
    let memory = private(DoorbellConsumer::memory_size(entries, 1).unwrap());
    let engine = DoorbellConsumer::create_in(&memory, entries, 1)
        .unwrap()
        .remove(0);
    (
        DoorbellProducer::attach(&memory, entries, 1)
            .unwrap()
            .remove(0),
        engine,
    )
}

#[test]
fn doorbells_come_in_order_and_a_full_ring_says_so() {
    let (mut client, mut engine) = doorbells(2);
    assert_eq!(client.ring(QpNum(7)), Ok(false));
    assert_eq!(client.ring(QpNum(u32::MAX)), Ok(false));
    assert_eq!(client.ring(QpNum(9)), Err(RingFull));
    assert_eq!(engine.pop(), Ok(Some(QpNum(7))));
    assert_eq!(engine.pop(), Ok(Some(QpNum(u32::MAX))));
    assert_eq!(engine.pop(), Ok(None));
}

#[test]
fn doorbells_are_taken_several_at_a_time_and_no_more_than_asked_for() {
    let (mut client, mut engine) = doorbells(8);
    for number in 1..=3 {
        assert_eq!(client.ring(QpNum(number)), Ok(false));
    }
    let mut taken = vec![QpNum(0)];
    assert_eq!(engine.take(2, &mut taken), Ok(()));
    assert_eq!(taken, [0, 1, 2].map(QpNum), "behind what is there");
    assert_eq!(engine.take(2, &mut taken), Ok(()));
    assert_eq!(taken, [0, 1, 2, 3].map(QpNum));
    assert!(engine.is_empty());
}

#[test]
fn only_the_first_doorbell_of_a_sleep_asks_for_a_kick() {
    let (mut client, mut engine) = doorbells(8);
    assert!(engine.prepare_sleep());
    assert_eq!(client.ring(QpNum(1)), Ok(true));
    assert_eq!(client.ring(QpNum(2)), Ok(false));
    engine.wake_up();
    assert_eq!(client.ring(QpNum(3)), Ok(false));
}

#[test]
fn the_engine_does_not_sleep_over_a_doorbell() {
    let (mut client, mut engine) = doorbells(8);
    assert_eq!(client.ring(QpNum(1)), Ok(false));
    assert!(!engine.prepare_sleep());
    assert_eq!(client.ring(QpNum(2)), Ok(false), "it is awake");
    assert!(!engine.is_empty());
}

#[test]
fn no_doorbell_is_lost_to_a_sleeping_engine() {
    let (mut client, mut engine) = doorbells(16);
    let (kick, kicked) = mpsc::channel();
    let ringer = std::thread::spawn(move || {
        for number in 0..TURNS {
            loop {
                match client.ring(QpNum(number)) {
                    Ok(true) => break kick.send(()).unwrap(),
                    Ok(false) => break,
                    Err(RingFull) if client.take_sleeping() => kick.send(()).unwrap(),
                    Err(RingFull) => std::thread::yield_now(),
                }
            }
        }
    });
    let mut next = 0;
    while next < TURNS {
        while let Some(found) = engine.pop().unwrap() {
            assert_eq!(found, QpNum(next));
            next += 1;
        }
        if next < TURNS && engine.prepare_sleep() {
            // A doorbell without its kick would hang the test, or fail it at the ringer's end.
            kicked.recv().unwrap();
            engine.wake_up();
        }
    }
    ringer.join().unwrap();
}
