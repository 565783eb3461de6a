//! Shared receive queues.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::private;
use crate::ring::{
    QpMemory, RingFault, RingFull, SrqMemory, WorkQueueConsumer, WorkQueueProducer, WorkRequest,
};
use crate::shm::SharedMemory;
use crate::work::{MAX_SGE, Sge, WrOpcode};

/// Byte offset of the producer's index (see the head of `ring::raw`).
const PRODUCER: usize = 64;

fn queue(slots: u32, max_sge: u32) -> (WorkQueueConsumer, WorkQueueProducer, Arc<SharedMemory>) {
    let memory = private(SrqMemory::size(slots).unwrap());
    let engine = SrqMemory::create_in(memory.clone(), slots, max_sge).unwrap();
    let client = SrqMemory::attach(memory.clone(), slots, max_sge).unwrap();
    (engine, client, memory)
}

fn receive(wr_id: u64, num_sge: usize) -> WorkRequest {
    let mut request = WorkRequest::new(WrOpcode::Recv, wr_id);
    let sge = |n| Sge {
        addr: wr_id << 32 | n,
        length: n as u32,
        lkey: 7,
    };
    let sges: Vec<Sge> = (0..num_sge as u64).map(sge).collect();
    assert!(request.set_sges(&sges));
    request
}

#[test]
fn receives_are_counted_whatever_their_elements() {
    for max_sge in [1, 2, 3, 6, 7, MAX_SGE as u32] {
        let slots = QpMemory::slots(5, max_sge).unwrap();
        let (mut engine, mut client, _) = queue(slots, max_sge);
        let mut found = WorkRequest::default();
        // More than once round the ring.
        for wr_id in 0..100 {
            for n in 0..5 {
                let num_sge = (wr_id as usize + n) % (max_sge as usize + 1);
                client
                    .push(&receive(wr_id * 5 + n as u64, num_sge))
                    .unwrap();
                assert_eq!(engine.waiting(), Ok(n as u32 + 1));
            }
            for n in 0..5 {
                assert!(engine.pop(&mut found).unwrap());
                assert_eq!(engine.waiting(), Ok(4 - n));
                assert_eq!(found.slot.wr_id, wr_id * 5 + u64::from(n));
                let wanted = (wr_id as usize + n as usize) % (max_sge as usize + 1);
                assert_eq!(found.sges(), receive(found.slot.wr_id, wanted).sges());
            }
        }
        assert!(!engine.pop(&mut found).unwrap());
    }
}

#[test]
fn as_many_receives_fit_as_were_asked_for() {
    let slots = QpMemory::slots(4, 5).unwrap();
    let (_engine, mut client, _) = queue(slots, 5);
    for wr_id in 0..4 {
        client.push(&receive(wr_id, 0)).unwrap();
    }
    assert_eq!(client.push(&receive(4, 0)), Err(RingFull));
}

#[test]
fn a_receive_longer_than_all_are_and_one_that_is_not_whole_are_faults() {
    let (mut engine, mut client, memory) = queue(16, 4);
    client.push(&receive(1, 2)).unwrap();
    // The element count lies in the last two bytes of the first entry's third word.
    memory.write(256 + 22, &7_u16.to_ne_bytes()).unwrap();
    let fault = RingFault::TooLong { needed: 3, most: 2 };
    assert_eq!(engine.pop(&mut WorkRequest::default()), Err(fault));
    let (mut engine, _client, memory) = queue(16, 4);
    let producer = memory.atomic_u32(PRODUCER).unwrap();
    producer.store(1, Ordering::Relaxed);
    let fault = RingFault::Incomplete {
        needed: 2,
        found: 1,
    };
    assert_eq!(engine.pop(&mut WorkRequest::default()), Err(fault));
    producer.store(u32::MAX, Ordering::Relaxed);
    assert!(engine.waiting().is_err());
}

/// Also where all take one slot: a longer one would be counted twice.
#[test]
fn a_receive_of_two_slots_among_those_of_one_is_a_fault() {
    for max_sge in [1, 2] {
        let (mut engine, mut client, memory) = queue(16, max_sge);
        assert_eq!(client.push(&receive(1, 3)), Err(RingFull), "never fits");
        client.push(&receive(1, 1)).unwrap();
        client.push(&receive(2, 1)).unwrap();
        memory.write(256 + 22, &3_u16.to_ne_bytes()).unwrap();
        let fault = RingFault::TooLong { needed: 2, most: 1 };
        assert_eq!(engine.pop(&mut WorkRequest::default()), Err(fault));
    }
}

#[test]
#[cfg_attr(miri, ignore)]
fn both_ends_work_over_a_descriptor() {
    let (mut engine, fd) = SrqMemory::create(8, 3).unwrap();
    let mut client = SrqMemory::attach_fd(fd, 8, 3).unwrap();
    client.push(&receive(9, 3)).unwrap();
    let mut found = WorkRequest::default();
    assert!(engine.pop(&mut found).unwrap());
    assert_eq!(found.slot.wr_id, 9);
}
