//! Fenced work: begun when the Reads and atomics before it are answered.

use rnic_ipc::work::WR_FENCE;

use super::*;

const SOURCE: u64 = BASE + 0x100;
const WORD: u64 = BASE + 0x200;
const SINK: u64 = BASE + 0x2_0000;

fn fenced(mut work: WorkRequest) -> WorkRequest {
    work.slot.flags |= WR_FENCE;
    work
}

#[test]
fn fenced_work_waits_for_the_reads_and_atomics_before_it_and_what_is_behind_waits_with_it() {
    let first = [read(1, sge(SINK, 8), SOURCE), fetch_add(1, SINK, WORD, 1)];
    let behind = |wr_id| {
        [
            send(wr_id, &[sge(SOURCE, 8)]),
            write(wr_id, &[sge(SOURCE, 8)], SINK),
            read(wr_id, sge(SINK, 8), SOURCE),
            immediate(WrOpcode::WriteImmediate, wr_id, &[sge(SOURCE, 8)], SINK, 7),
        ]
    };
    for before in &first {
        for work in behind(2) {
            let (mut a, mut b) = joined();
            b.post_recv(9, &[sge(SINK, 8)]);
            a.post_send(before);
            a.post_send(&fenced(work));
            a.post_send(&write(3, &[sge(SOURCE, 8)], SINK));
            let request = a.produce(MULPDU).unwrap();
            assert!(a.produce(MULPDU).is_none(), "it overtook the answer");
            assert!(a.sends().is_empty());
            b.receive(&request);
            pump(&mut a, &mut b);
            let ok = WcStatus::Success;
            assert_eq!(statuses(&a.sends()), [(1, ok), (2, ok), (3, ok)]);
        }
    }
}

#[test]
fn a_fence_with_nothing_outstanding_holds_nothing_up() {
    let (mut a, mut b) = joined();
    b.post_recv(9, &[sge(SINK, 8)]);
    a.post_send(&fenced(send(1, &[sge(SOURCE, 8)])));
    pump(&mut a, &mut b);
    assert_eq!(statuses(&a.sends()), [(1, WcStatus::Success)]);
}

/// Its own Read Requests are not those before it.
#[test]
fn a_fenced_read_of_several_elements_asks_for_all_of_them_at_once() {
    let (mut a, _) = joined();
    let sinks = [sge(SINK, 4), sge(SINK + 8, 4)];
    let whole = remote(WrOpcode::Read, 1, &sinks, STAG, SOURCE);
    a.post_send(&fenced(whole));
    assert!(a.produce(MULPDU).is_some());
    assert!(a.produce(MULPDU).is_some());
    assert_eq!(a.counters.read_requests_sent, 2);
}

#[test]
fn fenced_work_behind_a_read_does_not_hold_up_the_end() {
    let (mut a, _) = joined();
    a.post_send(&read(1, sge(SINK, 8), SOURCE));
    a.post_send(&fenced(write(2, &[sge(SOURCE, 8)], SINK)));
    assert!(a.produce(MULPDU).is_some());
    a.qp.peer_closed(false);
    assert!(a.produce(MULPDU).is_none());
    assert_eq!(a.qp.wants_close(), Some(CloseKind::Graceful));
}

/// Only room was missing: it is not one of those that wait for the peer.
#[test]
fn fenced_work_that_may_begin_is_sent_before_the_end_although_the_peer_is_done() {
    let (mut a, _) = joined();
    a.post_send(&fenced(write(1, &[sge(SOURCE, 8)], SINK)));
    assert!(a.transmit(MULPDU, 4, 1).is_empty());
    a.qp.peer_closed(false);
    assert_eq!(a.qp.wants_close(), None);
    assert!(a.produce(MULPDU).is_some());
    assert_eq!(statuses(&a.sends()), [(1, WcStatus::Success)]);
    assert_eq!(a.qp.wants_close(), Some(CloseKind::Graceful));
}
