//! Work queues.

use std::sync::mpsc;

use super::{TURNS, private};
use crate::ring::{
    QpMemory, RING_SLOTS_MAX, RingFull, WorkQueueConsumer, WorkQueueProducer, WorkRequest,
    slots_for,
};
use crate::work::{MAX_INLINE, MAX_SGE, Operands, Sge, WorkSlot, WrOpcode};

const NONE: Operands = [0; 4];

struct Qp {
    sq: WorkQueueProducer,
    rq: WorkQueueProducer,
    engine_sq: WorkQueueConsumer,
    engine_rq: WorkQueueConsumer,
}

fn qp(sq_slots: u32, rq_slots: u32) -> Qp {
    let layout = QpMemory::layout(sq_slots, rq_slots).unwrap();
    let memory = private(layout.size);
    let (engine_sq, engine_rq) = QpMemory::create_in(memory.clone(), &layout).unwrap();
    let (sq, rq) = QpMemory::attach(memory, &layout).unwrap();
    Qp {
        sq,
        rq,
        engine_sq,
        engine_rq,
    }
}

fn request(id: u64, num_sge: usize) -> WorkRequest {
    let mut request = WorkRequest::new(WrOpcode::Write, id);
    request.slot.remote_addr = id ^ 0x5555_aaaa_0000_ffff;
    request.slot.rkey = id as u32 ^ 0xdead_beef;
    request.slot.flags = 3;
    let sges: Vec<Sge> = (0..num_sge as u64)
        .map(|n| Sge {
            addr: id << 32 | n,
            length: n as u32 + 1,
            lkey: !(n as u32),
        })
        .collect();
    assert!(request.set_sges(&sges));
    request
}

fn assert_same(found: &WorkRequest, wanted: &WorkRequest) {
    // The decoded slot also shows its share of the elements.
    let bare = WorkSlot {
        num_sge: 0,
        sge: Default::default(),
        ..found.slot
    };
    assert_eq!(bare, wanted.slot);
    assert_eq!(found.sges(), wanted.sges());
}

#[test]
fn a_request_arrives_as_it_was_posted_whatever_its_elements() {
    let mut qp = qp(16, 16);
    let mut found = WorkRequest::default();
    // Twice round the ring, so that requests wrap over its end too.
    for round in 0..2 {
        for num_sge in 0..=MAX_SGE {
            let wanted = request(round * 100 + num_sge as u64, num_sge);
            qp.sq.push(&wanted).unwrap();
            assert!(qp.engine_sq.pop(&mut found).unwrap());
            assert_same(&found, &wanted);
            assert!(!qp.engine_sq.pop(&mut found).unwrap());
        }
    }
}

/// One slot with one element, looked at and then taken, is what would have been taken; all else stays.
#[test]
fn a_request_of_one_element_can_be_looked_at_before_it_is_taken() {
    let mut qp = qp(16, 16);
    let mut found = WorkRequest::default();
    assert_eq!(qp.engine_sq.single(), None);
    for round in 0..40 {
        let elements = round as usize % 4;
        let wanted = request(round, elements);
        qp.sq.push(&wanted).unwrap();
        let single = qp.engine_sq.single();
        assert_eq!(single.is_some(), elements == 1);
        if let Some(slot) = single {
            assert_eq!(qp.engine_sq.single(), Some(slot), "it is not taken yet");
            if round % 8 == 1 {
                qp.engine_sq.take_single();
                found.slot = slot;
                assert!(found.set_sges(&slot.sge[..1]));
                assert_same(&found, &wanted);
                assert!(!qp.engine_sq.pop(&mut found).unwrap());
                assert_eq!(qp.sq.free_slots(), 16, "its place is free");
                continue;
            }
        }
        assert!(qp.engine_sq.pop(&mut found).unwrap());
        assert_same(&found, &wanted);
    }
}

#[test]
fn inline_bytes_arrive_whole_whatever_their_number() {
    let mut qp = qp(16, 4);
    let bytes: Vec<u8> = (0..MAX_INLINE).map(|n| (n * 7 + n / 256) as u8).collect();
    let mut found = WorkRequest::default();
    for len in (0..=MAX_INLINE).step_by(if cfg!(miri) { 31 } else { 1 }) {
        let slot = request(len as u64, 0).slot;
        qp.sq.push_inline(&slot, &bytes[..len], &NONE).unwrap();
        assert!(qp.engine_sq.pop(&mut found).unwrap());
        assert!(found.is_inline());
        assert_eq!(found.slot.wr_id, len as u64);
        assert_eq!(found.total_length(), len as u64);
        assert_eq!(found.num_sge(), len.div_ceil(16));
        for at in [0, 1, 15, 16, 17, len / 2].map(|at| at.min(len)) {
            let mut part = vec![0xee; len - at];
            found.copy_inline(at, &mut part);
            assert_eq!(part, bytes[at..len], "{len} from {at}");
        }
        let mut beyond = [0xee; 40];
        found.copy_inline(MAX_INLINE - 8, &mut beyond);
        assert_eq!(beyond[8..], [0; 32]);
    }
    let slot = WorkSlot::default();
    let long = [0; MAX_INLINE + 1];
    assert_eq!(qp.sq.push_inline(&slot, &long, &NONE), Err(RingFull));
}

