//! RDMA Read in both directions.

use super::*;
use crate::rdmap::segment::{READ_RESPONSE_LEN, put_read_response};

fn response(stag: u32, to: u64, len: usize, last: bool) -> Vec<u8> {
    let mut out = vec![0xaa; READ_RESPONSE_LEN + len];
    put_read_response(&mut out, Stag(stag), TaggedOffset(to), last);
    out
}

/// A stream with [`READ`] outstanding, with the token 7.
fn reading() -> Stream {
    let mut stream = stream();
    assert_eq!(stream.begin_read(7, &READ), Some(Msn(1)));
    stream
}

#[test]
fn a_response_is_matched_to_the_oldest_read() {
    let mut stream = reading();
    let second = ReadRequest {
        sink_stag: Stag(0x300),
        size: 10,
        ..READ
    };
    assert_eq!(stream.begin_read(8, &second), Some(Msn(2)));
    assert_eq!(stream.outstanding_reads().collect::<Vec<_>>(), [7, 8]);
    let expected = |token, stag, to, len, last| {
        Ok(Inbound::ReadResponse {
            token,
            stag: Stag(stag),
            to: TaggedOffset(to),
            len,
            last,
        })
    };
    let found = take(&mut stream, &response(0x100, 0x1000, 1500, false));
    assert_eq!(found, expected(7, 0x100, 0x1000, 1500, false));
    let found = take(&mut stream, &response(0x100, 0x1000 + 1500, 500, true));
    assert_eq!(found, expected(7, 0x100, 0x1000 + 1500, 500, true));
    let found = take(&mut stream, &response(0x300, 0x1000, 10, true));
    assert_eq!(found, expected(8, 0x300, 0x1000, 10, true));
    assert_eq!(stream.outstanding_reads().count(), 0);
}

/// A Terminate may show a Read Request, or what was left of it (RFC 5040 section 4.8).
#[test]
fn an_outstanding_read_is_known_by_its_sink() {
    let mut stream = reading();
    let second = ReadRequest {
        sink_to: TaggedOffset(READ.sink_to.0 + u64::from(READ.size)),
        ..READ
    };
    assert_eq!(stream.begin_read(8, &second), Some(Msn(2)));
    let known = |stream: &Stream, request| stream.reads_into(request).collect::<Vec<_>>();
    let elsewhere = ReadRequest {
        sink_stag: Stag(!READ.sink_stag.0),
        ..READ
    };
    assert_eq!(known(&stream, READ), [7]);
    assert_eq!(known(&stream, second), [8]);
    assert!(known(&stream, elsewhere).is_empty());
    let begun = response(0x100, 0x1000, 1500, false);
    assert!(take(&mut stream, &begun).is_ok());
    let left = ReadRequest {
        sink_to: TaggedOffset(0x1000 + 1500),
        size: READ.size - 1500,
        ..READ
    };
    assert_eq!(known(&stream, left), [7]);
    assert_eq!(known(&stream, READ), [7], "siw shows it whole");
}

/// RFC 5040 section 6.1: no more outbound Reads than were negotiated.
#[test]
fn no_more_reads_than_ord_are_outstanding() {
    let mut stream = reading();
    assert!(stream.can_begin_read());
    assert_eq!(stream.begin_read(8, &READ), Some(Msn(2)));
    assert!(!stream.can_begin_read());
    assert_eq!(stream.begin_read(9, &READ), None);
    take(&mut stream, &response(0x100, 0x1000, 2000, true)).expect("the first is answered");
    assert_eq!(
        stream.begin_read(9, &READ),
        Some(Msn(3)),
        "no number was skipped"
    );
}

#[test]
fn a_response_that_nobody_asked_for_is_an_unexpected_opcode() {
    let found = take(&mut stream(), &response(0x100, 0x1000, 1, true));
    assert_eq!(found, Err(RdmapError::UnexpectedOpcode.into()));
}

#[test]
fn a_response_goes_where_the_read_wants_it() {
    let wrong = |stag, to, len, last| take(&mut reading(), &response(stag, to, len, last)).err();
    let bounds = Some(DdpError::BaseOrBounds.into());
    assert_eq!(
        wrong(0x101, 0x1000, 10, false),
        Some(DdpError::InvalidStag.into())
    );
    assert_eq!(wrong(0x100, 0x1001, 10, false), bounds, "a gap");
    assert_eq!(wrong(0x100, 0x1000, 2001, true), bounds, "too long");
    assert_eq!(wrong(0x100, 0x1000, 1999, true), bounds, "too short");
}

#[test]
fn the_stag_of_a_zero_length_response_is_not_checked() {
    let mut stream = stream();
    stream
        .begin_read(7, &ReadRequest { size: 0, ..READ })
        .expect("ORD is 2");
    let found = take(&mut stream, &response(0, 0, 0, true));
    assert!(
        matches!(
            found,
            Ok(Inbound::ReadResponse {
                token: 7,
                last: true,
                ..
            })
        ),
        "{found:?}"
    );
}

#[test]
fn read_requests_come_with_their_header() {
    let mut stream = stream();
    let expected = Inbound::ReadRequest {
        msn: Msn(1),
        request: READ,
    };
    assert_eq!(take(&mut stream, &read_request(1, &READ)), Ok(expected));
    assert_eq!(stream.inbound_reads(), 1);
}

/// RFC 5040 section 6.1, and RFC 5041 section 7.1: queue 1 has IRD buffers.
#[test]
fn one_read_request_too_many_has_no_buffer() {
    let mut stream = stream();
    assert!(take(&mut stream, &read_request(1, &READ)).is_ok());
    assert!(take(&mut stream, &read_request(2, &READ)).is_ok());
    stream.read_response_sent();
    assert!(
        take(&mut stream, &read_request(3, &READ)).is_ok(),
        "one was answered"
    );
    let refused = take(&mut stream, &read_request(4, &READ));
    assert_eq!(refused, Err(DdpError::NoBuffer.into()));
}

/// RFC 5042 sections 6.4.3.3 and Appendix A: one that fills its own leaves the others' as they are.
#[test]
fn streams_share_no_buffers_for_read_requests() {
    let (mut greedy, mut other) = (stream(), stream());
    for msn in 1..=2 {
        assert!(take(&mut greedy, &read_request(msn, &READ)).is_ok());
    }
    for msn in 1..=2 {
        assert!(take(&mut other, &read_request(msn, &READ)).is_ok(), "{msn}");
    }
    other.read_response_sent();
    assert_eq!((greedy.inbound_reads(), other.inbound_reads()), (2, 1));
    let refused = take(&mut greedy, &read_request(3, &READ));
    assert_eq!(refused, Err(DdpError::NoBuffer.into()), "another's is free");
}

#[test]
fn a_read_request_is_28_bytes_in_one_segment() {
    let whole = read_request(1, &READ);
    let error = |bytes: &[u8]| take(&mut stream(), bytes).err();
    let unspecified = Some(RdmapError::OperationUnspecified.into());
    assert_eq!(error(&whole[..45]), unspecified);
    let mut not_last = whole.clone();
    not_last[0] = 0x01;
    assert_eq!(error(&not_last), unspecified);
    let long = [&whole[..], &[0]].concat();
    assert_eq!(error(&long), Some(DdpError::MessageTooLong.into()));
}
