//! Models of the rings: loom runs each through every order of its atomics' effects.
//!
//! Each has few steps, because the orders are many. `scripts/loom` runs them.

use std::sync::Arc;

use loom::thread;

use super::{
    CqConsumer, CqMemory, CqProducer, DoorbellConsumer, DoorbellProducer, QpMemory,
    WorkQueueConsumer, WorkQueueProducer, WorkRequest,
};
use crate::id::QpNum;
use crate::shm::SharedMemory;
use crate::work::{Completion, WrOpcode};

fn memory(len: usize) -> Arc<SharedMemory> {
    Arc::new(SharedMemory::private(len).unwrap())
}

fn completions() -> (CqProducer, CqConsumer) {
    let memory = memory(CqMemory::size(2, 1).unwrap());
    let producer = CqMemory::create_in(&memory, 2, 1).unwrap().remove(0);
    (producer, CqMemory::attach(&memory, 2, 1).unwrap().remove(0))
}

fn completion(wr_id: u64) -> Completion {
    Completion {
        wr_id,
        immediate: !wr_id,
        ..Completion::default()
    }
}

fn doorbells() -> (DoorbellConsumer, DoorbellProducer) {
    let memory = memory(DoorbellConsumer::memory_size(2, 1).unwrap());
    let consumer = DoorbellConsumer::create_in(&memory, 2, 1)
        .unwrap()
        .remove(0);
    (
        consumer,
        DoorbellProducer::attach(&memory, 2, 1).unwrap().remove(0),
    )
}

fn work_queue() -> (WorkQueueConsumer, WorkQueueProducer) {
    let layout = QpMemory::layout(1, 1).unwrap();
    let memory = memory(layout.size);
    let (sq, _) = QpMemory::create_in(memory.clone(), &layout).unwrap();
    let (client, _) = QpMemory::attach(memory, &layout).unwrap();
    (sq, client)
}

fn work(wr_id: u64) -> WorkRequest {
    let mut work = WorkRequest::new(WrOpcode::Send, wr_id);
    work.slot.remote_addr = !wr_id;
    work
}

/// Every entry that is seen is whole and in its turn, round the ring's end too.
#[test]
fn completions_come_whole_and_in_order() {
    loom::model(|| {
        let (mut engine, mut client) = completions();
        let producing = thread::spawn(move || {
            let pushed = (1..=3).take_while(|wr_id| engine.push(&completion(*wr_id)).is_ok());
            pushed.count()
        });
        let mut seen = Vec::new();
        let mut out = [Completion::default(); 2];
        for _ in 0..2 {
            let count = client.poll(&mut out).unwrap();
            seen.extend_from_slice(&out[..count]);
        }
        let pushed = producing.join().unwrap();
        let count = client.poll(&mut out).unwrap();
        seen.extend_from_slice(&out[..count]);
        assert!(pushed >= 2);
        assert_eq!(seen.len(), pushed);
        for (seen, wr_id) in seen.iter().zip(1..) {
            assert_eq!(*seen, completion(wr_id));
        }
    });
}

/// A client that armed, looked once more and found nothing is woken by what comes.
#[test]
fn a_completion_is_seen_or_wakes() {
    for solicited_only in [false, true] {
        loom::model(move || {
            let (mut engine, mut client) = completions();
            let producing = thread::spawn(move || {
                engine.push(&completion(1)).unwrap();
                engine.take_armed(true)
            });
            client.arm(solicited_only);
            let seen = client.available().unwrap() > 0;
            let woken = producing.join().unwrap();
            assert!(seen || woken, "it would sleep for ever");
        });
    }
}

/// Of two completions, whose looks at the wish come one after the other, one wakes.
#[test]
fn a_wish_is_fulfilled_once() {
    loom::model(|| {
        let (mut engine, mut client) = completions();
        let producing = thread::spawn(move || {
            let woken = [1, 2].map(|wr_id| {
                engine.push(&completion(wr_id)).unwrap();
                engine.take_armed(false)
            });
            woken.into_iter().filter(|woken| *woken).count()
        });
        client.arm(false);
        let seen = client.available().unwrap();
        let woken = producing.join().unwrap();
        assert!(woken <= 1);
        assert!(
            seen == 2 || woken == 1,
            "{seen} seen, then it would sleep for ever"
        );
    });
}

