//! The table: what a peer may not send, and what RFC 5040 Figure 9, RFC 5041 section 7.2 and RFC
//! 5044 section 8 call it. Bytes are written by hand, not by the codecs under test.

mod extensions;

use crate::side::{BASE, Side};

/// Nobody's STag.
const UNKNOWN: u32 = 0x00ab_cd01;
/// Without any remote right.
pub const BARE: u32 = 0x0000_3001;
/// Of another protection domain.
pub const FOREIGN: u32 = 0x0000_3102;
/// Everything is allowed, within [`SMALL`] bytes.
pub const NARROW: u32 = 0x0000_3203;
/// Where those three begin in the side's memory, and their length.
pub const PLACES: [usize; 3] = [0x1_0000, 0x1_8000, 0x2_0000];
pub const SMALL: usize = 4096;
/// The receive that the hostile peer's stream has.
pub const RECEIVE: (usize, usize) = (0x3_0000, 64);
/// The sink of the side's own Read, when it has one outstanding, and its length.
pub const SINK: (usize, usize) = (0x4_0000, 100);
/// Reads that the hostile peer may have outstanding.
pub const IRD: u16 = 4;

/// First bytes of DDP and RDMAP.
pub const TAGGED: u8 = 0x81;
pub const UNTAGGED: u8 = 0x01;
pub const LAST: u8 = 0x40;
pub const WRITE: u8 = 0x40;
pub const READ_REQUEST: u8 = 0x41;
pub const READ_RESPONSE: u8 = 0x42;
pub const SEND: u8 = 0x43;
const SEND_INVALIDATE: u8 = 0x44;
const SEND_SOLICITED: u8 = 0x45;
pub const TERMINATE: u8 = 0x47;

/// What of the segment at fault the Terminate shows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Shown {
    Nothing,
    Header,
    HeaderAndRead,
}

/// One thing that is not allowed.
pub struct Case {
    pub name: &'static str,
    /// Layer, error type and code.
    pub control: u16,
    pub shown: Shown,
    /// ULPDUs that are fine, right before.
    pub before: Vec<Vec<u8>>,
    pub fault: Vec<u8>,
    /// A byte of its FPDU is damaged.
    pub damaged: bool,
    /// The side has a Read outstanding, with its sink at [`SINK`].
    pub reads: bool,
}

pub fn tagged(ddp: u8, rdmap: u8, stag: u32, to: u64, payload: &[u8]) -> Vec<u8> {
    let mut out = vec![ddp, rdmap];
    out.extend(stag.to_be_bytes());
    out.extend(to.to_be_bytes());
    out.extend(payload);
    out
}

pub fn untagged(ddp: u8, rdmap: u8, place: [u32; 3], payload: &[u8]) -> Vec<u8> {
    invalidating(ddp, rdmap, 0, place, payload)
}

/// An untagged segment with a word for RDMAP.
fn invalidating(ddp: u8, rdmap: u8, word: u32, place: [u32; 3], payload: &[u8]) -> Vec<u8> {
    let mut out = vec![ddp, rdmap];
    out.extend(word.to_be_bytes());
    out.extend(place.into_iter().flat_map(u32::to_be_bytes));
    out.extend(payload);
    out
}

pub fn read_header(sink: (u32, u64), size: u32, source: (u32, u64)) -> Vec<u8> {
    let mut out = sink.0.to_be_bytes().to_vec();
    out.extend(sink.1.to_be_bytes());
    out.extend(size.to_be_bytes());
    out.extend(source.0.to_be_bytes());
    out.extend(source.1.to_be_bytes());
    out
}

fn send(place: [u32; 3], len: usize) -> Vec<u8> {
    untagged(UNTAGGED | LAST, SEND, place, &vec![0x5e; len])
}

fn write(stag: u32, to: u64, len: usize) -> Vec<u8> {
    tagged(TAGGED | LAST, WRITE, stag, to, &vec![0xee; len])
}

fn read(msn: u32, size: u32, source: (u32, u64)) -> Vec<u8> {
    let header = read_header((1, 2), size, source);
    untagged(UNTAGGED | LAST, READ_REQUEST, [1, msn, 0], &header)
}

