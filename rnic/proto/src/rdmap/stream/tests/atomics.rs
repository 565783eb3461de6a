//! Atomic Operations in both directions (RFC 7306 section 5).

use super::*;
use crate::rdmap::segment::{
    ATOMIC_REQUEST_LEN, ATOMIC_RESPONSE_LEN, put_atomic_request, put_atomic_response,
    put_read_response,
};
use crate::rdmap::{AtomicOperation, AtomicRequest, AtomicResponse, Offending};

const ADD: AtomicOperation = AtomicOperation::FetchAdd { add: 1, mask: 0 };
const STAG: Stag = Stag(0x200);
const TO: TaggedOffset = TaggedOffset(0x2000);

const REQUEST: AtomicRequest = AtomicRequest {
    identifier: 77,
    stag: STAG,
    to: TO,
    operation: ADD,
};

fn request(msn: u32) -> Vec<u8> {
    let mut out = vec![0; ATOMIC_REQUEST_LEN];
    put_atomic_request(&mut out, Msn(msn), &REQUEST);
    out
}

fn response(msn: u32, identifier: u32) -> Vec<u8> {
    let mut out = vec![0; ATOMIC_RESPONSE_LEN];
    let response = AtomicResponse {
        identifier,
        original: 5,
    };
    put_atomic_response(&mut out, Msn(msn), &response);
    out
}

/// A stream with [`ADD`] outstanding under the token 7, and its Request Identifier.
fn adding() -> (Stream, u32) {
    let mut stream = stream();
    let (msn, request) = stream.begin_atomic(7, STAG, TO, ADD).expect("ORD is 2");
    assert_eq!((msn, request.stag, request.to), (Msn(1), STAG, TO));
    assert_eq!(request.operation, ADD);
    (stream, request.identifier)
}

/// RFC 7306 section 5.2: queue 1, whose numbers are those of the Read Requests.
#[test]
fn an_atomic_request_is_numbered_with_the_read_requests() {
    let mut stream = stream();
    assert!(take(&mut stream, &read_request(1, &READ)).is_ok());
    let expected = Inbound::AtomicRequest {
        msn: Msn(2),
        request: REQUEST,
    };
    assert_eq!(take(&mut stream, &request(2)), Ok(expected));
    assert_eq!((stream.inbound_reads(), stream.inbound_atomics()), (1, 1));
}

/// As many requests of both kinds as there are buffers for: IRD is 2.
fn full() -> Stream {
    let mut stream = stream();
    for msn in [1, 2] {
        assert!(take(&mut stream, &read_request(msn, &READ)).is_ok());
    }
    for msn in [3, 4] {
        assert!(take(&mut stream, &request(msn)).is_ok());
    }
    stream
}

/// RFC 7306 section 5.2.2, rule 4.
#[test]
fn atomic_requests_have_buffers_beside_those_of_the_read_requests() {
    let no_buffer = Err(DdpError::NoBuffer.into());
    assert_eq!(take(&mut full(), &request(5)), no_buffer);
    assert_eq!(take(&mut full(), &read_request(5, &READ)), no_buffer);
}

#[test]
fn an_answered_request_makes_room_for_one_of_its_kind() {
    let no_buffer = Err(DdpError::NoBuffer.into());
    let read_answered = || {
        let mut stream = full();
        stream.read_response_sent();
        stream
    };
    let atomic_answered = || {
        let mut stream = full();
        assert_eq!(stream.begin_atomic_response(), Msn(1));
        stream.atomic_response_sent();
        assert_eq!(stream.begin_atomic_response(), Msn(2));
        stream
    };
    assert!(take(&mut read_answered(), &read_request(5, &READ)).is_ok());
    assert_eq!(take(&mut read_answered(), &request(5)), no_buffer);
    assert!(take(&mut atomic_answered(), &request(5)).is_ok());
    assert_eq!(
        take(&mut atomic_answered(), &read_request(5, &READ)),
        no_buffer
    );
}

/// RFC 7306 section 5.2.1, rule 4.
#[test]
fn an_operation_code_that_does_not_exist_is_an_unexpected_opcode() {
    for code in [1, 3, 15] {
        let mut ulpdu = request(1);
        ulpdu[SEND_LEN + 3] = code;
        let refused = take(&mut stream(), &ulpdu);
        assert_eq!(refused, Err(RdmapError::UnexpectedOpcode.into()), "{code}");
    }
}

#[test]
fn an_atomic_request_is_52_bytes_in_one_segment() {
    let whole = request(1);
    let error = |bytes: &[u8]| take(&mut stream(), bytes).err();
    let unspecified = Some(RdmapError::OperationUnspecified.into());
    for len in SEND_LEN..ATOMIC_REQUEST_LEN {
        assert_eq!(error(&whole[..len]), unspecified, "{len}");
    }
    let mut not_last = whole.clone();
    not_last[0] = 0x01;
    assert_eq!(error(&not_last), unspecified);
    let long = [&whole[..], &[0]].concat();
    assert_eq!(error(&long), Some(DdpError::MessageTooLong.into()));
}

