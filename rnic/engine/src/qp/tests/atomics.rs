//! Atomic Operations (RFC 7306 section 5).

use rnic_proto::rdmap::RdmapError;

use super::*;

const WORD: u64 = BASE + 0x200;
const SINK: u64 = BASE + 0x2_0000;
const ADD_ONE: AtomicOperation = AtomicOperation::FetchAdd { add: 1, mask: 0 };

/// RFC 7306 section 5.1.1: the original value comes back, both in the order of the host's bytes.
#[test]
fn a_fetch_add_changes_the_remote_word_and_brings_its_original_value() {
    let (mut a, mut b) = joined();
    b.set_word(WORD, 40);
    a.set_word(SINK + 8, 9);
    a.post_send(&fetch_add(5, SINK, WORD, 2));
    pump(&mut a, &mut b);
    assert_eq!((b.word(WORD), a.word(SINK)), (42, 40));
    assert_eq!(
        (b.word(WORD + 8), a.word(SINK + 8)),
        (0, 9),
        "nothing beside"
    );
    let done = a.sends();
    assert_eq!(statuses(&done), [(5, WcStatus::Success)]);
    assert_eq!(done[0].byte_len, 8);
    assert!(
        b.recvs().is_empty() && b.sends().is_empty(),
        "the responder's client sees nothing (RFC 7306 section 5.2.1, rule 3)"
    );
    let (a, b) = (&a.counters, &b.counters);
    assert_eq!((a.atomic_requests_sent, b.atomic_requests_received), (1, 1));
    assert_eq!(
        (b.atomic_responses_sent, a.atomic_responses_received),
        (1, 1)
    );
}

/// RFC 7306 section 5.1.2.
#[test]
fn a_compare_and_swap_replaces_the_word_only_when_it_is_the_expected_one() {
    for (compare, left) in [(7, 8), (6, 7)] {
        let (mut a, mut b) = joined();
        b.set_word(WORD, 7);
        let operation = AtomicOperation::CompareSwap {
            swap: 8,
            swap_mask: u64::MAX,
            compare,
            compare_mask: u64::MAX,
        };
        a.post_send(&atomic(1, SINK, STAG, WORD, operation));
        pump(&mut a, &mut b);
        assert_eq!((b.word(WORD), a.word(SINK)), (left, 7));
    }
}

/// RFC 7306 section 5.4, rules 7 and 8.
#[test]
fn atomics_are_done_and_complete_in_the_order_of_posting() {
    let (mut a, mut b) = joined();
    for wr_id in 0..10 {
        a.post_send(&fetch_add(wr_id, SINK + wr_id * 8, WORD, 1));
    }
    pump(&mut a, &mut b);
    let originals: Vec<_> = (0..10).map(|n| a.word(SINK + n * 8)).collect();
    assert_eq!(originals, (0..10).collect::<Vec<_>>());
    let all: Vec<_> = (0..10).map(|wr_id| (wr_id, WcStatus::Success)).collect();
    assert_eq!(statuses(&a.sends()), all);
}

/// RFC 7306 section 5.2: the ORD is that of Reads and Atomic Operations together.
#[test]
fn no_more_reads_and_atomics_than_the_ord_are_outstanding() {
    let (mut a, mut b) = joined();
    for wr_id in 0..6 {
        match wr_id % 2 {
            0 => a.post_send(&read(wr_id, sge(SINK + wr_id * 8, 8), WORD)),
            _ => a.post_send(&fetch_add(wr_id, SINK + wr_id * 8, WORD, 1)),
        }
    }
    let mut requests = 0;
    while let Some(fpdu) = a.produce(MULPDU) {
        b.receive(&fpdu);
        requests += 1;
    }
    assert_eq!(requests, 4);
    pump(&mut a, &mut b);
    assert_eq!(a.sends().len(), 6);
}

/// RFC 7306 section 7: requests of both kinds are answered in their order, and done in it.
#[test]
fn a_read_before_an_atomic_sees_the_word_as_it_was() {
    let (mut a, mut b) = joined();
    b.set_word(WORD, 7);
    a.post_send(&read(1, sge(SINK, 8), WORD));
    a.post_send(&fetch_add(2, SINK + 8, WORD, 1));
    a.post_send(&read(3, sge(SINK + 16, 8), WORD));
    while let Some(fpdu) = a.produce(MULPDU) {
        b.receive(&fpdu);
    }
    assert_eq!(b.word(WORD), 7, "not done before those before it");
    pump(&mut a, &mut b);
    let found = [a.word(SINK), a.word(SINK + 8), a.word(SINK + 16)];
    assert_eq!(found, [7, 7, 8]);
}

/// Both ends' views of an atomic that is refused, with the work's status at the requester.
fn assert_refused(stag: Stag, to: u64, error: RdmapError, status: WcStatus) -> End {
    let (mut a, mut b) = joined();
    b.set_word(WORD, 7);
    b.set_word(WORD + 8, 7);
    a.post_send(&atomic(1, SINK, stag, to, ADD_ONE));
    pump(&mut a, &mut b);
    let control = control(error);
    let sent = Some(CloseKind::AfterTerminateSent { control });
    assert_eq!(b.qp.wants_close(), sent, "{stag} {to:#x}");
    assert_eq!(statuses(&a.sends()), [(1, status)]);
    assert_eq!((b.word(WORD), b.word(WORD + 8)), (7, 7), "not modified");
    assert_eq!(b.counters.atomic_responses_sent, 0);
    b.assert_guarded_untouched();
    b
}

