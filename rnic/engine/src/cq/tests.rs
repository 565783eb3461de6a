use std::os::fd::AsFd;

use rnic_ipc::ring::{CqConsumer, CqMemory};
use rnic_ipc::shm::SharedMemory;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType};

use super::*;

const CLIENT: ClientId = ClientId(7);
const CQ: CqId = CqId(3);

struct Setup {
    table: CqTable,
    consumer: CqConsumer,
    woken: OwnedFd,
}

fn ring(depth: u32) -> (CqProducer, CqConsumer) {
    let size = CqMemory::size(depth, 1).unwrap();
    let memory = Arc::new(SharedMemory::private(size).unwrap());
    let producer = CqMemory::create_in(&memory, depth, 1).unwrap().remove(0);
    (
        producer,
        CqMemory::attach(&memory, depth, 1).unwrap().remove(0),
    )
}

fn setup(depth: u32) -> Setup {
    let (producer, consumer) = ring(depth);
    let (notify, woken) = rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )
    .unwrap();
    let mut table = CqTable::new(4);
    assert!(table.add(CLIENT, CQ, producer, notify.into()));
    Setup {
        table,
        consumer,
        woken,
    }
}

/// Bytes that wait in the notification socket.
fn wakeups(woken: impl AsFd) -> usize {
    let mut bytes = [0; 64];
    rustix::net::recv(woken, &mut bytes, RecvFlags::DONTWAIT).map_or(0, |(count, _)| count)
}

fn completion(wr_id: u64) -> Completion {
    Completion {
        wr_id,
        ..Completion::default()
    }
}

#[test]
fn a_completion_is_there_before_any_flush() {
    let mut s = setup(4);
    s.table.push(CQ, &completion(5), false).unwrap();
    let mut out = [Completion::default(); 4];
    assert_eq!(s.consumer.poll(&mut out), Ok(1));
    assert_eq!(out[0].wr_id, 5);
}

#[test]
fn an_armed_cq_wakes_once_per_batch_and_one_that_is_not_armed_never() {
    let mut s = setup(16);
    s.table.push(CQ, &completion(0), false).unwrap();
    s.table.flush_wakeups();
    assert_eq!(wakeups(&s.woken), 0);
    s.consumer.arm(false);
    for wr_id in 1..4 {
        s.table.push(CQ, &completion(wr_id), false).unwrap();
    }
    s.table.flush_wakeups();
    s.table.flush_wakeups();
    assert_eq!(wakeups(&s.woken), 1);
}

#[test]
fn armed_for_solicited_ones_only_the_others_do_not_wake() {
    let mut s = setup(16);
    s.consumer.arm(true);
    s.table.push(CQ, &completion(1), false).unwrap();
    s.table.flush_wakeups();
    assert_eq!(wakeups(&s.woken), 0);
    s.table.push(CQ, &completion(2), true).unwrap();
    s.table.push(CQ, &completion(3), false).unwrap();
    assert_eq!(s.table.dirty.len(), 1);
    s.table.flush_wakeups();
    assert_eq!(wakeups(&s.woken), 1);
}

#[test]
fn a_client_that_reads_no_wakeups_blocks_nobody() {
    let mut s = setup(2);
    let mut out = [Completion::default(); 2];
    for wr_id in 0..100_000 {
        s.consumer.arm(false);
        s.table.push(CQ, &completion(wr_id), false).unwrap();
        s.table.flush_wakeups();
        s.consumer.poll(&mut out).unwrap();
    }
}

#[test]
fn an_overflow_is_told_once_and_ends_the_cq() {
    let mut s = setup(2);
    s.table.push(CQ, &completion(1), false).unwrap();
    s.table.push(CQ, &completion(2), false).unwrap();
    assert_eq!(
        s.table.push(CQ, &completion(3), false),
        Err(CqDead { cq: CQ })
    );
    let mut out = [Completion::default(); 2];
    assert_eq!(s.consumer.poll(&mut out), Ok(2));
    assert_eq!(
        s.table.push(CQ, &completion(4), false),
        Err(CqDead { cq: CQ })
    );
    let error = CqPushError::Overflow { depth: 2 };
    assert_eq!(
        s.table.poll_failure(),
        Some(CqFailure {
            client: CLIENT,
            cq: CQ,
            error
        })
    );
    assert_eq!(s.table.poll_failure(), None);
}

#[test]
fn a_removed_cq_is_gone_with_all_that_was_to_be_told() {
    let mut s = setup(1);
    s.consumer.arm(false);
    s.table.push(CQ, &completion(1), false).unwrap();
    s.table.push(CQ, &completion(2), false).unwrap_err();
    assert!(s.table.remove(CQ));
    assert!(!s.table.remove(CQ));
    s.table.flush_wakeups();
    assert_eq!(s.table.poll_failure(), None);
    assert_eq!(wakeups(&s.woken), 0);
}

#[test]
fn another_ring_takes_what_comes_and_is_armed_as_the_first_was() {
    let mut s = setup(2);
    let mut out = [Completion::default(); 8];
    s.table.push(CQ, &completion(1), false).unwrap();
    s.table.flush_wakeups();
    s.consumer.arm(true);
    let (producer, mut second) = ring(8);
    assert!(s.table.replace_ring(CQ, producer));
    for wr_id in 2..6 {
        s.table.push(CQ, &completion(wr_id), false).unwrap();
    }
    s.table.flush_wakeups();
    assert_eq!(wakeups(&s.woken), 0, "for solicited ones only");
    s.table.push(CQ, &completion(6), true).unwrap();
    s.table.flush_wakeups();
    assert_eq!(wakeups(&s.woken), 1);
    assert_eq!(s.consumer.poll(&mut out), Ok(1));
    assert_eq!(second.poll(&mut out), Ok(5));
    assert_eq!(out[0].wr_id, 2);

    assert!(!s.table.replace_ring(CqId(4), ring(8).0), "no such queue");
    for wr_id in 0..9 {
        let _ = s.table.push(CQ, &completion(wr_id), false);
    }
    assert!(!s.table.replace_ring(CQ, ring(16).0), "it has overflowed");
}

#[test]
fn who_waits_is_woken_when_one_of_several_rings_is_replaced() {
    let mut s = setup(2);
    let memory = |depth| {
        let size = CqMemory::size(depth, 2).unwrap();
        Arc::new(SharedMemory::private(size).unwrap())
    };
    let (before, after) = (memory(2), memory(4));
    let of = |memory, depth| CqMemory::create_in(memory, depth, 2).unwrap().remove(0);
    assert!(s.table.replace_ring(CQ, of(&before, 2)));
    s.table.flush_wakeups();
    CqMemory::attach(&before, 2, 2).unwrap()[1].arm(false);
    assert!(s.table.replace_ring(CQ, of(&after, 4)));
    s.table.flush_wakeups();
    assert_eq!(wakeups(&s.woken), 1);
}

#[test]
fn a_queue_that_failed_in_another_shard_fails_here_once() {
    let mut s = setup(2);
    assert!(s.table.fail(CQ));
    assert!(!s.table.is_usable(CQ));
    assert!(s.table.push(CQ, &completion(1), false).is_err());
    let failure = s.table.poll_failure().unwrap();
    assert_eq!((failure.client, failure.cq), (CLIENT, CQ));
    assert!(s.table.fail(CQ));
    assert_eq!(s.table.poll_failure(), None);
    assert!(!s.table.fail(CqId(9)), "no such queue");
}
