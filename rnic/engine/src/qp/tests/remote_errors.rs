//! What a peer may not do: it gets a Terminate with the right numbers, and nothing is touched.

use rnic_proto::ddp::DdpError;
use rnic_proto::rdmap::RdmapError;

use super::*;

const SOURCE: u64 = BASE + 0x100;
const SINK: u64 = BASE + 0x2_0000;

/// Both ends' views of an error that `b` finds in what `a` sends.
fn assert_refused(mut a: End, mut b: End, error: impl Into<TerminateError>) -> (End, End) {
    let control = control(error);
    pump(&mut a, &mut b);
    assert_eq!(
        (a.qp.state(), b.qp.state()),
        (QpState::Terminate, QpState::Terminate)
    );
    assert_eq!(
        b.qp.wants_close(),
        Some(CloseKind::AfterTerminateSent { control })
    );
    assert_eq!(
        a.qp.wants_close(),
        Some(CloseKind::TerminateReceived { control })
    );
    assert_eq!(
        (b.counters.terminates_sent, a.counters.terminates_received),
        (1, 1)
    );
    for end in [&mut a, &mut b] {
        assert_eq!(end.qp.wants_close(), None, "told once");
        assert!(end.produce(MULPDU).is_none(), "nothing after a Terminate");
        end.assert_guarded_untouched();
    }
    (a, b)
}

#[test]
fn a_write_is_refused_under_the_name_of_what_is_wrong() {
    let unknown = Stag(STAG.0 ^ 0xff);
    let end = BASE + LEN as u64;
    type Count = fn(&QpCounters) -> u64;
    let cases: [(Stag, u64, TerminateError, Count); 7] = [
        (unknown, SINK, DdpError::InvalidStag.into(), |c| {
            c.refused_invalid_stag
        }),
        (OTHER_STAG, BASE, DdpError::StagNotAssociated.into(), |c| {
            c.refused_stag_not_associated
        }),
        (LOCAL_STAG, BASE, RdmapError::AccessRights.into(), |c| {
            c.refused_access_rights
        }),
        (STAG, BASE - 1, DdpError::BaseOrBounds.into(), |c| {
            c.refused_base_or_bounds
        }),
        (STAG, end - 7, DdpError::BaseOrBounds.into(), |c| {
            c.refused_base_or_bounds
        }),
        (STAG, end, DdpError::BaseOrBounds.into(), |c| {
            c.refused_base_or_bounds
        }),
        (STAG, 0, DdpError::BaseOrBounds.into(), |c| {
            c.refused_base_or_bounds
        }),
    ];
    for (stag, to, error, counter) in cases {
        let (mut a, b) = joined();
        a.post_send(&remote(WrOpcode::Write, 1, &[sge(SOURCE, 8)], stag, to));
        let (_, b) = assert_refused(a, b, error);
        assert_eq!(counter(&b.counters), 1);
        assert_eq!(b.counters.bytes_placed, 0);
    }
}

#[test]
fn a_read_is_refused_under_the_name_of_what_is_wrong_and_fails_at_the_reader() {
    let unknown = Stag(STAG.0 ^ 0xff);
    let end = BASE + LEN as u64;
    let cases = [
        (unknown, SINK, RdmapError::InvalidStag),
        (OTHER_STAG, BASE, RdmapError::StagNotAssociated),
        (LOCAL_STAG, BASE, RdmapError::AccessRights),
        (STAG, BASE - 1, RdmapError::BaseOrBounds),
        (STAG, end - 7, RdmapError::BaseOrBounds),
    ];
    for (stag, from, error) in cases {
        let (mut a, b) = joined();
        b.fill(SOURCE, b"12345678");
        a.post_send(&read(1, sge(SINK, 8), SOURCE));
        a.post_send(&remote(WrOpcode::Read, 2, &[sge(SINK + 8, 8)], stag, from));
        a.post_send(&read(3, sge(SINK + 16, 8), SOURCE));
        let (mut a, _) = assert_refused(a, b, error);
        let expected = [
            (1, WcStatus::WorkRequestFlushed),
            (2, WcStatus::RemoteAccess),
        ];
        let found = statuses(&a.sends());
        assert_eq!(
            found, expected,
            "the first was not answered before the Terminate"
        );
        a.with_ctx(|qp, ctx| qp.connection_ended(ctx, DisconnectReason::Reset));
        assert_eq!(statuses(&a.sends()), [(3, WcStatus::WorkRequestFlushed)]);
    }
}

/// Linux siw puts a Read's size where its Terminate has the number of the Read Request's message.
#[test]
fn a_read_under_a_wrong_number_is_known_by_its_sink() {
    /// The MSN in the header that a Terminate shows, behind the FPDU's length, the Terminate's own
    /// header, its control word and segment length, and what comes before.
    const MSN: std::ops::Range<usize> = 36..40;
    // That of no message, of another, and of the Read itself.
    for number in [64, 1, 3, 2_u32] {
        let (mut a, mut b) = joined_with(&Negotiated {
            crc: false,
            ..negotiated(None)
        });
        for (id, stag) in [(1, STAG), (2, Stag(STAG.0 ^ 0xff)), (3, STAG)] {
            let sink = sge(SINK + 8 * id, 8);
            a.post_send(&remote(WrOpcode::Read, id, &[sink], stag, SOURCE));
            b.receive(&a.produce(MULPDU).unwrap());
        }
        let mut terminate = b.produce(MULPDU).unwrap();
        assert_eq!(terminate[MSN], 2_u32.to_be_bytes());
        terminate[MSN].copy_from_slice(&number.to_be_bytes());
        a.receive(&terminate);
        let expected = [
            (1, WcStatus::WorkRequestFlushed),
            (2, WcStatus::RemoteAccess),
        ];
        assert_eq!(statuses(&a.sends()), expected, "number {number}");
    }
}

