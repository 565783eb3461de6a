//! FPDUs as the input wants them: near to what a sound peer would send, with right CRCs and Markers,
//! so that they get deep.

use rnic_proto::mpa::fpdu::{self, Layout};
use rnic_proto::mpa::marker::Markers;

use super::grants::{BASES, OTHER_STAGS, STAGS, WINDOW};
use super::input::Input;

/// Where the next messages of each queue are.
#[derive(Default)]
pub struct Numbers {
    /// Messages of QN 0 to 3 that are complete.
    complete: [u32; 4],
    /// The offset after all segments of the message under way.
    offset: [u32; 4],
}

/// A ULPDU in its FPDU, whose first byte is number `at` of the stream.
pub fn fpdu(ulpdu: &[u8], markers: Markers, at: u64, crc: bool) -> Vec<u8> {
    // Every FPDU is a multiple of four bytes long; what is behind raw bytes is lost anyway.
    let layout = Layout::new(markers, at & !3, ulpdu.len());
    let mut out = vec![0; layout.len()];
    let mut rest = ulpdu;
    for span in layout.ulpdu(0, ulpdu.len()) {
        let (now, later) = rest.split_at(span.len());
        out[span].copy_from_slice(now);
        rest = later;
    }
    fpdu::finish(&mut out, &layout, crc);
    out
}

/// A ULPDU that is a message of RDMAP, or nearly.
pub fn ulpdu(input: &mut Input<'_>, numbers: &mut Numbers) -> Vec<u8> {
    // RFC 5040 Figure 3: Write, Read Request, Read Response, the Sends, Terminate; RFC 7306: Immediate
    // Data, Atomic Request and Response; and others.
    let opcode = input.pick(&[
        0, 0, 0, 1, 1, 2, 2, 2, 3, 3, 3, 4, 5, 6, 7, 8, 10, 15, 9, 10, 10, 11, 11, 12,
    ]);
    let version = if input.one_in(64) {
        input.byte() & 0xc0
    } else {
        0x40
    };
    let ddp = if input.one_in(64) {
        input.byte() & 3
    } else {
        1
    };
    let last = !input.one_in(4);
    let tagged = matches!(opcode, 0 | 2) != input.one_in(64);
    let flags = u8::from(tagged) << 7 | u8::from(last) << 6 | ddp;
    let mut out = vec![flags, version | opcode];
    if tagged {
        out.extend_from_slice(&stag(input).to_be_bytes());
        out.extend_from_slice(&offset(input).to_be_bytes());
        let len = length(input);
        out.resize(out.len() + len, 0xa5);
        return out;
    }
    let queue = match opcode {
        1 | 10 => 1,
        7 => 2,
        11 => 3,
        _ => 0,
    };
    // The word of the ULP: the STag that a Send invalidates.
    out.extend_from_slice(&stag(input).to_be_bytes());
    let qn = if input.one_in(64) {
        input.byte().into()
    } else {
        queue
    };
    let number = numbers.complete[queue as usize].wrapping_add(1);
    let from = numbers.offset[queue as usize];
    for word in [qn, input.near(number), input.near(from)] {
        out.extend_from_slice(&word.to_be_bytes());
    }
    let before = out.len();
    match opcode {
        1 => {
            out.extend_from_slice(&stag(input).to_be_bytes());
            out.extend_from_slice(&offset(input).to_be_bytes());
            out.extend_from_slice(&(length(input) as u32).to_be_bytes());
            out.extend_from_slice(&stag(input).to_be_bytes());
            out.extend_from_slice(&offset(input).to_be_bytes());
        }
        7 => out.extend_from_slice(input.take(32)),
        8 | 9 => out.extend_from_slice(&few(input).to_be_bytes()),
        10 => atomic_request(input, &mut out),
        11 => {
            let identifier = input.near(number);
            out.extend_from_slice(&identifier.to_be_bytes());
            out.extend_from_slice(&few(input).to_be_bytes());
        }
        _ => out.resize(out.len() + length(input), 0x5a),
    }
    if input.one_in(32) {
        out.extend_from_slice(input.take(8));
    }
    let numbers_of = queue as usize;
    if last {
        numbers.complete[numbers_of] = number;
        numbers.offset[numbers_of] = 0;
    } else {
        numbers.offset[numbers_of] = from.wrapping_add((out.len() - before) as u32);
    }
    out
}

/// RFC 7306 section 5.2.1.
fn atomic_request(input: &mut Input<'_>, out: &mut Vec<u8>) {
    // FetchAdd, CmpSwap, and what is reserved.
    let code: u32 = input.pick(&[0, 0, 0, 2, 2, 2, 1, 15]);
    let (stag, to) = match input.byte() % 4 {
        0 => (stag(input), offset(input)),
        region => {
            let region = if region == 3 { 0 } else { 5 };
            // So that it is aligned, mostly: the region begins between two words.
            let skip = if region == 5 { 5 } else { 0 };
            let words = u64::from(input.short() % 499);
            let off = if input.one_in(16) { 1 } else { 0 };
            (STAGS[region], BASES[region] + skip + 8 * words + off)
        }
    };
    for word in [code, input.word(), stag] {
        out.extend_from_slice(&word.to_be_bytes());
    }
    for long in [to, few(input), few(input), few(input), few(input)] {
        out.extend_from_slice(&long.to_be_bytes());
    }
}

/// 64 bits of few bytes of input.
fn few(input: &mut Input<'_>) -> u64 {
    match input.byte() % 4 {
        0 => 0,
        1 => u64::MAX,
        2 => u64::from(input.byte()) * 0x0101_0101_0101_0101,
        _ => u64::from(input.word()),
    }
}

fn stag(input: &mut Input<'_>) -> u32 {
    match input.byte() % 16 {
        0..=7 => STAGS[0],
        8..=10 => STAGS[1],
        11 | 12 => input.pick(&STAGS),
        13 => WINDOW,
        14 => input.pick(&OTHER_STAGS),
        _ => input.word(),
    }
}

fn offset(input: &mut Input<'_>) -> u64 {
    let base = input.pick(&BASES);
    match input.byte() % 8 {
        0..=3 => base + u64::from(input.short() % 4000),
        4 => base + 4000 - u64::from(input.byte()),
        5 => base.wrapping_sub(u64::from(input.byte())),
        6 => u64::MAX - u64::from(input.byte()),
        _ => u64::from(input.word()) << 32 | u64::from(input.word()),
    }
}

fn length(input: &mut Input<'_>) -> usize {
    match input.byte() % 8 {
        0 => 0,
        1..=4 => usize::from(input.byte()),
        5 | 6 => usize::from(input.short() % 1400),
        _ => usize::from(input.short() % 9000),
    }
}
