//! Queue pairs that are joined by number: when work completes, and what a peer that goes away leaves.

use rnic_ipc::control::DisconnectReason;
use rnic_ipc::work::{WC_SOLICITED, WC_WITH_IMMEDIATE, WR_SOLICITED};

use super::*;

const SOURCE: u64 = BASE + 0x100;
const SINK: u64 = BASE + 0x2_0000;
const OK: WcStatus = WcStatus::Success;
const LOST: WcStatus = WcStatus::RetryExceeded;
const FLUSHED: WcStatus = WcStatus::WorkRequestFlushed;

/// Two ends in RDMA mode, which are joined.
fn joined_by_number() -> (End, End) {
    let (mut a, mut b) = (End::new(), End::new());
    for end in [&mut a, &mut b] {
        end.qp.set_joined(Some(Box::default())).unwrap();
    }
    open(&mut a, &mut b, &negotiated(Some(Rtr::Write)));
    pump(&mut a, &mut b);
    (a, b)
}

impl End {
    /// TCP's peer has not acknowledged so many of the last bytes.
    fn acknowledge_but(&mut self, unacknowledged: usize) -> Vec<(u64, WcStatus)> {
        self.with_ctx(|qp, ctx| qp.acknowledged(ctx, unacknowledged as u64));
        statuses(&self.sends())
    }

    fn connection_ends(&mut self, reason: DisconnectReason) {
        self.with_ctx(|qp, ctx| qp.connection_ended(ctx, reason));
    }
}

#[test]
fn sends_and_writes_complete_when_their_last_byte_is_acknowledged() {
    let (mut a, mut b) = joined_by_number();
    b.post_recv(1, &[sge(SINK, 64)]);
    b.post_recv(2, &[]);
    a.post_send(&write(1, &[sge(SOURCE, 3000)], SINK));
    a.post_send(&send(2, &[sge(SOURCE, 8)]));
    let with_immediate = immediate(WrOpcode::WriteImmediate, 3, &[sge(SOURCE, 8)], SINK, 7);
    a.post_send(&with_immediate);
    let fpdus = a.transmit(MULPDU, usize::MAX, usize::MAX);
    let lens: Vec<usize> = fpdus.iter().map(Vec::len).collect();
    // Three FPDUs of the first, one of the second, a Write and Immediate Data of the third.
    assert_eq!(lens.len(), 6);
    let behind = |first: usize| lens[first..].iter().sum::<usize>();
    assert_eq!(a.acknowledge_but(behind(0)), []);
    assert_eq!(a.acknowledge_but(behind(3) + 1), []);
    assert_eq!(a.acknowledge_but(behind(3)), [(1, OK)]);
    assert_eq!(a.acknowledge_but(behind(4)), [(2, OK)]);
    assert_eq!(a.acknowledge_but(1), []);
    assert_eq!(a.acknowledge_but(0), [(3, OK)]);
}

#[test]
fn a_read_completes_behind_what_is_acknowledged() {
    let (mut a, mut b) = joined_by_number();
    a.post_send(&write(1, &[sge(SOURCE, 8)], SINK));
    a.post_send(&read(2, sge(SINK, 8), SOURCE));
    pump(&mut a, &mut b);
    assert_eq!(statuses(&a.sends()), []);
    assert_eq!(a.acknowledge_but(0), [(1, OK), (2, OK)]);
}

#[test]
fn local_work_waits_for_what_is_before_it_only() {
    let (mut a, mut b) = joined_by_number();
    let invalidate = |wr_id, stag: Stag| {
        let mut request = request(WrOpcode::LocalInvalidate, wr_id, &[]);
        request.slot.rkey = stag.0;
        request
    };
    a.post_send(&write(1, &[sge(SOURCE, 8)], SINK));
    a.post_send(&invalidate(2, LOCAL_STAG));
    pump(&mut a, &mut b);
    assert_eq!(statuses(&a.sends()), []);
    assert_eq!(a.acknowledge_but(0), [(1, OK), (2, OK)]);
    a.post_send(&invalidate(3, BARE_STAG));
    pump(&mut a, &mut b);
    assert_eq!(statuses(&a.sends()), [(3, OK)]);
}

#[test]
fn work_waits_for_a_place_until_there_is_an_acknowledgment() {
    let (mut a, mut b) = joined_by_number();
    for wr_id in 0..u64::from(DEPTH) + 1 {
        a.post_send(&write(wr_id, &[sge(SOURCE, 8)], SINK));
    }
    pump(&mut a, &mut b);
    let rtr = 1;
    assert_eq!(b.counters.writes_received, rtr + u64::from(DEPTH));
    assert_eq!(a.acknowledge_but(0).len(), DEPTH as usize);
    pump(&mut a, &mut b);
    assert_eq!(a.acknowledge_but(0), [(u64::from(DEPTH), OK)]);
}

