//! Local Invalidate and memory windows of type 2B, as work of a send queue.

use rnic_ipc::work::WC_WITH_INVALIDATE;
use rnic_proto::ddp::DdpError;

use super::*;

const SOURCE: u64 = BASE + 0x100;
const SINK: u64 = BASE + 0x2_0000;
const WINDOW: Stag = Stag(0x0000_7700);

/// Binds the window, under this key, to 64 bytes from [`SINK`] on.
fn bind(wr_id: u64, key: u8, access: Access) -> WorkRequest {
    let stag = Stag(WINDOW.0 | u32::from(key));
    let mut work = remote(WrOpcode::BindWindow, wr_id, &[], stag, SINK);
    let operand = u64::from(access.bits()) << 32 | u64::from(STAG.0);
    assert!(work.set_operands(&[64, operand, 0, 0]));
    work
}

fn local_invalidate(wr_id: u64, stag: Stag) -> WorkRequest {
    remote(WrOpcode::LocalInvalidate, wr_id, &[], stag, 0)
}

/// Two ends; the second has a window, of a protection domain with two streams.
fn with_window() -> (End, End) {
    let (a, mut b) = joined();
    b.stags
        .add_unbound(WINDOW, PD, StagKind::WindowType2B)
        .unwrap();
    b.stags.stream_added(NEIGHBOUR);
    (a, b)
}

#[test]
fn a_window_is_written_through_and_invalidated_by_the_peer_that_it_was_bound_for() {
    let (mut a, mut b) = with_window();
    a.fill(SOURCE, b"12345678");
    b.post_recv(1, &[]);
    b.post_send(&bind(5, 1, ALL));
    assert!(b.produce(MULPDU).is_none(), "nothing goes to the peer");
    assert_eq!(statuses(&b.sends()), [(5, WcStatus::Success)]);
    let stag = Stag(WINDOW.0 | 1);
    a.post_send(&remote(WrOpcode::Write, 1, &[sge(SOURCE, 8)], stag, SINK));
    let mut invalidate = request(WrOpcode::SendInvalidate, 2, &[]);
    invalidate.slot.rkey = stag.0;
    a.post_send(&invalidate);
    pump(&mut a, &mut b);
    assert_eq!(b.read(SINK, 8), b"12345678");
    let received = b.recvs();
    assert_eq!(statuses(&received), [(1, WcStatus::Success)]);
    assert_eq!(
        (received[0].flags, received[0].invalidated),
        (WC_WITH_INVALIDATE, stag.0)
    );
    a.post_send(&remote(
        WrOpcode::Write,
        3,
        &[sge(SOURCE, 8)],
        stag,
        SINK + 8,
    ));
    pump(&mut a, &mut b);
    assert_eq!(b.read(SINK + 8, 8), [0; 8]);
    let control = control(DdpError::InvalidStag);
    let sent = Some(CloseKind::AfterTerminateSent { control });
    assert_eq!(b.qp.wants_close(), sent);
}

#[test]
fn local_work_is_done_in_its_turn_and_completes_in_the_order_of_posting() {
    let (mut a, mut b) = with_window();
    a.fill(SOURCE, b"12345678");
    b.post_send(&write(1, &[sge(SOURCE, 8)], SINK));
    b.post_send(&bind(2, 1, ALL));
    b.post_send(&local_invalidate(3, Stag(WINDOW.0 | 1)));
    b.post_send(&bind(4, 2, ALL));
    b.post_send(&write(5, &[sge(SOURCE, 8)], SINK));
    pump(&mut a, &mut b);
    let done: Vec<_> = (1..6).map(|wr_id| (wr_id, WcStatus::Success)).collect();
    assert_eq!(statuses(&b.sends()), done);
    assert_eq!(b.counters.local_work_done, 3);
    assert_eq!(b.counters.fpdus_sent, 2);
}

/// A client that posts a ring full of it keeps the others waiting for a moment only.
#[test]
fn a_few_pieces_of_local_work_are_done_at_a_time_and_the_owner_knows_that_there_are_more() {
    let (_, mut b) = with_window();
    for pair in 0..6 {
        b.post_send(&bind(2 * pair, pair as u8, ALL));
        b.post_send(&local_invalidate(
            2 * pair + 1,
            Stag(WINDOW.0 | pair as u32),
        ));
    }
    let mut done = Vec::new();
    for (expected, more) in [(8, true), (12, false), (12, false)] {
        assert_eq!(b.produce(MULPDU), None, "nothing goes to the peer");
        done.extend(statuses(&b.sends()));
        assert_eq!(done.len(), expected);
        assert_eq!(b.qp.has_more_local_work(), more);
    }
    let all: Vec<_> = (0..12).map(|wr_id| (wr_id, WcStatus::Success)).collect();
    assert_eq!(done, all);
}