/// RFC 7306 sections 5.1.1, 5.1.2 and 8.2: not aligned to 64 bits is a Remote Operation Error,
/// "Catastrophic error, localized to RDMAP Stream".
#[test]
fn an_atomic_that_is_not_aligned_ends_the_stream_and_changes_nothing() {
    for offset in 1..8 {
        let (error, status) = (RdmapError::CatastrophicStream, WcStatus::RemoteOperation);
        let b = assert_refused(STAG, WORD + offset, error, status);
        assert_eq!(b.counters.refused_misaligned, 1);
    }
}

/// RFC 5040 section 7.2, for Atomic Requests.
#[test]
fn an_atomic_is_refused_under_the_name_of_what_is_wrong() {
    let end = BASE + LEN as u64;
    let unknown = Stag(STAG.0 ^ 0xff);
    let refused = |stag, to, error| assert_refused(stag, to, error, WcStatus::RemoteAccess);
    refused(unknown, WORD, RdmapError::InvalidStag);
    refused(OTHER_STAG, BASE, RdmapError::StagNotAssociated);
    refused(LOCAL_STAG, BASE, RdmapError::AccessRights);
    refused(STAG, BASE - 8, RdmapError::BaseOrBounds);
    refused(STAG, end, RdmapError::BaseOrBounds);
    refused(STAG, end - 4, RdmapError::BaseOrBounds);
    refused(STAG, u64::MAX - 6, RdmapError::ToWrap);
}

#[test]
fn memory_that_is_revoked_before_its_atomic_is_done_is_not_touched() {
    let (mut a, mut b) = joined();
    a.post_send(&read(1, sge(SINK, 8), WORD));
    a.post_send(&fetch_add(2, SINK + 8, WORD, 1));
    while let Some(fpdu) = a.produce(MULPDU) {
        b.receive(&fpdu);
    }
    a.receive(&b.produce(MULPDU).unwrap());
    assert!(b.stags.remove(STAG));
    pump(&mut a, &mut b);
    assert_eq!(b.word(WORD), 0);
    let expected = [(1, WcStatus::Success), (2, WcStatus::RemoteAccess)];
    assert_eq!(statuses(&a.sends()), expected);
}

#[test]
fn a_place_of_the_original_value_that_its_owner_took_away_fails_the_atomic_locally() {
    let (mut a, mut b) = joined();
    a.post_send(&fetch_add(1, SINK, WORD, 1));
    b.receive(&a.produce(MULPDU).unwrap());
    assert!(a.stags.remove(STAG));
    pump(&mut a, &mut b);
    assert_eq!(statuses(&a.sends()), [(1, WcStatus::LocalProtection)]);
    assert_eq!(b.counters.terminates_received, 1);
}

#[test]
fn an_atomic_that_makes_no_sense_is_an_operation_error() {
    let with_sges = |sges: &[Sge]| {
        let mut work = remote(WrOpcode::AtomicFetchAdd, 1, sges, STAG, WORD);
        assert!(work.set_operands(&[1, 0, 0, 0]));
        work
    };
    let mut without_operands = send(1, &[sge(SINK, 8)]);
    without_operands.slot.opcode = WrOpcode::AtomicCompareSwap as u8;
    let cases = [
        with_sges(&[]),
        with_sges(&[sge(SINK, 4)]),
        with_sges(&[sge(SINK, 16)]),
        with_sges(&[sge(SINK, 4), sge(SINK + 4, 4)]),
        without_operands,
    ];
    for work in cases {
        let (mut a, mut b) = joined();
        a.post_send(&work);
        pump(&mut a, &mut b);
        assert_eq!(statuses(&a.sends()), [(1, WcStatus::LocalQpOperation)]);
        assert_eq!(a.counters.atomic_requests_sent, 0);
    }
}

#[test]
fn an_atomic_needs_an_ord() {
    let (mut a, mut b) = joined_with(&Negotiated {
        ord: 0,
        ..negotiated(None)
    });
    a.post_send(&fetch_add(1, SINK, WORD, 1));
    pump(&mut a, &mut b);
    assert_eq!(statuses(&a.sends()), [(1, WcStatus::LocalQpOperation)]);
}

#[test]
fn a_place_that_may_not_be_written_is_a_protection_error() {
    let (mut a, mut b) = joined();
    let sink = Sge {
        addr: BASE,
        length: 8,
        lkey: BARE_STAG.0,
    };
    let mut work = remote(WrOpcode::AtomicFetchAdd, 1, &[sink], STAG, WORD);
    assert!(work.set_operands(&[1, 0, 0, 0]));
    a.post_send(&work);
    pump(&mut a, &mut b);
    assert_eq!(statuses(&a.sends()), [(1, WcStatus::LocalProtection)]);
    a.assert_guarded_untouched();
}

#[test]
fn an_atomic_without_an_answer_is_flushed() {
    let (mut a, mut b) = joined();
    a.post_send(&fetch_add(1, SINK, WORD, 1));
    b.receive(&a.produce(MULPDU).unwrap());
    a.with_ctx(|qp, ctx| qp.connection_ended(ctx, DisconnectReason::Reset));
    assert_eq!(statuses(&a.sends()), [(1, WcStatus::WorkRequestFlushed)]);
}

/// After our FIN an atomic could not be answered, and is not done.
#[test]
fn an_atomic_that_comes_after_our_fin_is_not_done() {
    let (mut a, mut b) = joined();
    a.post_send(&fetch_add(1, SINK, WORD, 1));
    let request = a.produce(MULPDU).unwrap();
    b.qp.disconnect();
    assert_eq!(b.qp.wants_close(), Some(CloseKind::Graceful));
    b.receive(&request);
    assert!(b.produce(MULPDU).is_none());
    assert_eq!(b.word(WORD), 0);
}
