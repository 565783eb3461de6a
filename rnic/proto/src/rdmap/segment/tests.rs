use super::{
    READ_REQUEST_LEN, READ_RESPONSE_LEN, SEND_LEN, WRITE_LEN, put_read_request, put_read_response,
    put_send, put_write,
};
use crate::rdmap::{ReadRequest, SendKind};
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
    let stag = Stag(0x0a0b_0c0d);
    put_send(
        &mut out,
        SendKind::default(),
        stag,
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
    let (stag, mo) = (Stag(0x0a0b_0c0d), MessageOffset(5));
    let kind = SendKind {
        solicited: true,
        invalidate: true,
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
    assert_eq!(out[18..], request.to_octets());
}
