//! What a client does wrong costs its own queue pair, and nothing else.

use rnic_proto::rdmap::RdmapError;

use super::*;

const SOURCE: u64 = BASE + 0x100;
const SINK: u64 = BASE + 0x2_0000;

fn local(lkey: Stag, addr: u64, length: u32) -> Sge {
    Sge {
        addr,
        length,
        lkey: lkey.0,
    }
}

fn assert_fails(request: WorkRequest, status: WcStatus) {
    let (mut a, mut b) = joined();
    a.post_send(&read(1, sge(SINK, 8), SOURCE));
    a.post_send(&request);
    a.post_send(&send(3, &[]));
    pump(&mut a, &mut b);
    let control = control(RdmapError::LocalCatastrophic);
    let expected = [
        (1, WcStatus::WorkRequestFlushed),
        (request.slot.wr_id, status),
    ];
    assert_eq!(statuses(&a.sends()), expected, "{request:?}");
    assert_eq!(
        a.qp.wants_close(),
        Some(CloseKind::AfterTerminateSent { control })
    );
    assert_eq!(
        b.qp.wants_close(),
        Some(CloseKind::TerminateReceived { control })
    );
    a.with_ctx(|qp, ctx| qp.connection_ended(ctx, DisconnectReason::LocalError));
    assert_eq!(a.qp.state(), QpState::Error);
    assert_eq!(statuses(&a.sends()), [(3, WcStatus::WorkRequestFlushed)]);
    b.assert_guarded_untouched();
}

#[test]
fn memory_that_the_work_may_not_use_is_a_protection_error() {
    let end = BASE + LEN as u64;
    let sources = [
        local(Stag(9), SOURCE, 8),
        local(OTHER_STAG, BASE, 8),
        local(STAG, BASE - 1, 8),
        local(STAG, end - 7, 8),
        local(STAG, u64::MAX, 8),
        local(STAG, BASE, u32::MAX),
    ];
    for source in sources {
        assert_fails(send(2, &[source]), WcStatus::LocalProtection);
        assert_fails(
            send(2, &[sge(SOURCE, 0), source]),
            WcStatus::LocalProtection,
        );
        assert_fails(write(2, &[source], SINK), WcStatus::LocalProtection);
        assert_fails(read(2, source, SOURCE), WcStatus::LocalProtection);
    }
    assert_fails(
        read(2, local(BARE_STAG, BASE, 8), SOURCE),
        WcStatus::LocalProtection,
    );
}

#[test]
fn work_that_makes_no_sense_is_an_operation_error() {
    let impossible = WcStatus::LocalQpOperation;
    let mut unknown = send(2, &[]);
    unknown.slot.opcode = 0x77;
    let too_many = [sge(SOURCE, 1); MAX_SGE as usize + 1];
    let huge = [sge(SOURCE, u32::MAX), sge(SOURCE, u32::MAX)];
    for request in [
        unknown,
        request(WrOpcode::Recv, 2, &[]),
        send(2, &too_many),
        send(2, &huge),
        write(2, &[sge(SOURCE, 8)], u64::MAX - 6),
    ] {
        assert_fails(request, impossible);
    }
}

#[test]
fn a_read_without_an_ord_is_an_operation_error() {
    let (mut a, mut b) = joined_with(&Negotiated {
        ord: 0,
        ..negotiated(None)
    });
    a.post_send(&read(1, sge(SINK, 8), SOURCE));
    pump(&mut a, &mut b);
    assert_eq!(statuses(&a.sends()), [(1, WcStatus::LocalQpOperation)]);
}

#[test]
fn a_source_that_is_deregistered_in_the_middle_of_a_message_ends_it() {
    let (mut a, mut b) = joined();
    a.post_send(&write(1, &[sge(SOURCE, 5000)], SINK));
    b.receive(&a.produce(MULPDU).unwrap());
    assert!(a.stags.remove(STAG));
    pump(&mut a, &mut b);
    assert_eq!(statuses(&a.sends()), [(1, WcStatus::LocalProtection)]);
    assert_eq!(b.qp.state(), QpState::Terminate);
}

