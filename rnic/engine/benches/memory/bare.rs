//! The least that a receiver must do: the CRC of each payload, and its copy, out of frames and into
//! memory of the same size as the engine's.

use std::hint::black_box;
use std::time::Instant;

use rnic_proto::crc::crc_of;
use rnic_xsk::{ChunkSize, Umem};

use crate::options::{Options, Until};
use crate::side::MEMORY;

/// Frames that are under way at a time.
const FRAMES: u32 = 256;
/// Octets of headers ahead of a payload.
const HEADERS: usize = 70;

pub fn run(options: &Options) {
    let chunk = ChunkSize::for_mtu(options.mtu).unwrap();
    let (umem, mut pool) = Umem::heap(FRAMES, chunk);
    let mut frames: Vec<_> = std::iter::from_fn(|| pool.alloc()).collect();
    for frame in &mut frames {
        umem.bytes_mut(frame).fill(0x5a);
    }
    let len = options.octets;
    let mut memory = vec![0_u8; MEMORY];
    let start = Instant::now();
    let (mut done, mut at) = (0_u64, 0);
    let over = |done: u64| match options.until {
        Until::Lasted(time) => start.elapsed() >= time,
        Until::Done(count) => done >= count,
    };
    while !over(done) {
        for frame in &mut frames {
            let octets = umem.bytes_mut(frame);
            let payload = &octets[HEADERS..HEADERS + len];
            black_box(crc_of([payload]).value());
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
        "{{\"case\":\"bare\",\"octets\":{},\"messages\":{done},\"nanoseconds\":{nanoseconds}}}",
        done * len as u64,
    );
}