#[test]
fn a_refused_write_is_named_and_what_was_before_it_is_done() {
    for (stag, len) in [(Stag(STAG.0 ^ 0xff), 8), (Stag(STAG.0 ^ 0xff), 5000)] {
        let (mut a, mut b) = joined_by_number();
        a.post_send(&write(1, &[sge(SOURCE, 8)], SINK));
        let bad = remote(WrOpcode::Write, 2, &[sge(SOURCE, len)], stag, SINK);
        a.post_send(&bad);
        a.post_send(&write(3, &[sge(SOURCE, 8)], SINK));
        // All of it is out before the peer is heard.
        for fpdu in a.transmit(MULPDU, usize::MAX, usize::MAX) {
            b.receive(&fpdu);
        }
        pump(&mut a, &mut b);
        a.connection_ends(DisconnectReason::TerminateReceived { control: 0 });
        let expected = [(1, OK), (2, WcStatus::RemoteAccess), (3, FLUSHED)];
        assert_eq!(statuses(&a.sends()), expected);
        assert_eq!(a.qp.state(), QpState::Error);
    }
}

#[test]
fn a_refused_write_is_named_while_it_is_under_way() {
    let (mut a, mut b) = joined_by_number();
    let unknown = Stag(STAG.0 ^ 0xff);
    a.post_send(&remote(
        WrOpcode::Write,
        1,
        &[sge(SOURCE, 50_000)],
        unknown,
        SINK,
    ));
    let first = a.produce(MULPDU).unwrap();
    b.receive(&first);
    pump(&mut b, &mut a);
    assert_eq!(statuses(&a.sends()), [(1, WcStatus::RemoteAccess)]);
}

#[test]
fn a_peer_that_goes_away_is_noticed_by_the_next_send() {
    use DisconnectReason::{Graceful, PeerClosed, Reset, TimedOut};
    for reason in [Graceful, PeerClosed, Reset, TimedOut] {
        let (mut a, _) = joined_by_number();
        a.post_recv(1, &[sge(SINK, 8)]);
        a.qp.peer_closed(false);
        a.connection_ends(reason);
        a.post_recv(2, &[sge(SINK, 8)]);
        assert_eq!(a.qp.state(), QpState::Rts, "{reason:?}");
        assert!(a.recvs().is_empty() && a.sends().is_empty(), "{reason:?}");
        a.post_send(&send(3, &[sge(SOURCE, 8)]));
        a.post_send(&send(4, &[sge(SOURCE, 8)]));
        assert_eq!(statuses(&a.sends()), [(3, LOST), (4, FLUSHED)]);
        assert_eq!(statuses(&a.recvs()), [(1, FLUSHED), (2, FLUSHED)]);
        assert_eq!(a.qp.state(), QpState::Error);
    }
}

#[test]
fn what_is_not_acknowledged_when_the_peer_goes_away_fails() {
    let (mut a, mut b) = joined_by_number();
    for wr_id in 1..4 {
        a.post_send(&write(wr_id, &[sge(SOURCE, 8)], SINK));
    }
    pump(&mut a, &mut b);
    let len = a.qp.send.at as usize / 4;
    a.acknowledge_but(2 * len);
    a.qp.peer_closed(false);
    // Not to its queue pair.
    assert_eq!(a.acknowledge_but(0), []);
    a.connection_ends(DisconnectReason::Graceful);
    let sends = statuses(&a.sends());
    assert_eq!(sends, [(2, LOST), (3, FLUSHED)]);
    assert_eq!(a.qp.state(), QpState::Error);
}

#[test]
fn what_was_posted_while_the_stream_ended_fails() {
    let (mut a, _) = joined_by_number();
    a.qp.peer_closed(false);
    assert_eq!(a.qp.wants_close(), Some(CloseKind::Graceful));
    a.post_send(&write(1, &[sge(SOURCE, 8)], SINK));
    a.connection_ends(DisconnectReason::Graceful);
    assert_eq!(statuses(&a.sends()), [(1, LOST)]);
}

#[test]
fn an_end_that_this_side_brought_about_is_one() {
    use DisconnectReason::{Aborted, Graceful, LocalError, ShuttingDown};
    for reason in [Graceful, Aborted, LocalError, ShuttingDown] {
        let (mut a, _) = joined_by_number();
        a.post_recv(1, &[sge(SINK, 8)]);
        a.connection_ends(reason);
        assert_eq!(statuses(&a.recvs()), [(1, FLUSHED)], "{reason:?}");
        assert_eq!(a.qp.state(), QpState::Error);
    }
}

