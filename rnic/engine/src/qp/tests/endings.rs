//! States, the opening of a stream, and its end.

use super::*;

const SOURCE: u64 = BASE + 0x100;
const SINK: u64 = BASE + 0x2_0000;

#[test]
fn only_an_idle_queue_pair_connects() {
    let mut a = End::new();
    assert_eq!(a.qp.state(), QpState::Idle);
    a.qp.enter_rdma_mode(&negotiated(None), true);
    assert_eq!(a.qp.state(), QpState::Idle);
    a.qp.begin_connecting().unwrap();
    let wrong = WrongQpState {
        found: QpState::Connecting,
        wanted: QpState::Idle,
    };
    assert_eq!(a.qp.begin_connecting(), Err(wrong));
}

#[test]
fn work_posted_before_rdma_mode_waits_for_it() {
    let (mut a, mut b) = (End::new(), End::new());
    a.post_send(&write(1, &[sge(SOURCE, 8)], SINK));
    assert!(a.produce(MULPDU).is_none());
    open(&mut a, &mut b, &negotiated(None));
    assert!(a.sends().is_empty());
    pump(&mut a, &mut b);
    assert_eq!(statuses(&a.sends()), [(1, WcStatus::Success)]);
}

#[test]
fn work_posted_before_a_connection_that_fails_is_flushed() {
    let mut a = End::new();
    a.post_send(&send(1, &[]));
    a.post_recv(2, &[]);
    a.qp.begin_connecting().unwrap();
    a.with_ctx(|qp, ctx| qp.connection_ended(ctx, DisconnectReason::Refused));
    assert_eq!(statuses(&a.sends()), [(1, WcStatus::WorkRequestFlushed)]);
    assert_eq!(statuses(&a.recvs()), [(2, WcStatus::WorkRequestFlushed)]);
    a.post_send(&send(3, &[]));
    a.post_recv(4, &[]);
    assert_eq!(statuses(&a.sends()), [(3, WcStatus::WorkRequestFlushed)]);
    assert_eq!(statuses(&a.recvs()), [(4, WcStatus::WorkRequestFlushed)]);
}

#[test]
fn a_responder_is_silent_until_the_initiator_spoke() {
    for rtr in [None, Some(Rtr::Write), Some(Rtr::Read), Some(Rtr::Send)] {
        let (mut a, mut b) = joined_with(&negotiated(rtr));
        a.post_recv(1, &[sge(SINK, 8)]);
        b.post_recv(1, &[sge(SINK, 8)]);
        b.post_send(&send(2, &[sge(SOURCE, 8)]));
        assert!(b.produce(MULPDU).is_none());
        assert_eq!(a.qp.has_nothing_to_send(), rtr.is_none());
        if rtr.is_none() {
            a.post_send(&write(3, &[], SINK));
        }
        pump(&mut a, &mut b);
        assert_eq!(statuses(&b.sends()), [(2, WcStatus::Success)]);
        assert_eq!(statuses(&a.recvs()), [(1, WcStatus::Success)]);
        assert_eq!(
            a.sends().len(),
            usize::from(rtr.is_none()),
            "nobody posted the indication"
        );
        assert!(b.recvs().is_empty(), "the indication takes no receive");
        a.post_send(&send(4, &[sge(SOURCE, 8)]));
        a.post_send(&read(5, sge(SINK, 8), SOURCE));
        pump(&mut a, &mut b);
        assert_eq!(statuses(&b.recvs()), [(1, WcStatus::Success)], "{rtr:?}");
        assert_eq!(
            statuses(&a.sends()),
            [(4, WcStatus::Success), (5, WcStatus::Success)]
        );
    }
}