/// The whole table, for this side.
pub fn cases(side: &Side) -> Vec<Case> {
    let mut all = framing();
    all.extend(tagged_segments(side));
    all.extend(untagged_segments());
    all.extend(read_requests(side));
    all.extend(read_responses(side));
    all.extend(extensions::cases(side));
    all
}

fn case(name: &'static str, control: u16, fault: Vec<u8>) -> Case {
    Case {
        name,
        control,
        shown: Shown::Header,
        before: Vec::new(),
        fault,
        damaged: false,
        reads: false,
    }
}

fn unshown(name: &'static str, control: u16, fault: Vec<u8>) -> Case {
    Case {
        shown: Shown::Nothing,
        ..case(name, control, fault)
    }
}

fn behind(before: Vec<Vec<u8>>, case: Case) -> Case {
    Case { before, ..case }
}

fn framing() -> Vec<Case> {
    vec![
        Case {
            damaged: true,
            ..unshown(
                "a wrong CRC",
                0x2002,
                write(NARROW, BASE + PLACES[2] as u64, 40),
            )
        },
        unshown("no bytes", 0x02ff, vec![]),
        unshown("one byte", 0x02ff, vec![TAGGED | LAST]),
        unshown(
            "13 bytes, tagged",
            0x02ff,
            write(NARROW, 0, 0)[..13].to_vec(),
        ),
        unshown(
            "17 bytes, untagged",
            0x02ff,
            send([0, 1, 0], 0)[..17].to_vec(),
        ),
    ]
}

fn tagged_segments(side: &Side) -> Vec<Case> {
    let (narrow, end) = (BASE + PLACES[2] as u64, BASE + (PLACES[2] + SMALL) as u64);
    let (bare, foreign) = (BASE + PLACES[0] as u64, BASE + PLACES[1] as u64);
    let of = |ddp, rdmap| tagged(ddp, rdmap, NARROW, narrow, &[0xee; 8]);
    vec![
        case("DDP version 0, tagged", 0x1104, of(0xc0, WRITE)),
        case("DDP version 2, tagged", 0x1104, of(0xc2, WRITE)),
        case("DDP version 3, tagged", 0x1104, of(0xc3, WRITE)),
        case("RDMAP version 0, tagged", 0x0205, of(0xc1, 0x00)),
        case("RDMAP version 2, tagged", 0x0205, of(0xc1, 0x80)),
        case("RDMAP version 3, tagged", 0x0205, of(0xc1, 0xc0)),
        case("a Read Request, tagged", 0x0206, of(0xc1, READ_REQUEST)),
        case("a Send, tagged", 0x0206, of(0xc1, SEND)),
        case("a Terminate, tagged", 0x0206, of(0xc1, TERMINATE)),
        case("a reserved opcode, tagged", 0x0206, of(0xc1, 0x4f)),
        case("STag 0", 0x1100, write(0, narrow, 8)),
        case("nobody's STag", 0x1100, write(UNKNOWN, narrow, 8)),
        case("a wrong key", 0x1100, write(side.stag.0 ^ 1, narrow, 8)),
        case("another domain's STag", 0x1102, write(FOREIGN, foreign, 8)),
        case("no right to write", 0x0102, write(BARE, bare, 8)),
        case("one byte before", 0x1101, write(NARROW, narrow - 1, 8)),
        case("one byte behind", 0x1101, write(NARROW, end - 7, 8)),
        case("TO 0", 0x1101, write(NARROW, 0, 8)),
        case("a TO that wraps", 0x1103, write(NARROW, u64::MAX - 6, 8)),
        case(
            "the longest ULPDU",
            0x1101,
            write(NARROW, narrow, 65535 - 14),
        ),
        case(
            "the last TO that is one",
            0x1101,
            write(NARROW, u64::MAX - 8, 8),
        ),
        behind(
            vec![tagged(TAGGED, WRITE, NARROW, end - 8, &[0; 8])],
            case(
                "the second segment of a Write beyond the end",
                0x1101,
                write(NARROW, end, 1),
            ),
        ),
    ]
}

