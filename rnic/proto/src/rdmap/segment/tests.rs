use super::{
    ATOMIC_REQUEST_LEN, ATOMIC_RESPONSE_LEN, IMMEDIATE_LEN, READ_REQUEST_LEN, READ_RESPONSE_LEN,
    SEND_LEN, WRITE_LEN, put_atomic_request, put_atomic_response, put_immediate, put_read_request,
    put_read_response, put_send, put_write,
};
use crate::rdmap::{
    AtomicOperation, AtomicRequest, AtomicResponse, ReadRequest, SendKind, SendWord,
};
use crate::{MessageOffset, Msn, Stag, TaggedOffset};

/// RFC 5040 Appendix A.1.
#[test]
fn a_write_segment_opens_with_a_tagged_header() {
    let mut out = [0xee; WRITE_LEN];
    let len = put_write(&mut out, Stag(0x0102_0304), TaggedOffset(0x10), true);
    assert_eq!(len, WRITE_LEN);
    assert_eq!(out, [0xc1, 0x40, 1, 2, 3, 4, 0, 0, 0, 0, 0, 0, 0, 0x10]);
}

/// RFC 5040 Appendix A.3.
#[test]
fn a_read_response_segment_opens_with_a_tagged_header() {
    let mut out = [0xee; READ_RESPONSE_LEN];
    put_read_response(&mut out, Stag(1), TaggedOffset(2), false);
    assert_eq!(out, [0x81, 0x42, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2]);
}

/// RFC 5040 Appendix A.4 and section 4.1: without invalidate the word is zero.
#[test]
fn a_send_segment_opens_with_an_untagged_header() {
    let mut out = [0xee; SEND_LEN];
    let word = 0x0a0b_0c0d;
    put_send(
        &mut out,
        SendKind::default(),
        word,
        Msn(1),
        MessageOffset(0),
        true,
    );
    assert_eq!(
        out,
        [0x41, 0x43, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0]
    );
}

/// RFC 5040 Appendix A.5.
#[test]
fn a_send_with_invalidate_carries_the_stag() {
    let mut out = [0xee; SEND_LEN];
    let (stag, mo) = (0x0a0b_0c0d, MessageOffset(5));
    let kind = SendKind {
        solicited: true,
        word: SendWord::Invalidate,
    };
    put_send(&mut out, kind, stag, Msn(2), mo, false);
    assert_eq!(
        out,
        [
            0x01, 0x46, 10, 11, 12, 13, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 5
        ]
    );
}

/// RFC 5040 Appendix A.2.
#[test]
fn a_read_request_is_one_segment_on_queue_one() {
    let mut out = [0xee; READ_REQUEST_LEN];
    let request = ReadRequest {
        sink_stag: Stag(1),
        sink_to: TaggedOffset(2),
        size: 3,
        source_stag: Stag(4),
        source_to: TaggedOffset(5),
    };
    assert_eq!(
        put_read_request(&mut out, Msn(6), &request),
        READ_REQUEST_LEN
    );
    assert_eq!(
        out[..18],
        [0x41, 0x41, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 6, 0, 0, 0, 0]
    );
    assert_eq!(out[18..], request.to_bytes());
}

/// RFC 7306 Appendix A.3, and section 4.1: the Invalidate STag is zero.
#[test]
fn immediate_data_is_one_segment_of_eight_bytes_on_queue_zero() {
    for (solicited, opcode) in [(false, 0x48), (true, 0x49)] {
        let mut out = [0xee; IMMEDIATE_LEN];
        let len = put_immediate(&mut out, solicited, Msn(3), 0x0102_0304_0506_0708);
        assert_eq!(len, IMMEDIATE_LEN);
        assert_eq!(out[..2], [0x41, opcode]);
        assert_eq!(out[2..18], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0]);
        assert_eq!(out[18..], [1, 2, 3, 4, 5, 6, 7, 8], "big-endian");
    }
}

/// RFC 7306 Appendix A.1.
#[test]
fn an_atomic_request_is_one_segment_on_queue_one() {
    let request = AtomicRequest {
        identifier: 9,
        stag: Stag(4),
        to: TaggedOffset(5),
        operation: AtomicOperation::FetchAdd { add: 1, mask: 2 },
    };
    let mut out = [0xee; ATOMIC_REQUEST_LEN];
    let len = put_atomic_request(&mut out, Msn(6), &request);
    assert_eq!(len, ATOMIC_REQUEST_LEN);
    assert_eq!(
        out[..18],
        [0x41, 0x4a, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 6, 0, 0, 0, 0]
    );
    assert_eq!(out[18..], request.to_bytes());
}

/// RFC 7306 Appendix A.2.
#[test]
fn an_atomic_response_is_one_segment_on_queue_three() {
    let response = AtomicResponse {
        identifier: 9,
        original: 7,
    };
    let mut out = [0xee; ATOMIC_RESPONSE_LEN];
    let len = put_atomic_response(&mut out, Msn(6), &response);
    assert_eq!(len, ATOMIC_RESPONSE_LEN);
    assert_eq!(
        out[..18],
        [0x41, 0x4b, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 6, 0, 0, 0, 0]
    );
    assert_eq!(out[18..], response.to_bytes());
}
