//! A capture that a client asks for: which frames, and how they come to it.
//!
//! They come as a stream of records over a socket that goes one way. A record is [`RECORD_HEADER`]
//! bytes and then what was kept of the frame. The number of frames that were lost until then is in
//! each of them, and in the last one, which is of no frame. Numbers are little-endian.

use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};

#[cfg(test)]
mod tests;

/// Bytes of a record before its frame's.
pub const RECORD_HEADER: usize = 24;

/// The most bytes of a frame in a record: more than any interface's MTU.
pub const KEPT_MAX: usize = 1 << 16;

/// Set in the last field of a frame that was sent.
const OUTBOUND: u32 = 1 << 31;

/// Which frames to capture: those of which everything that is said here is true. With nothing said
/// it is every frame that the RNIC receives or sends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Filter {
    pub peer: Option<IpAddr>,
    /// The TCP port of either end.
    pub port: Option<u16>,
    /// Both ends of a connection, ours first.
    pub ends: Option<(SocketAddr, SocketAddr)>,
    /// Only what is received, or only what is sent.
    pub direction: Option<Direction>,
    /// The most bytes to keep of each frame; all without it.
    pub snap: Option<u32>,
}

/// A frame's direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Direction {
    /// Received.
    In,
    /// Sent.
    Out,
}

/// What a record says of its frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordHeader {
    /// When the frame was received or sent: nanoseconds since 1970-01-01 UTC.
    pub unix_ns: u64,
    /// Frames that were lost since the capture began, because whoever reads was too slow.
    pub lost: u64,
    /// Bytes of the frame; 0 in the last record, which is of no frame.
    pub original: u32,
    /// Bytes of it that follow.
    pub kept: u32,
    /// Whether it was received or sent.
    pub direction: Direction,
}

impl RecordHeader {
    /// The record behind all others.
    #[must_use]
    pub fn last(unix_ns: u64, lost: u64) -> Self {
        Self {
            unix_ns,
            lost,
            original: 0,
            kept: 0,
            direction: Direction::In,
        }
    }

    /// Whether no record follows.
    #[must_use]
    pub fn is_last(&self) -> bool {
        self.original == 0
    }

    /// As it is on the stream.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; RECORD_HEADER] {
        let outbound = match self.direction {
            Direction::In => 0,
            Direction::Out => OUTBOUND,
        };
        let mut bytes = [0; RECORD_HEADER];
        bytes[..8].copy_from_slice(&self.unix_ns.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.lost.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.original.to_le_bytes());
        bytes[20..].copy_from_slice(&(self.kept | outbound).to_le_bytes());
        bytes
    }

    /// What these bytes say; none when more than [`KEPT_MAX`] bytes would follow, or more than the
    /// frame has.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; RECORD_HEADER]) -> Option<Self> {
        let word = |at: usize| {
            let word = bytes.get(at..).and_then(|rest| rest.first_chunk::<4>());
            word.copied().map_or(0, u32::from_le_bytes)
        };
        let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
        let last = word(20);
        let header = Self {
            unix_ns: long(0),
            lost: long(8),
            original: word(16),
            kept: last & !OUTBOUND,
            direction: if last & OUTBOUND == 0 {
                Direction::In
            } else {
                Direction::Out
            },
        };
        let possible = header.kept <= header.original && header.kept as usize <= KEPT_MAX;
        possible.then_some(header)
    }
}
