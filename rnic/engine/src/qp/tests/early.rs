//! Sends that come before their turn: placed in the receive of their number, delivered in order.

use rnic_proto::ddp::DdpError;
use rnic_proto::rdmap::RdmapError;

use super::*;
use crate::conn::PLACED_AT_ONCE;

const SOURCE: u64 = BASE + 0x100;
const SINK: u64 = BASE + 0x2_0000;
const OK: WcStatus = WcStatus::Success;
const FLUSHED: WcStatus = WcStatus::WorkRequestFlushed;

/// Bytes between what is next in order and what comes early; any number will do.
const AHEAD: u64 = 5000;

/// The FPDUs of Sends 1, 2, ... of these many bytes, each byte the Send's number.
fn sends(lens: &[u32]) -> (End, Vec<Vec<u8>>) {
    let (mut a, _) = joined_with(&negotiated(None));
    let mut fpdus = Vec::new();
    for (index, len) in lens.iter().enumerate() {
        let number = index as u8 + 1;
        a.fill(SOURCE, &vec![number; *len as usize]);
        a.post_send(&send(number.into(), &[sge(SOURCE, *len)]));
        fpdus.extend(std::iter::from_fn(|| a.produce(MULPDU)));
    }
    (a, fpdus)
}

fn receiver() -> End {
    joined_with(&negotiated(None)).1
}

/// Shows an FPDU before its turn; what is noted of it when it is placed.
fn early(end: &mut End, fpdu: &[u8]) -> Option<PlacedFpdu> {
    let mut placed = [PlacedFpdu::default(); PLACED_AT_ONCE];
    let count = end.with_ctx(|qp, ctx| qp.place_early(ctx, &[fpdu], AHEAD, true, &mut placed));
    (count == 1).then_some(placed[0])
}

/// The turn of an FPDU that was placed.
fn turn(end: &mut End, placed: &PlacedFpdu) {
    let (len, ulpdu_len) = (placed.len as u64, placed.ulpdu_len);
    end.with_ctx(|qp, ctx| qp.deliver_placed(ctx, len, &placed.header, ulpdu_len));
}

/// What the queue pair ends its stream with.
pub(super) fn told(end: &mut End) -> u16 {
    assert!(end.produce(MULPDU).is_some());
    match end.qp.wants_close() {
        Some(CloseKind::AfterTerminateSent { control }) => control,
        other => panic!("no Terminate was sent: {other:?}"),
    }
}

#[test]
fn a_send_before_its_turn_goes_to_the_receive_of_its_number() {
    let lens = [300, 2000, 400, 8];
    let (_, fpdus) = sends(&lens);
    assert_eq!(fpdus.len(), 5, "the second is two segments");
    let mut b = receiver();
    // Of different numbers of elements, so of slots.
    for (index, pieces) in [(0, 5), (1, 1), (2, 7), (3, 2)] {
        let each = 400;
        let sges: Vec<_> = (0..pieces)
            .map(|piece| sge(SINK + index * 0x1000 + piece * u64::from(each), each))
            .collect();
        let sges = if index == 1 {
            vec![sge(SINK + 0x1000, 2000)]
        } else {
            sges
        };
        b.post_recv(index + 1, &sges);
    }
    let posted = b.rq.free_slots();
    let mut placed = [None; 5];
    for index in [4, 2, 3, 1] {
        let found = early(&mut b, &fpdus[index]);
        placed[index] = Some(found.expect("its receive is posted"));
    }
    for (number, len) in [(2, 2000), (3, 400), (4, 8)] {
        let at = SINK + (number - 1) * 0x1000;
        assert_eq!(
            b.read(at, len + 1),
            [vec![number as u8; len], vec![0]].concat()
        );
    }
    assert_eq!(b.counters.bytes_placed, 2408);
    assert_eq!(b.rq.free_slots(), posted, "nothing is consumed");
    assert!(b.recvs().is_empty());
    b.receive(&fpdus[0]);
    assert_eq!(statuses(&b.recvs()), [(1, OK)]);
    for placed in placed.iter().flatten() {
        turn(&mut b, placed);
    }
    let completions = b.recvs();
    assert_eq!(statuses(&completions), [(2, OK), (3, OK), (4, OK)]);
    let found: Vec<_> = completions.iter().map(|raw| raw.byte_len).collect();
    assert_eq!(found, lens[1..]);
    assert_eq!(b.counters.bytes_placed, 2708, "each byte is placed once");
    assert_eq!(b.counters.sends_received, 4);
}

