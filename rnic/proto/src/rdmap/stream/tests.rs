//! One rule a test. A stream is fed whole ULPDUs.

mod atomics;
mod early;
mod errors;
mod immediate;
mod reads;

use proptest::prelude::*;

use super::{Inbound, Stream, StreamConfig};
use crate::ddp::{DdpError, Header};
use crate::enhanced::Rtr;
use crate::rdmap::segment::{
    READ_RESPONSE_LEN, SEND_LEN, WRITE_LEN, put_read_request, put_read_response, put_send,
    put_write,
};
use crate::rdmap::{
    AtomicOperation, Offending, RdmapError, ReadRequest, SendKind, SendWord, TerminateError,
};
use crate::{Gather, MessageOffset, Msn, Stag, TaggedOffset};

const PLAIN: SendKind = SendKind {
    solicited: false,
    word: SendWord::Unused,
};

const READ: ReadRequest = ReadRequest {
    sink_stag: Stag(0x100),
    sink_to: TaggedOffset(0x1000),
    size: 2000,
    source_stag: Stag(0x200),
    source_to: TaggedOffset(0x2000),
};

fn stream() -> Stream {
    Stream::new(StreamConfig {
        ird: 2,
        ord: 2,
        ..StreamConfig::default()
    })
}

fn take(stream: &mut Stream, ulpdu: &[u8]) -> Result<Inbound, TerminateError> {
    stream.classify(&Gather::new(&[ulpdu]))
}

fn write(stag: u32, to: u64, len: usize, last: bool) -> Vec<u8> {
    let mut out = vec![0xaa; WRITE_LEN + len];
    put_write(&mut out, Stag(stag), TaggedOffset(to), last);
    out
}

fn send(kind: SendKind, msn: u32, mo: u32, len: usize, last: bool) -> Vec<u8> {
    let mut out = vec![0xaa; SEND_LEN + len];
    put_send(&mut out, kind, 0x77, Msn(msn), MessageOffset(mo), last);
    out
}

fn read_request(msn: u32, request: &ReadRequest) -> Vec<u8> {
    let mut out = vec![0; 46];
    put_read_request(&mut out, Msn(msn), request);
    out
}

#[test]
fn write_segments_are_placed_each_by_itself() {
    let mut stream = stream();
    let (stag, to) = (Stag(5), TaggedOffset(100));
    let first = Inbound::Write {
        stag,
        to,
        len: 10,
        last: false,
    };
    assert_eq!(take(&mut stream, &write(5, 100, 10, false)), Ok(first));
    let to = TaggedOffset(110);
    let second = Inbound::Write {
        stag,
        to,
        len: 20,
        last: true,
    };
    assert_eq!(take(&mut stream, &write(5, 110, 20, true)), Ok(second));
    assert_eq!(second.payload_offset(), WRITE_LEN);
}

#[test]
fn a_send_in_two_segments() {
    let mut stream = stream();
    let (kind, msn) = (PLAIN, Msn(1));
    let inbound = |mo, len, last| Inbound::Send {
        kind,
        word: 0,
        msn,
        mo: MessageOffset(mo),
        len,
        last,
    };
    let first = take(&mut stream, &send(PLAIN, 1, 0, 1482, false));
    assert_eq!(first, Ok(inbound(0, 1482, false)));
    let second = take(&mut stream, &send(PLAIN, 1, 1482, 566, true));
    assert_eq!(second, Ok(inbound(1482, 566, true)));
    assert_eq!(inbound(0, 0, true).payload_offset(), SEND_LEN);
}

#[test]
fn the_four_sends_are_told_apart() {
    let mut stream = stream();
    assert_sends_are_told_apart(&mut stream, &[SendWord::Unused, SendWord::Invalidate]);
}

#[track_caller]
fn assert_sends_are_told_apart(stream: &mut Stream, words: &[SendWord]) {
    let mut msn = 1;
    for solicited in [false, true] {
        for &word in words {
            let kind = SendKind { solicited, word };
            let expected = Inbound::Send {
                kind,
                word: if word == SendWord::Unused { 0 } else { 0x77 },
                msn: Msn(msn),
                mo: MessageOffset(0),
                len: 3,
                last: true,
            };
            let found = take(stream, &send(kind, msn, 0, 3, true));
            assert_eq!(found, Ok(expected));
            msn += 1;
        }
    }
}