#[test]
fn a_message_that_ends_in_its_middle_is_an_end() {
    let (mut a, mut b) = joined_by_number();
    b.post_recv(1, &[sge(SINK, 3000)]);
    a.post_send(&send(1, &[sge(SOURCE, 3000)]));
    let first = a.produce(MULPDU).unwrap();
    b.receive(&first);
    b.connection_ends(DisconnectReason::Reset);
    assert_eq!(statuses(&b.recvs()), [(1, FLUSHED)]);
}

/// It may be made Idle and joined again.
#[test]
fn a_queue_pair_whose_peer_is_gone_can_be_reset() {
    let (mut a, _) = joined_by_number();
    a.connection_ends(DisconnectReason::Reset);
    a.with_ctx(|qp, ctx| {
        qp.enter_error(ctx);
        qp.reset(ctx);
    });
    assert_eq!(a.qp.state(), QpState::Idle);
    a.qp.set_joined(Some(Box::default())).unwrap();
}

fn send_with_immediate(wr_id: u64, sges: &[Sge], data: u32) -> WorkRequest {
    let mut request = request(WrOpcode::SendImmediate, wr_id, sges);
    request.slot.rkey = data;
    request
}

#[test]
fn a_send_has_immediate_data_and_payload() {
    let (mut a, mut b) = joined_by_number();
    a.fill(SOURCE, b"12345678");
    for wr_id in 1..4 {
        b.post_recv(wr_id, &[sge(SINK, 3000)]);
    }
    a.post_send(&send_with_immediate(1, &[sge(SOURCE, 8)], 0x0102_0304));
    let mut solicited = send_with_immediate(2, &[sge(SOURCE, 3000)], u32::MAX);
    solicited.slot.flags |= WR_SOLICITED;
    a.post_send(&solicited);
    a.post_send(&send(3, &[sge(SOURCE, 8)]));
    pump(&mut a, &mut b);
    let told: Vec<_> = (b.recvs().iter())
        .map(|got| (got.wr_id, got.flags, got.immediate, got.byte_len))
        .collect();
    let expected = [
        (1, WC_WITH_IMMEDIATE, 0x0102_0304_ffff_ffff, 8),
        (2, WC_WITH_IMMEDIATE | WC_SOLICITED, u64::MAX, 3000),
        (3, 0, 0, 8),
    ];
    assert_eq!(told, expected);
    assert_eq!(b.read(SINK, 8), b"12345678");
}

#[test]
fn other_queue_pairs_send_no_immediate_data_with_payload() {
    let (mut a, _) = joined();
    a.post_send(&send_with_immediate(1, &[sge(SOURCE, 8)], 7));
    a.produce(MULPDU);
    let impossible = WcStatus::LocalQpOperation;
    assert_eq!(statuses(&a.sends()), [(1, impossible)]);
}

/// Of what the STag allows the peer may do what the queue pair does.
#[test]
fn a_peer_does_only_what_the_queue_pair_allows() {
    let rights = [
        Access::REMOTE_WRITE,
        Access::REMOTE_READ,
        Access::REMOTE_ATOMIC,
    ];
    for (at, right) in rights.into_iter().enumerate() {
        let request = |wr_id| match at {
            0 => write(wr_id, &[sge(SOURCE, 8)], SINK),
            1 => read(wr_id, sge(SOURCE, 8), SINK),
            _ => fetch_add(wr_id, SOURCE, SINK, 1),
        };
        let others = Access::ALL.bits() & !right.bits();
        for (access, status) in [
            (right, OK),
            (Access::from_bits(others), WcStatus::RemoteAccess),
        ] {
            let (mut a, mut b) = joined_by_number();
            a.set_word(SOURCE, 0xaa);
            b.set_word(SINK, 5);
            b.qp.set_peer_access(access);
            a.post_send(&request(1));
            pump(&mut a, &mut b);
            assert_eq!(a.acknowledge_but(0), [(1, status)], "{right:?}");
            let refused = u64::from(status != OK);
            assert_eq!(b.counters.refused_access_rights, refused, "{right:?}");
            assert!(status == OK || b.word(SINK) == 5, "{right:?}");
        }
    }
}

#[test]
fn what_the_queue_pair_does_not_allow_is_not_placed_early() {
    let (mut a, mut b) = joined_by_number();
    b.set_word(SINK, 5);
    b.qp.set_peer_access(Access::REMOTE_READ);
    a.post_send(&write(1, &[sge(SOURCE, 8)], SINK));
    let fpdu = a.produce(MULPDU).unwrap();
    let ulpdu = &fpdu[2..fpdu.len() - 4];
    let early = |b: &mut End| b.with_ctx(|qp, ctx| qp.place_segment_early(ctx, &ulpdu));
    assert_eq!(early(&mut b), None);
    assert_eq!(b.word(SINK), 5);
    b.qp.set_peer_access(Access::ALL);
    assert!(early(&mut b).is_some());
}