/// RFC 7306 Figure 2: requests on queue 1, responses on queue 3, and nowhere else.
#[test]
fn atomic_messages_come_only_on_their_queues() {
    for (ulpdu, own) in [(request(1), 1), (response(1, 1), 3)] {
        for qn in (0..4).filter(|qn| *qn != own) {
            let mut ulpdu = ulpdu.clone();
            ulpdu[9] = qn;
            let refused = take(&mut stream(), &ulpdu);
            assert_eq!(refused, Err(RdmapError::UnexpectedOpcode.into()), "{qn}");
        }
    }
}

/// RFC 7306 section 5.2: the ORD is that of Reads and Atomic Operations together.
#[test]
fn no_more_reads_and_atomics_than_ord_are_outstanding() {
    let (mut stream, identifier) = adding();
    assert_eq!(stream.begin_read(8, &READ), Some(Msn(2)));
    assert!(!stream.can_begin_read());
    assert_eq!(stream.begin_atomic(9, STAG, TO, ADD), None);
    let done = Inbound::AtomicResponse {
        token: 7,
        original: 5,
    };
    assert_eq!(take(&mut stream, &response(1, identifier)), Ok(done));
    let (msn, _) = stream.begin_atomic(9, STAG, TO, ADD).expect("room again");
    assert_eq!(msn, Msn(3), "no number was skipped");
}

/// RFC 7306 section 5: the response's number locates its request.
#[test]
fn responses_come_in_the_order_of_the_requests() {
    let (mut stream, first) = adding();
    let (_, second) = stream.begin_atomic(8, STAG, TO, ADD).expect("ORD is 2");
    assert_ne!(first, second.identifier);
    let mut tokens = Vec::new();
    for (msn, identifier) in [(1, first), (2, second.identifier)] {
        match take(&mut stream, &response(msn, identifier)) {
            Ok(Inbound::AtomicResponse { token, .. }) => tokens.push(token),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(tokens, [7, 8]);
}

/// RFC 7306 section 5.2.2, rules 5 and 7.
#[test]
fn a_response_that_answers_nothing_is_refused() {
    let error = |stream: &mut Stream, msn, identifier| {
        take(stream, &response(msn, identifier)).expect_err("no answer")
    };
    let no_buffer: TerminateError = DdpError::NoBuffer.into();
    assert_eq!(error(&mut stream(), 1, 1), no_buffer, "nobody asked");
    let (mut other, identifier) = adding();
    let unspecified: TerminateError = RdmapError::OperationUnspecified.into();
    assert_eq!(error(&mut other, 1, identifier ^ 1), unspecified);
    let (mut number, identifier) = adding();
    let range: TerminateError = DdpError::MsnRange.into();
    assert_eq!(error(&mut number, 2, identifier), range);
}

/// RFC 7306 section 7: a request's response is generated when those before it have been.
#[test]
fn a_response_does_not_overtake_that_of_another_kind() {
    let unexpected: TerminateError = RdmapError::UnexpectedOpcode.into();
    let mut reading = stream();
    reading.begin_read(8, &READ).expect("ORD is 2");
    let (_, request) = reading.begin_atomic(9, STAG, TO, ADD).expect("ORD is 2");
    let found = take(&mut reading, &response(1, request.identifier));
    assert_eq!(found, Err(unexpected));
    let (mut adding, _) = adding();
    adding.begin_read(8, &READ).expect("ORD is 2");
    let mut bytes = [0; WRITE_LEN];
    put_read_response(&mut bytes, READ.sink_stag, READ.sink_to, false);
    assert_eq!(take(&mut adding, &bytes), Err(unexpected));
}

#[test]
fn a_response_is_12_bytes_in_one_segment() {
    let refused = |change: fn(&mut Vec<u8>)| {
        let (mut stream, identifier) = adding();
        let mut ulpdu = response(1, identifier);
        change(&mut ulpdu);
        take(&mut stream, &ulpdu).err()
    };
    let unspecified = Some(RdmapError::OperationUnspecified.into());
    assert_eq!(refused(|ulpdu| ulpdu.truncate(29)), unspecified);
    assert_eq!(refused(|ulpdu| ulpdu.truncate(SEND_LEN)), unspecified);
    assert_eq!(
        refused(|ulpdu| ulpdu[0] = 0x01),
        unspecified,
        "not the last"
    );
    let long = refused(|ulpdu| ulpdu.push(0));
    assert_eq!(long, Some(DdpError::MessageTooLong.into()));
}

/// RFC 7306 section 8.1, rule 2, and RFC 5040 Figure 10: no RDMA header is shown, only DDP's.
#[test]
fn a_terminate_shows_the_ddp_header_of_an_atomic_request() {
    let ulpdu = request(1);
    let offending = Offending::of(&&ulpdu[..]);
    let message = stream()
        .terminate(RdmapError::InvalidStag.into(), Some(&offending))
        .expect("the first");
    let bytes = &message.bytes()[SEND_LEN..];
    assert_eq!(bytes[2], 0xc0, "M and D, not R");
    assert_eq!(bytes[4..6], [0, ATOMIC_REQUEST_LEN as u8]);
    assert_eq!(bytes[6..], ulpdu[..SEND_LEN]);
}

#[test]
fn after_our_terminate_no_atomic_is_begun() {
    let mut stream = stream();
    let _ = stream.terminate(DdpError::InvalidStag.into(), None);
    assert_eq!(stream.begin_atomic(1, STAG, TO, ADD), None);
}