#[test]
fn the_receive_in_hand_is_not_in_the_queue_any_more() {
    let (_, fpdus) = sends(&[2000, 16, 16]);
    let mut b = receiver();
    for index in 0..3 {
        b.post_recv(index + 1, &[sge(SINK + index * 0x1000, 2000)]);
    }
    // The first Send is under way.
    b.receive(&fpdus[0]);
    let third = early(&mut b, &fpdus[3]).unwrap();
    let second = early(&mut b, &fpdus[2]).unwrap();
    assert_eq!(b.read(SINK + 0x1000, 16), [2; 16]);
    assert_eq!(b.read(SINK + 0x2000, 16), [3; 16]);
    b.receive(&fpdus[1]);
    turn(&mut b, &second);
    turn(&mut b, &third);
    assert_eq!(statuses(&b.recvs()), [(1, OK), (2, OK), (3, OK)]);
}

#[test]
fn a_send_whose_receive_is_not_posted_waits_and_is_judged_in_its_turn() {
    let (_, fpdus) = sends(&[8, 8, 8]);
    let mut b = receiver();
    b.post_recv(1, &[sge(SINK, 8)]);
    assert!(early(&mut b, &fpdus[2]).is_none());
    b.post_recv(2, &[sge(SINK + 8, 8)]);
    assert!(
        early(&mut b, &fpdus[2]).is_none(),
        "the second is for another"
    );
    let second = early(&mut b, &fpdus[1]).unwrap();
    assert_eq!(b.counters.refused_no_receive, 0);
    assert_eq!(b.qp.state(), QpState::Rts);
    b.receive(&fpdus[0]);
    turn(&mut b, &second);
    b.receive(&fpdus[2]);
    assert_eq!(b.counters.refused_no_receive, 1);
    assert_eq!(told(&mut b), control(DdpError::NoBuffer));
    assert_eq!(statuses(&b.recvs()), [(1, OK), (2, OK)]);
}

#[test]
fn a_send_too_long_for_its_receive_waits_and_is_judged_in_its_turn() {
    let (_, fpdus) = sends(&[8, 9]);
    let mut b = receiver();
    b.post_recv(1, &[sge(SINK, 8)]);
    b.post_recv(2, &[sge(SINK + 8, 8)]);
    assert!(early(&mut b, &fpdus[1]).is_none());
    b.receive(&fpdus[0]);
    b.receive(&fpdus[1]);
    assert_eq!(told(&mut b), control(DdpError::MessageTooLong));
    let expected = [(1, OK), (2, WcStatus::LocalLength)];
    assert_eq!(statuses(&b.recvs()), expected);
    assert_eq!(b.read(SINK, 16), [[1; 8], [0; 8]].concat());
}

#[test]
fn a_receive_that_cannot_be_waits_for_its_turn_and_completes_behind_those_before_it() {
    let foreign = Sge {
        lkey: OTHER_STAG.0,
        ..sge(BASE, 8)
    };
    let cases = [
        (
            request(WrOpcode::Send, 2, &[sge(SINK + 8, 8)]),
            WcStatus::LocalQpOperation,
        ),
        (
            request(WrOpcode::Recv, 2, &[foreign]),
            WcStatus::LocalProtection,
        ),
    ];
    for (receive, status) in cases {
        let (_, fpdus) = sends(&[8, 8]);
        let mut b = receiver();
        b.post_recv(1, &[sge(SINK, 8)]);
        b.rq.push(&receive).unwrap();
        assert!(early(&mut b, &fpdus[1]).is_none());
        assert_eq!(b.counters.local_errors, 0);
        b.receive(&fpdus[0]);
        b.receive(&fpdus[1]);
        assert_eq!(told(&mut b), control(RdmapError::LocalCatastrophic));
        assert_eq!(statuses(&b.recvs()), [(1, OK), (2, status)]);
        b.assert_guarded_untouched();
    }
}

/// Its client can write the ring meanwhile: what is delivered is judged by what is taken.
#[test]
fn a_receive_that_became_too_short_meanwhile_is_too_short_in_its_turn() {
    let (_, fpdus) = sends(&[8, 64]);
    let mut b = receiver();
    b.post_recv(1, &[sge(SINK, 8)]);
    b.post_recv(2, &[sge(SINK + 8, 64)]);
    let second = early(&mut b, &fpdus[1]).unwrap();
    // The length of its first element: the second line behind the ring's own four.
    let ring = b.queues.len() / 2;
    let word = ring + 4 * 64 + 64 + 40;
    let old = b.queues.atomic_u32(word).unwrap();
    assert_eq!(old.swap(63, std::sync::atomic::Ordering::AcqRel), 64);
    b.receive(&fpdus[0]);
    turn(&mut b, &second);
    assert_eq!(told(&mut b), control(DdpError::MessageTooLong));
    let expected = [(1, OK), (2, WcStatus::LocalLength)];
    assert_eq!(statuses(&b.recvs()), expected);
}