fn untagged_segments() -> Vec<Case> {
    let of = |ddp, rdmap| untagged(ddp, rdmap, [0, 1, 0], &[0x5e; 8]);
    let part = |rdmap| untagged(UNTAGGED, rdmap, [0, 1, 0], &[0; 8]);
    let last = |rdmap, mo| untagged(0x41, rdmap, [0, 1, mo], &[0x5e; 8]);
    let on = |qn, rdmap| untagged(0x41, rdmap, [qn, 1, 0], &[0x5e; 8]);
    let invalidate = |stag| invalidating(0x41, SEND_INVALIDATE, stag, [0, 1, 0], &[]);
    vec![
        case("DDP version 0, untagged", 0x1206, of(0x40, SEND)),
        case("DDP version 2, untagged", 0x1206, of(0x42, SEND)),
        case("DDP version 3, untagged", 0x1206, of(0x43, SEND)),
        case("RDMAP version 0, untagged", 0x0205, of(0x41, 0x03)),
        case("RDMAP version 2, untagged", 0x0205, of(0x41, 0x83)),
        case("RDMAP version 3, untagged", 0x0205, of(0x41, 0xc3)),
        case("a Write, untagged", 0x0206, of(0x41, WRITE)),
        case("a Read Response, untagged", 0x0206, of(0x41, READ_RESPONSE)),
        case("a reserved opcode, untagged", 0x0206, of(0x41, 0x4f)),
        case("a Read Request on queue 0", 0x0206, of(0x41, READ_REQUEST)),
        case("a Terminate on queue 0", 0x0206, of(0x41, TERMINATE)),
        case("a Send on queue 1", 0x0206, on(1, SEND)),
        case("a Send on queue 2", 0x0206, on(2, SEND)),
        case("queue 4", 0x1201, on(4, SEND)),
        case("the last queue", 0x1201, on(u32::MAX, SEND)),
        case("MSN 0", 0x1203, send([0, 0, 0], 8)),
        case("MSN 2 before 1", 0x1203, send([0, 2, 0], 8)),
        case("the last MSN", 0x1203, send([0, u32::MAX, 0], 8)),
        case(
            "MSN 2 on queue 1",
            0x1203,
            untagged(0x41, READ_REQUEST, [1, 2, 0], &[0; 28]),
        ),
        case(
            "MSN 2 on queue 2",
            0x1203,
            untagged(0x41, TERMINATE, [2, 2, 0], &[0; 4]),
        ),
        case("MO 1 first", 0x1204, send([0, 1, 1], 8)),
        case("the last MO", 0x1204, send([0, 1, u32::MAX], 8)),
        case(
            "MO 1 on queue 1",
            0x1204,
            untagged(0x41, READ_REQUEST, [1, 1, 1], &[0; 28]),
        ),
        behind(
            vec![part(SEND)],
            case("an MO that leaves a gap", 0x1204, last(SEND, 9)),
        ),
        behind(
            vec![part(SEND)],
            case("an MO that goes back", 0x1204, last(SEND, 7)),
        ),
        behind(
            vec![part(SEND)],
            case(
                "another opcode within a message",
                0x0206,
                last(SEND_SOLICITED, 8),
            ),
        ),
        behind(
            vec![part(SEND)],
            case(
                "a message before the last has ended",
                0x1203,
                send([0, 2, 0], 8),
            ),
        ),
        case(
            "the longest segment of a Send",
            0x1205,
            send([0, 1, 0], 65535 - 18),
        ),
        case(
            "a Send one byte too long",
            0x1205,
            send([0, 1, 0], RECEIVE.1 + 1),
        ),
        behind(
            vec![part(SEND)],
            case(
                "a Send too long in its second segment",
                0x1205,
                send([0, 1, 8], RECEIVE.1 - 7),
            ),
        ),
        behind(
            vec![send([0, 1, 0], 8)],
            case("a Send without a receive", 0x1202, send([0, 2, 0], 8)),
        ),
        case("nobody's STag to invalidate", 0x0109, invalidate(UNKNOWN)),
        case(
            "an STag of several streams to invalidate",
            0x0109,
            invalidate(NARROW),
        ),
        case(
            "another domain's STag to invalidate",
            0x0109,
            invalidate(FOREIGN),
        ),
        case(
            "a Terminate without its control word",
            0x02ff,
            untagged(0x41, TERMINATE, [2, 1, 0], &[0; 3]),
        ),
        case(
            "a Terminate in segments",
            0x02ff,
            untagged(0x01, TERMINATE, [2, 1, 0], &[0; 4]),
        ),
    ]
}

