//! What may be placed before its turn, and what has to wait for it.

use super::*;
use crate::rdmap::AtomicRequest;
use crate::rdmap::segment::{
    ATOMIC_REQUEST_LEN, READ_RESPONSE_LEN, put_atomic_request, put_read_response,
};
use crate::rdmap::stream::{Early, SENDS_AHEAD_MAX};

fn early(stream: &Stream, ulpdu: &[u8]) -> Option<Early> {
    stream.early(&Gather::new(&[ulpdu]))
}

fn response(stag: u32, to: u64, len: usize) -> Vec<u8> {
    let mut out = vec![0xaa; READ_RESPONSE_LEN + len];
    put_read_response(&mut out, Stag(stag), TaggedOffset(to), false);
    out
}

#[test]
fn a_write_may_always_be_placed_if_it_has_bytes_and_does_not_wrap() {
    let stream = stream();
    let expected = Early::Write {
        stag: Stag(7),
        to: TaggedOffset(9),
        len: 10,
    };
    assert_eq!(early(&stream, &write(7, 9, 10, false)), Some(expected));
    assert_eq!(early(&stream, &write(7, 9, 0, true)), None);
    assert_eq!(early(&stream, &write(7, u64::MAX, 2, true)), None);
    for flip in [0x01, 0x02] {
        // Another DDP version.
        let mut wrong = write(7, 9, 10, false);
        wrong[0] ^= flip;
        assert_eq!(early(&stream, &wrong), None);
    }
    // Another RDMAP version, and an opcode that is none.
    for byte in [0x80, 0x4f] {
        let mut wrong = write(7, 9, 10, false);
        wrong[1] = byte;
        assert_eq!(early(&stream, &wrong), None);
    }
}

#[test]
fn a_read_response_is_placed_only_within_a_sink_that_waits_for_it() {
    let mut stream = stream();
    assert_eq!(early(&stream, &response(0x100, 0x1000, 10)), None);
    assert!(stream.begin_read(1, &READ).is_some());
    for (to, len, inside) in [
        (0x1000, 2000, true),
        (0x1000 + 1990, 10, true),
        (0x1000 + 1990, 11, false),
        (0xfff, 10, false),
        (u64::MAX - 5, 5, false),
    ] {
        let found = early(&stream, &response(0x100, to, len));
        assert_eq!(found.is_some(), inside, "{len} bytes to {to:#x}");
    }
    assert_eq!(early(&stream, &response(0x101, 0x1000, 10)), None);
    // What has come in order is waited for no more.
    let taken = take(&mut stream, &response(0x100, 0x1000, 500));
    assert!(matches!(taken, Ok(Inbound::ReadResponse { .. })));
    assert_eq!(early(&stream, &response(0x100, 0x1000 + 499, 10)), None);
    assert!(early(&stream, &response(0x100, 0x1000 + 500, 10)).is_some());
}

#[test]
fn a_send_is_placed_with_the_number_of_messages_before_it_up_to_a_limit() {
    let mut stream = stream();
    let expected = |msn, ahead, mo| {
        Some(Early::Send {
            msn: Msn(msn),
            ahead,
            mo: MessageOffset(mo),
            len: 10,
        })
    };
    let first = send(PLAIN, 1, 700, 10, false);
    assert_eq!(early(&stream, &first), expected(1, 0, 700));
    let last = send(PLAIN, SENDS_AHEAD_MAX, 0, 10, true);
    let too_far = send(PLAIN, SENDS_AHEAD_MAX + 1, 0, 10, true);
    let most = SENDS_AHEAD_MAX - 1;
    assert_eq!(early(&stream, &last), expected(SENDS_AHEAD_MAX, most, 0));
    assert_eq!(early(&stream, &too_far), None);
    assert_eq!(early(&stream, &send(PLAIN, 0, 0, 10, true)), None);
    assert_eq!(early(&stream, &send(PLAIN, 1, u32::MAX, 10, true)), None);
    assert!(take(&mut stream, &send(PLAIN, 1, 0, 10, true)).is_ok());
    assert_eq!(early(&stream, &first), None, "it is delivered");
    assert_eq!(
        early(&stream, &last),
        expected(SENDS_AHEAD_MAX, most - 1, 0)
    );
    assert!(early(&stream, &too_far).is_some());
}

#[test]
fn what_came_in_order_of_a_send_is_not_placed_again() {
    let mut stream = stream();
    assert!(take(&mut stream, &send(PLAIN, 1, 0, 100, false)).is_ok());
    assert_eq!(early(&stream, &send(PLAIN, 1, 99, 10, true)), None);
    assert!(early(&stream, &send(PLAIN, 1, 100, 10, true)).is_some());
    assert!(early(&stream, &send(PLAIN, 2, 0, 10, true)).is_some());
}

#[test]
fn nothing_is_placed_early_when_the_stream_is_over_and_requests_never_are() {
    let mut stream = stream();
    assert_eq!(early(&stream, &read_request(1, &READ)), None);
    let mut atomic = vec![0; ATOMIC_REQUEST_LEN];
    let request = AtomicRequest {
        identifier: 1,
        stag: Stag(7),
        to: TaggedOffset(8),
        operation: AtomicOperation::FetchAdd { add: 1, mask: 0 },
    };
    put_atomic_request(&mut atomic, Msn(1), &request);
    assert_eq!(early(&stream, &atomic), None);
    assert!(take(&mut stream, &send(PLAIN, 9, 0, 1, true)).is_err());
    assert_eq!(early(&stream, &write(7, 9, 10, false)), None);
}

/// A Send is one on queue 0; on any other it is an error, which its turn shows.
#[test]
fn a_send_on_another_queue_is_not_placed_early() {
    let stream = stream();
    let mut ulpdu = send(PLAIN, 1, 0, 10, true);
    assert!(early(&stream, &ulpdu).is_some());
    for qn in [1, 2, 3, 4, 0xff] {
        ulpdu[9] = qn;
        assert_eq!(early(&stream, &ulpdu), None, "queue {qn}");
    }
}
