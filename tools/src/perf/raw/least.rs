//! The least that a transport of RDMA Writes over TCP must do with frames, in loops as short as we know to write
//! them. A transport over the same sockets could reach that, however little it does besides.
//!
//! One Write of 1 MiB after the other, out of one application's memory into another's. Each segment has
//! all its headers and is one FPDU: Ethernet, IPv4, TCP with timestamps, MPA without Markers, DDP's
//! tagged header, the CRC. The sink compares headers, verifies the checksums and the CRC, and only then
//! places the bytes; it acknowledges them cumulatively. The source keeps each frame until that; when
//! one is missing it sends it and all behind it again (go-back-N).
//!
//! Left out is whatever a transport has beside: the beginning and the end of a connection, more than one
//! of them, work requests and completions, congestion control, round trips, SACK, more than one region.
//! The two ends know each other beforehand. That a run is over is said as in [`super::rate`].

mod kept;
mod receiver;
mod segment;
mod sender;

use std::time::{Duration, Instant};

pub use receiver::receive;
pub use sender::send;

/// Bytes of a message.
const MESSAGE: usize = 1 << 20;
/// Segments that are not acknowledged, at most: a receiver's rings have 512 places.
const WINDOW: usize = 384;
/// Segments after which an acknowledgment goes out.
const ACK_SEGMENTS: usize = 64;
/// How long it waits for them at the most once nothing more comes, as the RNIC's does in a fast stream.
const ACK_DELAY: Duration = Duration::from_micros(30);

/// A clock for TCP's timestamps, which ticks each millisecond (RFC 7323 section 5.4) and wraps.
fn ticks(since: Instant, now: Instant) -> u32 {
    now.duration_since(since).as_millis() as u32
}