#[test]
fn memory_that_was_taken_away_meanwhile_ends_the_stream_in_its_turn() {
    let (mut a, fpdus) = sends(&[8, 8]);
    a.post_send(&write(3, &[sge(SOURCE, 8)], SINK + 0x1000));
    let behind = a.produce(MULPDU).unwrap();
    for (fpdu, status, error) in [
        (
            &fpdus[1],
            Some((2, WcStatus::LocalProtection)),
            control(RdmapError::LocalCatastrophic),
        ),
        (&behind, None, control(DdpError::InvalidStag)),
    ] {
        let mut b = receiver();
        b.post_recv(1, &[]);
        b.post_recv(2, &[sge(SINK + 8, 8)]);
        let placed = early(&mut b, fpdu).unwrap();
        let empty = sends(&[0]).1;
        b.receive(&empty[0]);
        assert!(b.stags.remove(STAG));
        turn(&mut b, &placed);
        assert_eq!(told(&mut b), error);
        let expected: Vec<_> = [(1, OK)].into_iter().chain(status).collect();
        assert_eq!(statuses(&b.recvs()), expected);
    }
}

#[test]
fn what_was_placed_and_not_delivered_is_flushed_once_and_in_order() {
    let (_, fpdus) = sends(&[8, 2000, 8]);
    let mut b = receiver();
    for index in 0..5 {
        b.post_recv(index + 1, &[sge(SINK + index * 0x1000, 2000)]);
    }
    for index in [3, 2, 1] {
        assert!(early(&mut b, &fpdus[index]).is_some());
    }
    b.receive(&fpdus[0]);
    b.with_ctx(|qp, ctx| qp.connection_ended(ctx, DisconnectReason::Reset));
    let flushed = (2..6).map(|wr_id| (wr_id, FLUSHED));
    let expected: Vec<_> = [(1, OK)].into_iter().chain(flushed).collect();
    assert_eq!(statuses(&b.recvs()), expected);
    assert!(early(&mut b, &fpdus[2]).is_none(), "nothing more is placed");
    b.doorbell();
    assert!(b.recvs().is_empty());
}

#[test]
fn after_a_reset_numbers_begin_again_and_so_do_receives() {
    let (_, fpdus) = sends(&[8, 8, 8]);
    let mut b = receiver();
    for index in 0..3 {
        b.post_recv(index + 1, &[sge(SINK + index * 8, 8)]);
    }
    assert!(early(&mut b, &fpdus[2]).is_some());
    b.with_ctx(|qp, ctx| qp.connection_ended(ctx, DisconnectReason::Reset));
    b.with_ctx(|qp, ctx| qp.reset(ctx));
    assert_eq!(b.recvs().len(), 3);
    open(&mut End::new(), &mut b, &negotiated(None));
    for index in 0..3 {
        b.post_recv(index + 11, &[sge(SINK + 0x1000 + index * 8, 8)]);
    }
    let third = early(&mut b, &fpdus[2]).unwrap();
    assert_eq!(b.read(SINK + 0x1000 + 16, 8), [3; 8]);
    b.receive(&fpdus[0]);
    b.receive(&fpdus[1]);
    turn(&mut b, &third);
    assert_eq!(statuses(&b.recvs()), [(11, OK), (12, OK), (13, OK)]);
}

#[test]
fn a_broken_ring_is_told_by_whoever_takes_from_it_and_not_before() {
    let (_, fpdus) = sends(&[8, 8]);
    let mut b = receiver();
    b.post_recv(1, &[sge(SINK, 8)]);
    // The producer index is the first word of the ring's second line.
    let producer = b.queues.atomic_u32(b.queues.len() / 2 + 64).unwrap();
    producer.store(0x8000_0000, std::sync::atomic::Ordering::Release);
    assert!(early(&mut b, &fpdus[1]).is_none());
    assert!(b.qp.take_fault().is_none());
    b.receive(&fpdus[0]);
    assert!(b.qp.take_fault().is_some());
}