/// `docs/extensions.md`: for others they are reserved opcodes (RFC 5040 section 4.1).
#[test]
fn sends_with_immediate_data_are_sends_where_that_was_agreed() {
    let mut agreed = Stream::new(StreamConfig {
        sends_with_immediate: true,
        ..StreamConfig::default()
    });
    let words = [SendWord::Immediate, SendWord::Unused, SendWord::Invalidate];
    assert_sends_are_told_apart(&mut agreed, &words);
    for solicited in [false, true] {
        let word = SendWord::Immediate;
        let ulpdu = send(SendKind { solicited, word }, 1, 0, 3, true);
        let early = |stream: &Stream| stream.early(&Gather::new(&[&ulpdu]));
        let mut stream = stream();
        assert_eq!(early(&stream), None);
        let refused = take(&mut stream, &ulpdu);
        assert_eq!(refused, Err(RdmapError::UnexpectedOpcode.into()));
    }
}

/// RFC 5041 section 5.2: the TO of a zero-length tagged segment is not checked.
#[test]
fn the_to_of_a_zero_length_write_is_not_checked() {
    let inbound = take(&mut stream(), &write(1, u64::MAX, 0, true));
    assert!(
        matches!(inbound, Ok(Inbound::Write { len: 0, .. })),
        "{inbound:?}"
    );
}

#[test]
fn a_header_in_pieces_is_understood() {
    let bytes = send(PLAIN, 1, 0, 5, true);
    let (whole, mut cut) = (take(&mut stream(), &bytes), stream());
    let pieces: Vec<&[u8]> = bytes.chunks(1).collect();
    assert_eq!(cut.classify(&Gather::new(&pieces)), whole);
}

#[test]
fn outbound_sends_are_numbered_from_one() {
    let mut stream = stream();
    assert_eq!(stream.begin_send(), Msn(1));
    assert_eq!(stream.begin_send(), Msn(2));
}

/// RFC 6581 section 9.2: the indication by Send consumes no receive, but a number.
#[test]
fn an_awaited_indication_by_send_is_not_a_send() {
    let config = StreamConfig {
        expect_rtr: Some(Rtr::Send),
        ..StreamConfig::default()
    };
    let mut stream = Stream::new(config);
    assert_eq!(
        take(&mut stream, &send(PLAIN, 1, 0, 0, true)),
        Ok(Inbound::Rtr)
    );
    let next = take(&mut stream, &send(PLAIN, 2, 0, 0, true));
    assert!(
        matches!(next, Ok(Inbound::Send { len: 0, .. })),
        "only the first: {next:?}"
    );
}

#[test]
fn a_first_send_with_bytes_is_no_indication() {
    let config = StreamConfig {
        expect_rtr: Some(Rtr::Send),
        ..StreamConfig::default()
    };
    let mut stream = Stream::new(config);
    let first = take(&mut stream, &send(PLAIN, 1, 0, 4, true));
    assert!(
        matches!(first, Ok(Inbound::Send { len: 4, .. })),
        "{first:?}"
    );
}

#[test]
fn our_indications_are_zero_length_messages() {
    let received = |rtr, expect_rtr| {
        let config = StreamConfig {
            ird: 1,
            ord: 1,
            expect_rtr,
            ..StreamConfig::default()
        };
        let (mut ours, mut theirs) = (Stream::new(config), Stream::new(config));
        let mut out = [0xee; 46];
        let len = ours.put_rtr(rtr, 9, &mut out).expect("ORD is 1");
        take(&mut theirs, &out[..len])
    };
    let write = received(Rtr::Write, Some(Rtr::Write));
    assert!(matches!(
        write,
        Ok(Inbound::Write {
            len: 0,
            last: true,
            ..
        })
    ));
    let read = received(Rtr::Read, Some(Rtr::Read));
    assert!(matches!(read, Ok(Inbound::ReadRequest { request, .. }) if request.size == 0));
    assert_eq!(received(Rtr::Send, Some(Rtr::Send)), Ok(Inbound::Rtr));
    let mut without_ord = Stream::new(StreamConfig::default());
    assert_eq!(without_ord.put_rtr(Rtr::Read, 9, &mut [0; 46]), None);
}