#[test]
fn no_more_elements_are_kept_than_there_is_room_for() {
    let mut qp = qp(16, 4);
    let mut found = WorkRequest::with_room(3);
    for num_sge in [0, 3, 4, 7, MAX_SGE] {
        let wanted = request(1, num_sge);
        qp.sq.push(&wanted).unwrap();
        assert!(qp.engine_sq.pop(&mut found).unwrap());
        assert_eq!(found.num_sge(), num_sge);
        assert_eq!(found.sges(), &wanted.sges()[..num_sge.min(3)]);
        assert_eq!(qp.sq.free_slots(), 16, "all slots come back");
    }
}

#[test]
fn operands_without_room_are_refused_and_change_nothing() {
    let mut request = WorkRequest::with_room(1);
    request.slot.opcode = WrOpcode::AtomicCompareSwap as u8;
    assert!(!request.set_operands(&[1, 2, 3, 4]));
    assert_eq!(request.operands(), None);
    request.slot.opcode = WrOpcode::AtomicFetchAdd as u8;
    assert!(request.set_operands(&[1, 2, 3, 4]));
    assert_eq!(request.operands(), Some([1, 2, 0, 0]));
}

#[test]
fn send_and_receive_queue_do_not_mix() {
    let mut qp = qp(4, 8);
    assert_eq!((qp.sq.capacity(), qp.rq.capacity()), (4, 8));
    qp.rq.push(&request(1, 1)).unwrap();
    let mut found = WorkRequest::default();
    assert!(qp.engine_sq.is_empty());
    assert!(!qp.engine_sq.pop(&mut found).unwrap());
    assert!(!qp.engine_rq.is_empty());
    assert!(qp.engine_rq.pop(&mut found).unwrap());
    assert_same(&found, &request(1, 1));
}

#[test]
fn slots_come_back_when_the_engine_takes_the_work() {
    let mut qp = qp(8, 4);
    assert_eq!(slots_for(7), 3);
    qp.sq.push(&request(1, 7)).unwrap();
    qp.sq.push(&request(2, 7)).unwrap();
    assert_eq!(qp.sq.free_slots(), 2);
    assert_eq!(qp.sq.push(&request(3, 7)), Err(RingFull));
    qp.sq.push(&request(3, 2)).unwrap();
    let mut found = WorkRequest::default();
    assert!(qp.engine_sq.pop(&mut found).unwrap());
    assert_eq!(qp.sq.free_slots(), 4);
    qp.sq.push(&request(4, 7)).unwrap();
}

#[test]
fn too_many_elements_never_fit() {
    let mut qp = qp(64, 4);
    let sges = [Sge::default(); MAX_SGE + 1];
    assert_eq!(
        qp.sq.push_parts(&WorkSlot::default(), &sges, &NONE),
        Err(RingFull)
    );
    assert!(!WorkRequest::default().set_sges(&sges));
    qp.sq
        .push_parts(&WorkSlot::default(), &sges[1..], &NONE)
        .unwrap();
}

#[test]
fn slots_hold_the_depth_that_was_asked_for() {
    for (depth, max_sge, slots) in [(0, 1, 1), (1, 1, 1), (5, 2, 8), (5, 3, 16), (100, 32, 1024)] {
        assert_eq!(
            QpMemory::slots(depth, max_sge).unwrap(),
            slots,
            "{depth} {max_sge}"
        );
    }
    assert!(QpMemory::slots(RING_SLOTS_MAX + 1, 1).is_err());
    assert!(QpMemory::slots(u32::MAX, u32::MAX).is_err());
}

#[test]
fn no_work_is_stranded_behind_a_doorbell() {
    let mut qp = qp(64, 4);
    let (doorbell, rung) = mpsc::channel();
    let client = std::thread::spawn(move || {
        for id in 0..TURNS {
            let request = request(u64::from(id), id as usize % 5);
            while qp.sq.push(&request).is_err() {
                std::thread::yield_now();
            }
            if qp.sq.set_pending().is_some() {
                doorbell.send(()).unwrap();
            }
        }
    });
    let mut next = 0;
    let mut found = WorkRequest::default();
    // The engine looks only when the doorbell is rung: stranded work would hang the test.
    while next < u64::from(TURNS) {
        rung.recv().unwrap();
        qp.engine_rq.clear_pending();
        while qp.engine_sq.pop(&mut found).unwrap() {
            assert_same(&found, &request(next, next as usize % 5));
            next += 1;
        }
    }
    client.join().unwrap();
}

#[test]
#[cfg_attr(miri, ignore)]
fn both_ends_work_over_a_descriptor() {
    let layout = QpMemory::layout(8, 8).unwrap();
    let (mut engine_sq, _, _, fd) = QpMemory::create(&layout, 0).unwrap();
    let (mut sq, _) = QpMemory::attach_fd(fd, &layout).unwrap();
    sq.push(&request(9, 3)).unwrap();
    let mut found = WorkRequest::default();
    assert!(engine_sq.pop(&mut found).unwrap());
    assert_same(&found, &request(9, 3));
}