#[test]
fn a_graceful_end_waits_for_what_is_posted_and_for_reads() {
    let (mut a, mut b) = joined();
    a.post_send(&write(1, &[sge(SOURCE, 5000)], SINK));
    a.post_send(&read(2, sge(SINK, 8), SOURCE));
    a.qp.disconnect();
    assert_eq!(a.qp.wants_close(), None);
    while let Some(fpdu) = a.produce(MULPDU) {
        assert_eq!(a.qp.wants_close(), None);
        b.receive(&fpdu);
    }
    assert_eq!(a.qp.state(), QpState::Rts);
    pump(&mut a, &mut b);
    assert_eq!(a.qp.wants_close(), Some(CloseKind::Graceful));
    assert_eq!(a.qp.state(), QpState::Closing);
    assert_eq!(a.qp.wants_close(), None);
    assert_eq!(a.sends().len(), 2);
}

#[test]
fn a_graceful_end_waits_for_the_answers_that_the_peer_asked_for() {
    let (mut a, mut b) = joined();
    a.post_send(&read(1, sge(SINK, 5000), SOURCE));
    b.receive(&a.produce(MULPDU).unwrap());
    b.qp.disconnect();
    assert_eq!(b.qp.wants_close(), None);
    while let Some(fpdu) = b.produce(MULPDU) {
        a.receive(&fpdu);
        if a.sends().is_empty() {
            assert_eq!(b.qp.wants_close(), None);
        }
    }
    assert_eq!(b.qp.wants_close(), Some(CloseKind::Graceful));
}

#[test]
fn after_a_graceful_end_the_peer_may_still_send_and_new_work_waits_to_be_flushed() {
    let (mut a, mut b) = joined();
    a.qp.disconnect();
    assert_eq!(a.qp.wants_close(), Some(CloseKind::Graceful));
    a.post_recv(1, &[sge(SINK, 8)]);
    a.post_send(&send(2, &[]));
    assert!(a.produce(MULPDU).is_none());
    b.post_send(&send(3, &[sge(SOURCE, 8)]));
    pump(&mut a, &mut b);
    assert_eq!(statuses(&a.recvs()), [(1, WcStatus::Success)]);
    a.with_ctx(|qp, ctx| qp.connection_ended(ctx, DisconnectReason::Graceful));
    assert_eq!(statuses(&a.sends()), [(2, WcStatus::WorkRequestFlushed)]);
}

#[test]
fn an_error_after_our_fin_is_a_reset_because_no_terminate_can_follow() {
    let (mut a, mut b) = joined();
    a.qp.disconnect();
    assert_eq!(a.qp.wants_close(), Some(CloseKind::Graceful));
    b.post_send(&send(3, &[sge(SOURCE, 8)]));
    pump(&mut a, &mut b);
    assert_eq!(
        a.qp.wants_close(),
        Some(CloseKind::PeerFault { control: 0x1202 })
    );
    assert!(a.produce(MULPDU).is_none());
}

#[test]
fn the_peers_fin_between_messages_closes_this_side_after_what_is_posted() {
    let (mut a, mut b) = joined();
    b.post_send(&write(1, &[sge(SOURCE, 8)], SINK));
    b.qp.peer_closed(false);
    assert_eq!(b.qp.wants_close(), None);
    pump(&mut a, &mut b);
    assert_eq!(b.qp.wants_close(), Some(CloseKind::Graceful));
    assert_eq!(b.qp.state(), QpState::Closing);
}

#[test]
fn a_read_that_the_peers_fin_left_unanswered_does_not_hold_the_end_up() {
    let (mut a, _b) = joined();
    for wr_id in 0..6 {
        a.post_send(&read(wr_id, sge(SINK, 8), SOURCE));
    }
    while a.produce(MULPDU).is_some() {}
    a.qp.peer_closed(false);
    assert_eq!(a.qp.wants_close(), Some(CloseKind::Graceful));
    a.with_ctx(|qp, ctx| qp.connection_ended(ctx, DisconnectReason::PeerClosed));
    let flushed: Vec<_> = (0..6)
        .map(|wr_id| (wr_id, WcStatus::WorkRequestFlushed))
        .collect();
    assert_eq!(statuses(&a.sends()), flushed);
}