proptest! {
    #[test]
    fn no_bytes_make_the_stream_panic(
        ulpdus in prop::collection::vec(
            (0u8..4, 0u8..16, 0u32..5, 1u32..3, prop::collection::vec(any::<u8>(), 0..60)),
            1..20,
        ),
        shown: bool,
    ) {
        let mut stream = stream();
        stream.begin_atomic(0, Stag(1), TaggedOffset(8), AtomicOperation::FetchAdd {
            add: 1,
            mask: 0,
        });
        stream.begin_read(1, &READ);
        let mut over = false;
        for (flags, opcode, qn, msn, mut bytes) in ulpdus {
            // Headers that get past the first checks, most of the time.
            if let Some(control) = bytes.first_chunk_mut::<2>() {
                *control = [flags << 6 | 1, 0x40 | opcode];
            }
            if flags & 2 == 0 && bytes.len() >= SEND_LEN && bytes[SEND_LEN - 1] & 1 == 0 {
                bytes[6..10].copy_from_slice(&qn.to_be_bytes());
                bytes[10..14].copy_from_slice(&msn.to_be_bytes());
                bytes[14..18].copy_from_slice(&[0; 4]);
            }
            let pieces = [&bytes[..]];
            let view = Gather::new(&pieces);
            let inbound = stream.classify(&view);
            prop_assert_eq!(inbound == Ok(Inbound::Dropped), over);
            match inbound {
                Ok(Inbound::Terminate(_)) => over = true,
                Ok(_) => {}
                Err(error) => {
                    over = true;
                    let message = stream.terminate(error, shown.then_some(&Offending::of(&view)));
                    prop_assert!(message.is_some());
                }
            }
        }
    }

    /// Whatever is sent in segments arrives as the same message.
    #[test]
    fn messages_survive_segmentation(
        lengths in prop::collection::vec(0usize..3000, 1..6),
        room in 1usize..1000,
    ) {
        let (mut ours, mut theirs) = (stream(), stream());
        for length in lengths {
            let msn = ours.begin_send();
            let mut done = 0;
            loop {
                let now = room.min(length - done);
                let last = done + now == length;
                match take(&mut theirs, &send(PLAIN, msn.0, done as u32, now, last)) {
                    Ok(Inbound::Send { mo, len, last: found, .. }) => {
                        prop_assert_eq!((mo.0 as usize, len as usize, found), (done, now, last));
                    }
                    other => prop_assert!(false, "{other:?}"),
                }
                done += now;
                if last {
                    break;
                }
            }
        }
    }
}

/// What a segment with payload is by its parsed header, and any other by all its bytes.
fn take_by_header(stream: &mut Stream, ulpdu: &[u8]) -> Result<Inbound, TerminateError> {
    let header = Header::parse(&ulpdu);
    let payload = header.and_then(|header| ulpdu.len().checked_sub(header.payload_offset()));
    match (header, payload) {
        (Some(Header::Tagged(header)), Some(bytes)) => {
            let write = stream.classify_write(&header, bytes);
            let write = write.map(|last| Inbound::Write {
                stag: header.stag,
                to: header.to,
                len: bytes as u32,
                last,
            });
            write.map_or_else(|| stream.classify_tagged(&header, bytes), Ok)
        }
        (Some(Header::Untagged(header)), Some(len)) => match stream.classify_send(&header, len) {
            Some(inbound) => Ok(inbound),
            None => stream.classify(&ulpdu),
        },
        _ => stream.classify(&ulpdu),
    }
}

proptest! {
    #[test]
    fn a_segment_is_the_same_by_its_header_and_by_its_bytes(
        segments in prop::collection::vec((0..5_usize, any::<bool>(), 0..30_usize), 1..12),
        changed in prop::option::weighted(0.7, (0..12_usize, 0..46_usize, 0..8)),
        expect_rtr in any::<bool>(),
    ) {
        let config = StreamConfig {
            ird: 1,
            ord: 2,
            expect_rtr: expect_rtr.then_some(Rtr::Send),
            ..StreamConfig::default()
        };
        let (mut by_bytes, mut by_header) = (Stream::new(config), Stream::new(config));
        for stream in [&mut by_bytes, &mut by_header] {
            stream.begin_read(9, &READ);
        }
        let (mut msn, mut mo) = (1, 0);
        for (number, &(kind, last, len)) in segments.iter().enumerate() {
            let mut ulpdu = match kind {
                0 => write(5, 100, len, last),
                1 => read_request(1, &READ),
                2 => read_response(&READ, len, last),
                _ => send(PLAIN, msn, mo, len, last),
            };
            if kind > 2 {
                (msn, mo) = if last { (msn + 1, 0) } else { (msn, mo + len as u32) };
            }
            if let Some((which, at, bit)) = changed && which == number && at < ulpdu.len() {
                ulpdu[at] ^= 1_u8 << bit;
            }
            prop_assert_eq!(take_by_header(&mut by_header, &ulpdu), take(&mut by_bytes, &ulpdu));
            prop_assert_eq!(format!("{by_header:?}"), format!("{by_bytes:?}"));
        }
    }
}

fn read_response(request: &ReadRequest, len: usize, last: bool) -> Vec<u8> {
    let mut out = vec![0xaa; READ_RESPONSE_LEN + len];
    put_read_response(&mut out, request.sink_stag, request.sink_to, last);
    out
}