fn read_requests(side: &Side) -> Vec<Case> {
    let (narrow, end) = (BASE + PLACES[2] as u64, BASE + (PLACES[2] + SMALL) as u64);
    let refused = |name, control, size, source| Case {
        shown: Shown::HeaderAndRead,
        ..case(name, control, read(1, size, source))
    };
    let header = read_header((1, 2), 8, (NARROW, narrow));
    let flood = (1..=u32::from(IRD)).map(|msn| read(msn, 8, (NARROW, narrow)));
    vec![
        refused("a Read of nobody's STag", 0x0100, 8, (UNKNOWN, narrow)),
        refused(
            "a Read with a wrong key",
            0x0100,
            8,
            (side.stag.0 ^ 1, narrow),
        ),
        refused("a Read from before", 0x0101, 8, (NARROW, narrow - 1)),
        refused("a Read beyond the end", 0x0101, 8, (NARROW, end - 7)),
        refused(
            "a Read of 2^32 - 1 bytes",
            0x0101,
            u32::MAX,
            (NARROW, narrow),
        ),
        refused(
            "a Read without the right",
            0x0102,
            8,
            (BARE, BASE + PLACES[0] as u64),
        ),
        refused(
            "a Read of another domain",
            0x0103,
            8,
            (FOREIGN, BASE + PLACES[1] as u64),
        ),
        refused("a Read that wraps", 0x0104, 8, (NARROW, u64::MAX - 6)),
        behind(
            flood.collect(),
            case("one Read too many", 0x1202, read(5, 8, (NARROW, narrow))),
        ),
        case(
            "a Read Request too long",
            0x1205,
            untagged(0x41, READ_REQUEST, [1, 1, 0], &[&header[..], &[0]].concat()),
        ),
        case(
            "a Read Request too short",
            0x02ff,
            untagged(0x41, READ_REQUEST, [1, 1, 0], &header[..27]),
        ),
        case(
            "a Read Request in segments",
            0x02ff,
            untagged(0x01, READ_REQUEST, [1, 1, 0], &header),
        ),
    ]
}

fn read_responses(side: &Side) -> Vec<Case> {
    let (stag, sink) = (side.stag.0, BASE + SINK.0 as u64);
    let response = |ddp, stag, to, len| tagged(ddp, READ_RESPONSE, stag, to, &vec![0xee; len]);
    let asked = |name, control, fault| Case {
        reads: true,
        ..case(name, control, fault)
    };
    let unasked = response(0xc1, stag, sink, 8);
    let first = || vec![response(TAGGED, stag, sink, 60)];
    vec![
        case("an answer that nobody asked for", 0x0206, unasked),
        asked(
            "an answer to another STag",
            0x1100,
            response(0xc1, NARROW, sink, 100),
        ),
        asked(
            "an answer to another place",
            0x1101,
            response(0xc1, stag, sink + 1, 99),
        ),
        asked(
            "an answer too long",
            0x1101,
            response(0xc1, stag, sink, 101),
        ),
        asked(
            "an answer too short",
            0x1101,
            response(0xc1, stag, sink, 99),
        ),
        behind(
            first(),
            asked(
                "an answer that goes back",
                0x1101,
                response(0xc1, stag, sink, 40),
            ),
        ),
        behind(
            first(),
            asked(
                "an answer with a gap",
                0x1101,
                response(0xc1, stag, sink + 61, 39),
            ),
        ),
        behind(
            vec![response(0xc1, stag, sink, 100)],
            asked("a second answer", 0x0206, response(0xc1, stag, sink, 100)),
        ),
    ]
}