#[test]
fn the_peers_fin_inside_a_message_breaks_the_stream() {
    let (mut a, mut b) = joined();
    a.post_send(&write(1, &[sge(SOURCE, 8)], SINK));
    let fpdu = a.produce(MULPDU).unwrap();
    b.receive(&fpdu[..5]);
    b.qp.peer_closed(true);
    assert_eq!(b.qp.wants_close(), Some(CloseKind::AbortNow));
    b.receive(&fpdu[5..]);
    assert_eq!(b.read(SINK, 8), [0; 8]);
    assert_eq!(b.counters.fpdus_received, 0);
}

#[test]
fn a_lost_connection_flushes_everything_in_the_order_of_posting() {
    let (mut a, mut b) = joined();
    b.post_recv(1, &[sge(SINK, 5000)]);
    b.post_recv(2, &[sge(SINK, 5000)]);
    a.post_send(&read(3, sge(SINK, 8), SOURCE));
    a.post_send(&write(4, &[sge(SOURCE, 8)], SINK));
    a.post_send(&send(5, &[sge(SOURCE, 5000)]));
    a.post_send(&send(6, &[]));
    for _ in 0..3 {
        b.receive(&a.produce(MULPDU).unwrap());
    }
    for end in [&mut a, &mut b] {
        end.with_ctx(|qp, ctx| qp.connection_ended(ctx, DisconnectReason::Reset));
        assert_eq!(end.qp.state(), QpState::Error);
        assert!(end.produce(MULPDU).is_none());
        assert_eq!(end.qp.wants_close(), None);
    }
    let flushed = WcStatus::WorkRequestFlushed;
    let expected = [3, 4, 5, 6].map(|wr_id| (wr_id, flushed));
    assert_eq!(statuses(&a.sends()), expected);
    assert_eq!(statuses(&b.recvs()), [(1, flushed), (2, flushed)]);
}

/// What was handed to the LLP behind an unanswered Read may have reached the peer or not: it is
/// flushed too, also when nobody wanted to hear of its success (RFC 5040 section 6.2.1).
#[test]
fn work_behind_an_unanswered_read_is_flushed_with_it() {
    let (mut a, mut b) = (End::with(attributes(false), CQ_DEPTH), End::new());
    open(&mut a, &mut b, &negotiated(None));
    b.post_recv(1, &[sge(SINK, 8)]);
    a.post_send(&write(1, &[sge(SOURCE, 8)], SINK));
    a.post_send(&read(2, sge(SINK, 8), SOURCE));
    let mut silent = write(3, &[sge(SOURCE, 8)], SINK);
    silent.slot.flags = 0;
    a.post_send(&silent);
    a.post_send(&send(4, &[sge(SOURCE, 8)]));
    while let Some(fpdu) = a.produce(MULPDU) {
        b.receive(&fpdu);
    }
    assert_eq!(statuses(&b.recvs()), [(1, WcStatus::Success)]);
    assert_eq!(statuses(&a.sends()), [(1, WcStatus::Success)]);
    a.with_ctx(|qp, ctx| qp.connection_ended(ctx, DisconnectReason::Reset));
    let flushed = WcStatus::WorkRequestFlushed;
    let expected = [2, 3, 4].map(|wr_id| (wr_id, flushed));
    assert_eq!(statuses(&a.sends()), expected);
    // And what comes after a reset starts over.
    a.with_ctx(|qp, ctx| qp.reset(ctx));
    open(&mut a, &mut End::new(), &negotiated(None));
    a.post_send(&write(5, &[sge(SOURCE, 8)], SINK));
    assert!(a.produce(MULPDU).is_some());
    assert_eq!(statuses(&a.sends()), [(5, WcStatus::Success)]);
}

#[test]
fn where_there_is_no_room_for_an_fpdu_nothing_is_lost() {
    let (mut a, mut b) = joined();
    a.fill(SOURCE, b"12345678");
    a.post_send(&write(1, &[sge(SOURCE, 8)], SINK));
    for _ in 0..2 {
        assert!(a.transmit(MULPDU, 27, 1).is_empty());
    }
    assert_eq!(a.transmit(MULPDU, 28, 0), [[0; 0]; 0]);
    assert!(a.sends().is_empty());
    pump(&mut a, &mut b);
    assert_eq!(b.read(SINK, 8), b"12345678");
}
