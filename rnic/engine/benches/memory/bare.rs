//! What a receiver can't do without, out of frames and into memory of the same size as the engine's. That is the CRC of
//! each FPDU, and its copy. And what a receiver must do whose checksums nobody else has verified.

use std::hint::black_box;
use std::time::Instant;

use rnic_proto::crc::{RESIDUE, crc_of};
use rnic_xsk::{ChunkSize, Umem};

use crate::options::{Options, SPAN, Until};

/// Frames that are under way at a time.
const FRAMES: u32 = 256;
/// Bytes of headers ahead of a payload.
const HEADERS: usize = 70;

/// CRC and copy.
pub fn run(options: &Options) {
    work("bare", options, |bytes| {
        black_box(crc_of([bytes]).value());
        true
    });
}

/// TCP's checksum and the CRC, in one pass, and only when both are right (RFC 9293 section 3.1, RFC 5044
/// section 6) the copy.
pub fn run_verified(options: &Options) {
    let mut bytes = vec![0x5a; options.bytes];
    end_with_crc(&mut bytes);
    let sum = rnic_crc::sum(&bytes);
    work("verified", options, |bytes| {
        let checks = rnic_crc::check(0, bytes);
        (checks.crc, checks.sum) == (RESIDUE, sum)
    });
}

/// The last bytes become the CRC of the others, as an FPDU's do.
fn end_with_crc(bytes: &mut [u8]) {
    if let Some((bytes, crc)) = bytes.split_last_chunk_mut() {
        *crc = crc_of([&*bytes]).bytes();
    }
}

/// Has the bytes in each frame looked at, and copies those that are sound: all.
fn work(case: &str, options: &Options, is_verified: impl Fn(&[u8]) -> bool) {
    let chunk = ChunkSize::for_mtu(options.mtu).unwrap();
    let (umem, mut pool) = Umem::heap(FRAMES, chunk);
    let mut frames: Vec<_> = std::iter::from_fn(|| pool.alloc()).collect();
    for frame in &mut frames {
        let bytes = umem.bytes_mut(frame);
        bytes.fill(0x5a);
        end_with_crc(&mut bytes[HEADERS..HEADERS + options.bytes]);
    }
    let len = options.bytes;
    // Written once, so that all of its pages are there.
    let mut memory = vec![0x5a_u8; SPAN];
    let start = Instant::now();
    let (mut done, mut at) = (0_u64, 0);
    let over = |done: u64| match options.until {
        Until::Lasted(time) => start.elapsed() >= time,
        Until::Done(count) => done >= count,
    };
    while !over(done) {
        for frame in &mut frames {
            let bytes = umem.bytes_mut(frame);
            let payload = &bytes[HEADERS..HEADERS + len];
            assert!(is_verified(payload));
            if at + len > memory.len() {
                at = 0;
            }
            memory[at..at + len].copy_from_slice(payload);
            at += len;
            done += 1;
        }
        black_box(&mut memory);
    }
    let nanoseconds = start.elapsed().as_nanos();
    println!(
        "{{\"case\":\"{case}\",\"bytes\":{},\"messages\":{done},\"nanoseconds\":{nanoseconds}}}",
        done * len as u64,
    );
}
