//! The other side writes what it likes into the shared words.

use std::sync::atomic::Ordering;

use super::private;
use crate::ring::{
    CqMemory, CqPushError, DoorbellConsumer, DoorbellProducer, QpMemory, RING_SLOTS_MAX, RingError,
    RingFault, RingFull, WorkRequest,
};
use crate::work::{Completion, MAX_PLACES, MAX_SGE, WorkSlot};

/// Byte offsets in a ring's memory (see the head of `ring::raw`).
const PRODUCER: usize = 64;
const CONSUMER: usize = 128;
const FIRST_ENTRY: usize = 256;

#[test]
fn a_producer_index_beyond_the_ring_is_a_fault() {
    let layout = QpMemory::layout(8, 8).unwrap();
    for distance in [9, 1000, u32::MAX / 2, u32::MAX] {
        let memory = private(layout.size);
        let (mut sq, _) = QpMemory::create_in(memory.clone(), &layout).unwrap();
        memory
            .atomic_u32(PRODUCER)
            .unwrap()
            .store(distance, Ordering::Relaxed);
        let fault = RingFault::Index {
            who: "producer",
            distance,
            capacity: 8,
        };
        assert_eq!(sq.pop(&mut WorkRequest::default()), Err(fault));
        assert!(!sq.is_empty(), "so that somebody looks and finds the fault");
    }
    let memory = private(DoorbellConsumer::memory_size(8, 1).unwrap());
    let mut doorbells = DoorbellConsumer::create_in(&memory, 8, 1)
        .unwrap()
        .remove(0);
    memory
        .atomic_u32(PRODUCER)
        .unwrap()
        .store(u32::MAX, Ordering::Relaxed);
    assert!(doorbells.pop().is_err());
    assert!(!doorbells.prepare_sleep());
}

#[test]
fn a_consumer_index_ahead_of_the_producer_is_a_fault() {
    let memory = private(CqMemory::size(4, 1).unwrap());
    let mut cq = CqMemory::create_in(&memory, 4, 1).unwrap().remove(0);
    for _ in 0..4 {
        cq.push(&Completion::default()).unwrap();
    }
    memory
        .atomic_u32(CONSUMER)
        .unwrap()
        .store(5, Ordering::Relaxed);
    assert!(matches!(
        cq.push(&Completion::default()),
        Err(CqPushError::Fault(RingFault::Index {
            who: "consumer",
            ..
        }))
    ));
    let mut client = CqMemory::attach(&memory, 4, 1).unwrap().remove(0);
    memory
        .atomic_u32(PRODUCER)
        .unwrap()
        .store(77, Ordering::Relaxed);
    assert!(client.poll(&mut [Completion::default(); 100]).is_err());
}

#[test]
fn a_client_of_a_broken_engine_finds_its_rings_full() {
    let layout = QpMemory::layout(8, 8).unwrap();
    let memory = private(layout.size);
    let _engine = QpMemory::create_in(memory.clone(), &layout).unwrap();
    let (mut sq, _) = QpMemory::attach(memory.clone(), &layout).unwrap();
    for _ in 0..8 {
        sq.push_parts(&WorkSlot::default(), &[], &[0; 4]).unwrap();
    }
    memory
        .atomic_u32(CONSUMER)
        .unwrap()
        .store(1 << 30, Ordering::Relaxed);
    assert_eq!(
        sq.push_parts(&WorkSlot::default(), &[], &[0; 4]),
        Err(RingFull)
    );
    let memory = private(DoorbellConsumer::memory_size(8, 1).unwrap());
    let _engine = DoorbellConsumer::create_in(&memory, 8, 1)
        .unwrap()
        .remove(0);
    let mut doorbells = DoorbellProducer::attach(&memory, 8, 1).unwrap().remove(0);
    memory
        .atomic_u32(CONSUMER)
        .unwrap()
        .store(1 << 30, Ordering::Relaxed);
    assert_eq!(doorbells.ring(crate::id::QpNum(1)), Err(RingFull));
}

#[test]
fn the_engine_believes_its_own_index_and_not_the_shared_copy() {
    let layout = QpMemory::layout(8, 8).unwrap();
    let memory = private(layout.size);
    let (mut engine, _) = QpMemory::create_in(memory.clone(), &layout).unwrap();
    let (mut sq, _) = QpMemory::attach(memory.clone(), &layout).unwrap();
    sq.push_parts(
        &WorkSlot {
            wr_id: 1,
            ..WorkSlot::default()
        },
        &[],
        &[0; 4],
    )
    .unwrap();
    memory
        .atomic_u32(CONSUMER)
        .unwrap()
        .store(12345, Ordering::Relaxed);
    let mut found = WorkRequest::default();
    assert_eq!(engine.pop(&mut found), Ok(true));
    assert_eq!(found.slot.wr_id, 1);
    assert_eq!(engine.pop(&mut found), Ok(false));
}