#[test]
fn a_receive_into_memory_that_it_may_not_use_is_a_protection_error() {
    for buffer in [
        local(Stag(9), SOURCE, 8),
        local(OTHER_STAG, BASE, 8),
        local(BARE_STAG, BASE, 8),
        local(STAG, BASE + LEN as u64 - 7, 8),
    ] {
        let (mut a, mut b) = joined();
        b.post_recv(4, &[buffer]);
        b.post_recv(5, &[sge(SINK, 8)]);
        a.post_send(&send(1, &[sge(SOURCE, 8)]));
        pump(&mut a, &mut b);
        assert_eq!(statuses(&b.recvs()), [(4, WcStatus::LocalProtection)]);
        let control = control(RdmapError::LocalCatastrophic);
        assert_eq!(
            b.qp.wants_close(),
            Some(CloseKind::AfterTerminateSent { control })
        );
        b.with_ctx(|qp, ctx| qp.connection_ended(ctx, DisconnectReason::LocalError));
        assert_eq!(statuses(&b.recvs()), [(5, WcStatus::WorkRequestFlushed)]);
        b.assert_guarded_untouched();
    }
}

#[test]
fn a_receive_that_is_no_receive_is_an_operation_error() {
    let (mut a, mut b) = joined();
    b.rq.push(&send(4, &[sge(SINK, 8)])).unwrap();
    a.post_send(&send(1, &[sge(SOURCE, 8)]));
    pump(&mut a, &mut b);
    assert_eq!(statuses(&b.recvs()), [(4, WcStatus::LocalQpOperation)]);
}

#[test]
fn a_broken_ring_is_told_once_and_ends_the_queue_pair() {
    let (mut a, mut b) = joined();
    let mut broken = send(1, &[]);
    broken.slot.flags = 0;
    a.sq.push(&broken).unwrap();
    // The producer index is the first word of the ring's second line.
    let memory = a.queues.clone();
    memory
        .atomic_u32(64)
        .unwrap()
        .store(0x8000_0000, std::sync::atomic::Ordering::Release);
    a.doorbell();
    pump(&mut a, &mut b);
    assert!(a.qp.take_fault().is_some());
    assert!(a.qp.take_fault().is_none());
    assert_eq!(a.qp.state(), QpState::Error);
    assert_eq!(a.qp.wants_close(), Some(CloseKind::AbortNow));
    a.doorbell();
    a.with_ctx(|qp, ctx| qp.connection_ended(ctx, DisconnectReason::Aborted));
    assert!(a.qp.take_fault().is_none());
}

#[test]
fn a_cq_that_overflows_ends_its_queue_pairs_but_not_the_other_cq() {
    let (mut a, mut b) = (End::with(attributes(true), 2), End::new());
    open(&mut a, &mut b, &negotiated(None));
    a.post_recv(9, &[sge(SINK, 8)]);
    for wr_id in 0..3 {
        a.post_send(&write(wr_id, &[sge(SOURCE, 8)], SINK));
    }
    pump(&mut a, &mut b);
    let failure = a.cqs.poll_failure().unwrap();
    assert_eq!(failure.cq, SEND_CQ);
    assert!(a.qp.uses_cq(failure.cq) && !a.qp.uses_cq(CqId(99)));
    a.with_ctx(|qp, ctx| qp.cq_failed(ctx));
    assert_eq!(a.qp.state(), QpState::Error);
    assert_eq!(a.qp.wants_close(), Some(CloseKind::AbortNow));
    assert_eq!(statuses(&a.recvs()), [(9, WcStatus::WorkRequestFlushed)]);
    assert_eq!(a.sends().len(), 2, "what was told before stays");
}

#[test]
fn an_error_wakes_also_a_client_that_waits_for_solicited_completions() {
    let (mut a, mut b) = joined();
    let mut wakeups = |end: &mut End| {
        pump(end, &mut b);
        end.cqs.flush_wakeups();
        let flags = rustix::net::RecvFlags::DONTWAIT;
        rustix::net::recv(&end.woken, &mut [0; 8], flags).map_or(0, |(count, _)| count)
    };
    a.send_cq.arm(true);
    a.post_send(&write(1, &[sge(SOURCE, 8)], SINK));
    assert_eq!(wakeups(&mut a), 0);
    a.post_send(&write(2, &[sge(BASE - 1, 8)], SINK));
    assert_eq!(wakeups(&mut a), 1);
}