/// What a Read before it brings is placed before the rights to place it end.
#[test]
fn a_local_invalidate_waits_for_the_reads_before_it() {
    let (mut a, mut b) = joined();
    b.fill(SOURCE, b"12345678");
    a.post_send(&read(1, sge(SINK, 8), SOURCE));
    a.post_send(&local_invalidate(2, STAG));
    let request = a.produce(MULPDU).unwrap();
    assert!(a.produce(MULPDU).is_none());
    assert!(a.sends().is_empty());
    b.receive(&request);
    pump(&mut a, &mut b);
    let ok = WcStatus::Success;
    assert_eq!(statuses(&a.sends()), [(1, ok), (2, ok)]);
    assert_eq!(a.read(SINK, 8), b"12345678");
    b.post_send(&write(3, &[sge(SOURCE, 8)], SINK));
    pump(&mut a, &mut b);
    assert_eq!(a.counters.refused_invalid_stag, 1);
}

#[test]
fn local_work_that_cannot_be_done_is_a_protection_error() {
    let unknown = local_invalidate(1, Stag(0x1234_5678));
    let foreign = local_invalidate(1, OTHER_STAG);
    let mut outside = bind(1, 1, ALL);
    assert!(outside.set_operands(&[u64::from(u32::MAX), u64::from(STAG.0), 0, 0]));
    let no_window = remote(WrOpcode::BindWindow, 1, &[], STAG, SINK);
    for work in [unknown, foreign, outside, no_window] {
        let (mut a, mut b) = with_window();
        b.post_send(&work);
        pump(&mut a, &mut b);
        assert_eq!(statuses(&b.sends()), [(1, WcStatus::LocalProtection)]);
        assert_eq!(b.qp.state(), QpState::Terminate);
    }
}

#[test]
fn local_work_has_no_elements_with_bytes() {
    let (mut a, mut b) = with_window();
    b.post_send(&remote(
        WrOpcode::LocalInvalidate,
        1,
        &[sge(SOURCE, 8)],
        STAG,
        0,
    ));
    pump(&mut a, &mut b);
    assert_eq!(statuses(&b.sends()), [(1, WcStatus::LocalQpOperation)]);
}

/// A peer that closes answers no Read: what waits for one is flushed and does not hold the end up.
#[test]
fn a_local_invalidate_behind_a_read_does_not_hold_up_the_end() {
    let (mut a, _) = joined();
    a.post_send(&read(1, sge(SINK, 8), SOURCE));
    a.post_send(&local_invalidate(2, STAG));
    assert!(a.produce(MULPDU).is_some());
    a.qp.peer_closed(false);
    assert!(a.produce(MULPDU).is_none());
    assert_eq!(a.qp.wants_close(), Some(CloseKind::Graceful));
}

/// RFC 5040 section 8.1.1, 2: what was given to one connection's peer is not the next one's, though
/// the queue pair is the same.
#[test]
fn a_window_that_was_bound_for_one_connection_is_not_there_in_the_next() {
    let (mut a, mut b) = with_window();
    a.fill(SOURCE, b"12345678");
    b.post_send(&bind(5, 1, ALL));
    pump(&mut a, &mut b);
    for side in [&mut a, &mut b] {
        side.with_ctx(|qp, ctx| qp.connection_ended(ctx, DisconnectReason::Graceful));
        side.with_ctx(|qp, ctx| qp.reset(ctx));
        side.stream.clear();
    }
    open(&mut a, &mut b, &negotiated(Some(Rtr::Write)));
    let stag = Stag(WINDOW.0 | 1);
    a.post_send(&remote(WrOpcode::Write, 1, &[sge(SOURCE, 8)], stag, SINK));
    pump(&mut a, &mut b);
    assert_eq!(b.read(SINK, 8), [0; 8]);
    assert_eq!(b.counters.refused_invalid_stag, 1);
}