#[test]
fn operands_arrive_behind_any_number_of_elements_or_inline_bytes() {
    let mut qp = qp(64, 4);
    let mut found = WorkRequest::default();
    let operands = [1, u64::MAX, 3 << 40, 4];
    let kinds = [
        (WrOpcode::WriteImmediate, [1, u64::MAX, 0, 0]),
        (WrOpcode::AtomicCompareSwap, operands),
        (WrOpcode::Write, NONE),
    ];
    for (opcode, wanted) in kinds {
        for num_sge in [0, 1, 2, 3, 5, MAX_SGE] {
            let mut request = request(7, num_sge);
            request.slot.opcode = opcode as u8;
            let elements = request.sges().to_vec();
            assert!(request.set_sges(&elements));
            assert!(request.set_operands(&operands));
            assert_eq!(request.operands(), Some(wanted));
            qp.sq.push(&request).unwrap();
            let (slot, sges) = (&request.slot, request.sges());
            qp.sq.push_parts(slot, sges, &operands).unwrap();
            for _ in 0..2 {
                assert!(qp.engine_sq.pop(&mut found).unwrap());
                assert_same(&found, &request);
                assert_eq!(
                    found.operands(),
                    Some(wanted),
                    "{opcode:?}, {num_sge} elements"
                );
            }
        }
        let bytes = [0xee; 17];
        let slot = WorkRequest::new(opcode, 7).slot;
        qp.sq.push_inline(&slot, &bytes, &operands).unwrap();
        assert!(qp.engine_sq.pop(&mut found).unwrap());
        assert_eq!((found.num_sge(), found.total_length()), (2, 17));
        assert_eq!(found.operands(), Some(wanted));
    }
}

#[test]
fn operands_that_a_client_left_out_or_that_there_is_no_room_for_are_none() {
    let mut qp = qp(64, 4);
    let mut slot = WorkRequest::new(WrOpcode::AtomicCompareSwap, 7).slot;
    slot.opcode = WrOpcode::Send as u8;
    qp.sq.push_parts(&slot, &[Sge::default()], &NONE).unwrap();
    let mut found = WorkRequest::default();
    assert!(qp.engine_sq.pop(&mut found).unwrap());
    found.slot.opcode = WrOpcode::AtomicCompareSwap as u8;
    assert_eq!((found.operands(), found.num_sge()), (None, 0));
    slot.opcode = WrOpcode::AtomicCompareSwap as u8;
    qp.sq
        .push_parts(&slot, &[Sge::default(); 2], &NONE)
        .unwrap();
    let mut small = WorkRequest::with_room(3);
    assert!(qp.engine_sq.pop(&mut small).unwrap());
    assert_eq!((small.operands(), small.num_sge()), (None, 2));
}

#[test]
fn what_waits_is_looked_at_in_any_order_and_taken_in_its_own() {
    let mut qp = qp(16, 16);
    let mut found = WorkRequest::default();
    let sizes = [0, 7, 2, 3, 1];
    for round in 0..5 {
        let front = qp.engine_sq.front();
        assert_eq!(qp.engine_sq.peek(front, &mut found), Ok(false));
        let ids = || (round * 10..).zip(sizes);
        for (id, num_sge) in ids() {
            qp.sq.push(&request(id, num_sge)).unwrap();
        }
        let free = qp.sq.free_slots();
        for index in [4, 0, 2, 3, 1_u32] {
            let place = qp.engine_sq.behind(front, index).unwrap().unwrap();
            assert_eq!(qp.engine_sq.peek(place, &mut found), Ok(true));
            let (id, num_sge) = ids().nth(index as usize).unwrap();
            assert_same(&found, &request(id, num_sge));
        }
        let end = qp.engine_sq.behind(front, 5).unwrap().unwrap();
        assert_eq!(qp.engine_sq.peek(end, &mut found), Ok(false));
        assert_eq!(qp.engine_sq.behind(front, 6), Ok(None));
        assert_eq!(qp.sq.free_slots(), free);
        for (id, num_sge) in ids() {
            assert_eq!(qp.engine_sq.pop(&mut found), Ok(true));
            assert_same(&found, &request(id, num_sge));
        }
        assert_eq!(qp.engine_sq.peek(front, &mut found), Ok(false), "taken");
        assert_eq!(qp.engine_sq.behind(front, 1), Ok(None));
    }
}

#[test]
#[cfg_attr(miri, ignore)]
fn a_doorbell_is_for_the_shard_that_has_the_queue_pair_at_the_time() {
    let layout = QpMemory::layout(4, 4).unwrap();
    let (engine_sq, _, shard, fd) = QpMemory::create(&layout, 3).unwrap();
    let (sq, rq) = QpMemory::attach_fd(fd, &layout).unwrap();
    assert_eq!(sq.set_pending(), Some(3));
    assert_eq!(rq.set_pending(), None, "it is rung for");
    shard.set(1);
    engine_sq.clear_pending();
    assert_eq!(rq.set_pending(), Some(1));
}
