//! How fast packets with data come, to all connections together: what decides whether an acknowledgment that is
//! due may wait for later packets. It is not asked by connection, because of many that share a host's link none is
//! fast by itself, and together they bring as many acknowledgments.

use std::time::Duration;

use crate::Instant;

/// How long an acknowledgment waits in a fast stream after it was due. That is at most a round trip between
/// neighbouring hosts, for which such a stream needs a larger window anyway.
pub const STRETCH: Duration = Duration::from_micros(30);

/// Packets for which it waits at most.
pub const STRETCH_PACKETS: u16 = 64;

/// So many packets in [`STREAM_TICKS`] or more are a fast stream: 3 Gbit/s of full Ethernet frames.
const STREAM: u32 = 8;

/// In ticks of 2^10 nanoseconds.
const STREAM_TICKS: u32 = 30;
const TICK_BITS: u32 = 10;

/// How fast packets come.
#[derive(Debug, Default)]
pub struct ArrivalRate {
    /// The tick in which the present count began, and how many have come since.
    since: u32,
    packets: u32,
    /// The count before it, if it was not long ago, was of a fast stream.
    is_fast: bool,
}

impl ArrivalRate {
    /// So many packets have come. Whether that is in a fast stream.
    #[inline]
    pub fn is_fast_with(&mut self, now: Instant, packets: u32) -> bool {
        // Truncated on purpose: the ticks wrap, after more than an hour.
        let now = (now.as_nanos() >> TICK_BITS) as u32;
        let age = now.wrapping_sub(self.since);
        if age >= STREAM_TICKS {
            // What comes in trains may leave out some counts.
            self.is_fast = self.packets >= STREAM && age < 4 * STREAM_TICKS;
            (self.since, self.packets) = (now, 0);
        }
        self.packets = self.packets.saturating_add(packets);
        self.is_fast
    }
}