#[test]
fn a_work_request_whose_elements_cannot_be_is_a_fault() {
    let layout = QpMemory::layout(8, 8).unwrap();
    let ring = || {
        let memory = private(layout.size);
        let (engine, _) = QpMemory::create_in(memory.clone(), &layout).unwrap();
        memory
            .atomic_u32(PRODUCER)
            .unwrap()
            .store(2, Ordering::Relaxed);
        (memory, engine)
    };
    // The element count lies in the last two bytes of the slot's third word.
    let count_at = FIRST_ENTRY + 22;
    for num_sge in [MAX_PLACES as u16 + 1, u16::MAX] {
        let (memory, mut engine) = ring();
        memory.write(count_at, &num_sge.to_ne_bytes()).unwrap();
        let fault = RingFault::TooManySges {
            num_sge,
            max: MAX_PLACES,
        };
        assert_eq!(engine.pop(&mut WorkRequest::default()), Err(fault));
    }
    let (memory, mut engine) = ring();
    memory.write(count_at, &7_u16.to_ne_bytes()).unwrap();
    let fault = RingFault::Incomplete {
        needed: 3,
        found: 2,
    };
    assert_eq!(engine.pop(&mut WorkRequest::default()), Err(fault));
}

#[test]
fn random_bytes_give_requests_or_faults_and_nothing_else() {
    let layout = QpMemory::layout(16, 16).unwrap();
    let memory = private(layout.size);
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let mut bytes = vec![0; layout.size];
    for _ in 0..if cfg!(miri) { 5 } else { 2000 } {
        let (mut sq, mut rq) = QpMemory::create_in(memory.clone(), &layout).unwrap();
        for byte in &mut bytes {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            *byte = seed as u8;
        }
        memory.write(0, &bytes).unwrap();
        // An index that is believed leads on to the entries.
        memory
            .atomic_u32(PRODUCER)
            .unwrap()
            .store(seed as u32 % 17, Ordering::Relaxed);
        let mut found = WorkRequest::default();
        while let Ok(true) = sq.pop(&mut found) {
            assert!(found.sges().len() <= MAX_SGE);
        }
        let _ = rq.pop(&mut found);
        sq.clear_pending();
    }
}

#[test]
fn a_ring_of_another_kind_or_size_is_not_taken_up() {
    let memory = private(CqMemory::size(64, 1).unwrap());
    assert!(CqMemory::attach(&memory, 8, 1).is_err(), "no header at all");
    let _engine = CqMemory::create_in(&memory, 8, 1).unwrap().remove(0);
    assert!(CqMemory::attach(&memory, 8, 1).is_ok());
    let header = |field| match CqMemory::attach(&memory, 8, 1) {
        Err(RingError::Header { field: found, .. }) => assert_eq!(found, field),
        other => panic!("{other:?}"),
    };
    assert!(
        CqMemory::attach(&memory, 16, 1).is_err(),
        "another capacity"
    );
    assert!(
        DoorbellProducer::attach(&memory, 8, 1).is_err(),
        "another entry size"
    );
    for (at, field) in [
        (0, "magic"),
        (4, "version"),
        (8, "entry size"),
        (12, "capacity"),
    ] {
        let word = memory.atomic_u32(at).unwrap();
        let right = word.swap(99, Ordering::Relaxed);
        header(field);
        word.store(right, Ordering::Relaxed);
    }
    assert!(CqMemory::attach(&memory, 8, 1).is_ok());
}

#[test]
fn a_ring_that_its_memory_cannot_hold_is_not_made() {
    for capacity in [0, 3, RING_SLOTS_MAX * 2, u32::MAX] {
        assert!(matches!(
            CqMemory::size(capacity, 1),
            Err(RingError::Capacity { .. })
        ));
        assert!(QpMemory::layout(capacity, 8).is_err());
        assert!(QpMemory::layout(8, capacity).is_err());
    }
    let short = private(CqMemory::size(8, 1).unwrap() - 1);
    assert!(matches!(
        CqMemory::create_in(&short, 8, 1),
        Err(RingError::Bounds(_))
    ));
    assert!(CqMemory::attach(&short, 8, 1).is_err());
    assert!(
        CqMemory::attach(&private(8), 8, 1).is_err(),
        "not even a header"
    );
}
