use std::sync::Arc;

use rnic_ipc::ring::{QpMemory, SrqMemory, WorkQueueProducer};
use rnic_ipc::shm::SharedMemory;
use rnic_ipc::work::WrOpcode;

use super::*;

const CLIENT: ClientId = ClientId(3);
const SRQ: SrqId = SrqId(5);
const MAX_SGE: u32 = 4;

fn queue(table: &mut SrqTable, srq: SrqId) -> WorkQueueProducer {
    let slots = QpMemory::slots(8, MAX_SGE).unwrap();
    let memory = Arc::new(SharedMemory::private(SrqMemory::size(slots).unwrap()).unwrap());
    let engine = SrqMemory::create_in(memory.clone(), slots, MAX_SGE).unwrap();
    assert!(table.add(CLIENT, srq, MAX_SGE as usize, engine));
    SrqMemory::attach(memory, slots, MAX_SGE).unwrap()
}

fn post(queue: &mut WorkQueueProducer, wr_ids: std::ops::Range<u64>) {
    for wr_id in wr_ids {
        queue
            .push(&WorkRequest::new(WrOpcode::Recv, wr_id))
            .unwrap();
    }
}

fn take(table: &mut SrqTable) -> u64 {
    let mut found = WorkRequest::with_room(4);
    assert_eq!(table.pop(SRQ, &mut found), Ok(true));
    found.slot.wr_id
}

#[test]
fn the_limit_is_told_once_when_fewer_receives_wait_than_that() {
    let mut table = SrqTable::new(2);
    let mut client = queue(&mut table, SRQ);
    post(&mut client, 0..4);
    assert!(table.arm(SRQ, 3));
    assert_eq!(take(&mut table), 0);
    assert_eq!(table.poll_limit(), None, "three are not fewer than three");
    assert_eq!(take(&mut table), 1);
    assert_eq!(table.poll_limit(), Some((CLIENT, SRQ)));
    assert_eq!(take(&mut table), 2);
    assert_eq!(table.poll_limit(), None, "it is disarmed");
    post(&mut client, 4..8);
    assert!(table.arm(SRQ, 4));
    assert_eq!(table.poll_limit(), None);
    take(&mut table);
    take(&mut table);
    assert_eq!(table.poll_limit(), Some((CLIENT, SRQ)));
}

#[test]
fn a_limit_that_is_reached_already_is_told_at_once_and_none_is_never() {
    let mut table = SrqTable::new(2);
    let mut client = queue(&mut table, SRQ);
    post(&mut client, 0..2);
    assert!(table.arm(SRQ, 3));
    assert!(table.arm(SRQ, u32::MAX));
    assert_eq!(table.poll_limit(), Some((CLIENT, SRQ)));
    assert_eq!(table.poll_limit(), None, "once, however often it was armed");
    assert!(table.arm(SRQ, 2));
    assert!(table.arm(SRQ, 0));
    take(&mut table);
    take(&mut table);
    assert_eq!(table.poll_limit(), None, "the wish was taken back");
}

#[test]
fn a_queue_that_is_gone_has_nothing_to_tell_and_nothing_to_take() {
    let mut table = SrqTable::new(2);
    let _client = queue(&mut table, SRQ);
    let _other = queue(&mut table, SrqId(6));
    assert_eq!(table.len(), 2);
    assert!(table.arm(SRQ, 1));
    assert!(table.remove(SRQ));
    assert!(!table.remove(SRQ));
    assert_eq!(table.poll_limit(), None);
    assert!(!table.arm(SRQ, 1));
    assert_eq!(table.max_sge(SRQ), None);
    assert!(table.has_none(SRQ));
    let mut found = WorkRequest::default();
    assert_eq!(table.pop(SRQ, &mut found), Ok(false));
    assert!(table.remove(SrqId(6)) && table.is_empty());
}

#[test]
fn a_name_is_given_once() {
    let mut table = SrqTable::new(2);
    let _client = queue(&mut table, SRQ);
    let memory = Arc::new(SharedMemory::private(SrqMemory::size(8).unwrap()).unwrap());
    let engine = SrqMemory::create_in(memory, 8, 1).unwrap();
    assert!(!table.add(CLIENT, SRQ, 1, engine));
}