/// Then its sink goes on where the first part of the response ended. A Terminate shows the request as it
/// came (siw), or what was left of it.
#[test]
fn a_read_that_is_half_answered_is_known_by_its_sink_too() {
    /// Of the headers that a Terminate shows, behind the first 26 bytes.
    const MSN: std::ops::Range<usize> = 36..40;
    const SINK_TO: std::ops::Range<usize> = 48..56;
    const SIZE: std::ops::Range<usize> = 56..60;
    for as_it_came in [false, true] {
        let (mut a, mut b) = joined_with(&Negotiated {
            crc: false,
            ..negotiated(None)
        });
        a.post_send(&read(1, sge(SINK, 5000), SOURCE));
        b.receive(&a.produce(MULPDU).unwrap());
        a.receive(&b.produce(MULPDU).unwrap());
        assert!(b.stags.remove(STAG));
        let mut terminate = b.produce(MULPDU).unwrap();
        assert_eq!(terminate[MSN], 1_u32.to_be_bytes());
        // The number of no message: the size of the Read, as siw has it.
        terminate[MSN].copy_from_slice(&5000_u32.to_be_bytes());
        if as_it_came {
            terminate[SINK_TO].copy_from_slice(&SINK.to_be_bytes());
            terminate[SIZE].copy_from_slice(&5000_u32.to_be_bytes());
        }
        a.receive(&terminate);
        assert_eq!(statuses(&a.sends()), [(1, WcStatus::RemoteAccess)]);
    }
}

#[test]
fn a_source_that_is_revoked_while_it_is_read_ends_the_response() {
    let (mut a, mut b) = joined();
    a.post_send(&read(1, sge(SINK, 5000), SOURCE));
    let request = a.produce(MULPDU).unwrap();
    b.receive(&request);
    a.receive(&b.produce(MULPDU).unwrap());
    assert!(b.stags.remove(STAG));
    let (mut a, _) = assert_refused(a, b, RdmapError::InvalidStag);
    assert_eq!(statuses(&a.sends()), [(1, WcStatus::RemoteAccess)]);
}

#[test]
fn a_send_without_a_receive_has_no_buffer() {
    let (mut a, b) = joined();
    a.post_send(&send(1, &[sge(SOURCE, 8)]));
    let (_, b) = assert_refused(a, b, DdpError::NoBuffer);
    assert_eq!(b.counters.refused_no_receive, 1);
}

#[test]
fn a_send_longer_than_its_receive_is_too_long() {
    for receive in [&[][..], &[sge(SINK, 7)], &[sge(SINK, 4), sge(SINK + 8, 3)]] {
        let (mut a, mut b) = joined();
        b.post_recv(4, receive);
        a.post_send(&send(1, &[sge(SOURCE, 8)]));
        let (_, mut b) = assert_refused(a, b, DdpError::MessageTooLong);
        assert_eq!(statuses(&b.recvs()), [(4, WcStatus::LocalLength)]);
        assert_eq!(b.counters.refused_send_too_long, 1);
        assert_eq!(b.read(SINK, 16), [0; 16]);
    }
}

#[test]
fn a_long_send_is_too_long_where_its_receive_ends() {
    let (mut a, mut b) = joined();
    b.post_recv(4, &[sge(SINK, 2000)]);
    a.post_send(&send(1, &[sge(SOURCE, 4000)]));
    let (_, mut b) = assert_refused(a, b, DdpError::MessageTooLong);
    assert_eq!(statuses(&b.recvs()), [(4, WcStatus::LocalLength)]);
}

#[test]
fn an_stag_that_is_not_the_peers_cannot_be_invalidated() {
    for (stag, shared) in [(OTHER_STAG, false), (Stag(3), false), (STAG, true)] {
        let (mut a, mut b) = joined();
        if shared {
            b.stags.stream_added(NEIGHBOUR);
        }
        b.post_recv(4, &[sge(SINK, 8)]);
        let mut invalidate = request(WrOpcode::SendInvalidate, 5, &[]);
        invalidate.slot.rkey = stag.0;
        a.post_send(&invalidate);
        let (_, mut b) = assert_refused(a, b, RdmapError::CannotInvalidate);
        assert_eq!(b.counters.refused_invalidate, 1);
        assert!(b.recvs().is_empty());
        b.with_ctx(|qp, ctx| qp.connection_ended(ctx, DisconnectReason::Reset));
        assert_eq!(statuses(&b.recvs()), [(4, WcStatus::WorkRequestFlushed)]);
    }
}

#[test]
fn a_sink_that_its_owner_took_away_fails_the_read_locally() {
    let (mut a, mut b) = joined();
    a.post_send(&read(1, sge(SINK, 8), SOURCE));
    a.post_send(&read(2, sge(SINK, 8), SOURCE));
    while let Some(fpdu) = a.produce(MULPDU) {
        b.receive(&fpdu);
    }
    assert!(a.stags.remove(STAG));
    let (_, mut a) = assert_refused(b, a, DdpError::InvalidStag);
    assert_eq!(statuses(&a.sends()), [(1, WcStatus::LocalProtection)]);
    a.with_ctx(|qp, ctx| qp.connection_ended(ctx, DisconnectReason::Reset));
    assert_eq!(statuses(&a.sends()), [(2, WcStatus::WorkRequestFlushed)]);
}