/// Work that is posted while the engine answers the last doorbell is drained with that, or has one
/// of its own.
#[test]
fn work_is_drained_or_has_a_doorbell() {
    loom::model(|| {
        let (mut engine, mut client) = work_queue();
        assert!(
            client.set_pending().is_some(),
            "the doorbell that is being answered"
        );
        let posting = thread::spawn(move || {
            client.push(&work(1)).unwrap();
            client.set_pending().is_some()
        });
        engine.clear_pending();
        let mut found = WorkRequest::default();
        let drained = engine.pop(&mut found).unwrap();
        let rung = posting.join().unwrap();
        assert!(drained || rung, "it would be stranded");
        if drained {
            assert_eq!(found.slot.remote_addr, !1, "not whole");
        }
    });
}

/// Work that is posted while its queue pair is moved is drained by the shard that gets the queue pair, or has a
/// doorbell there.
#[test]
fn work_of_a_queue_pair_that_is_moved_is_drained_or_has_a_doorbell_at_its_shard() {
    loom::model(|| {
        let layout = QpMemory::layout(1, 1).unwrap();
        let memory = memory(layout.size);
        let (mut engine, _) = QpMemory::create_in(memory.clone(), &layout).unwrap();
        let shard = QpMemory::shard(&memory).unwrap();
        let (mut client, _) = QpMemory::attach(memory, &layout).unwrap();
        shard.set(0);
        let posting = thread::spawn(move || {
            client.push(&work(1)).unwrap();
            client.set_pending()
        });
        shard.set(1);
        engine.clear_pending();
        let drained = engine.pop(&mut WorkRequest::default()).unwrap();
        let rung = posting.join().unwrap();
        assert!(drained || rung == Some(1), "it would be stranded");
    });
}

/// Two shards that complete work of one queue fulfil one wish once.
#[test]
fn a_wish_is_fulfilled_once_by_two_shards() {
    loom::model(|| {
        let memory = memory(CqMemory::size(1, 2).unwrap());
        let engine = CqMemory::create_in(&memory, 1, 2).unwrap();
        let mut client = CqMemory::attach(&memory, 1, 2).unwrap();
        let shards: Vec<_> = engine
            .into_iter()
            .map(|mut ring| {
                thread::spawn(move || {
                    ring.push(&completion(1)).unwrap();
                    ring.take_armed(false)
                })
            })
            .collect();
        client[0].arm(false);
        let seen: u32 = client.iter().map(|ring| ring.available().unwrap()).sum();
        let woken = shards.into_iter().map(|shard| shard.join().unwrap());
        let woken = woken.filter(|woken| *woken).count();
        assert!(woken <= 1);
        assert!(
            seen == 2 || woken == 1,
            "{seen} seen, then it would sleep for ever"
        );
    });
}

/// A slot is written again only when the engine has copied it.
#[test]
fn a_slot_is_not_reused_before_it_was_taken() {
    loom::model(|| {
        let (mut engine, mut client) = work_queue();
        client.push(&work(1)).unwrap();
        let posting = thread::spawn(move || client.push(&work(2)).is_ok());
        let mut found = WorkRequest::default();
        assert!(engine.pop(&mut found).unwrap());
        assert_eq!((found.slot.wr_id, found.slot.remote_addr), (1, !1));
        let posted = posting.join().unwrap();
        assert_eq!(engine.pop(&mut found).unwrap(), posted);
        if posted {
            assert_eq!((found.slot.wr_id, found.slot.remote_addr), (2, !2));
        }
    });
}

/// An engine that said that it would sleep, looked once more and found nothing is kicked.
#[test]
fn a_doorbell_is_seen_or_kicks() {
    loom::model(|| {
        let (mut engine, mut client) = doorbells();
        let ringing = thread::spawn(move || client.ring(QpNum(7)).unwrap());
        let sleeps = engine.prepare_sleep();
        let kicked = ringing.join().unwrap();
        assert!(!sleeps || kicked, "it would sleep for ever");
        assert_eq!(engine.pop().unwrap(), Some(QpNum(7)));
    });
}
