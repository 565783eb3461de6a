//! How fast segments with bytes come, to all connections together: what decides whether an
//! acknowledgment that is due may wait for later segments. It is not asked by connection, because of many that
//! share a host's link none is fast by itself, and together they bring as many acknowledgments.

use userspace_net::Instant;

/// So many segments in a stretch or more are a fast stream: 3 Gbit/s of full Ethernet frames.
const STREAM: u32 = 8;

/// Such a stretch, in ticks of 2^10 nanoseconds.
const STREAM_TICKS: u32 = 30;
const TICK_BITS: u32 = 10;

/// How fast segments come.
#[derive(Debug, Default)]
pub(crate) struct Arrivals {
    /// The tick in which the present stretch began, and how many have come in it.
    since: u32,
    segments: u32,
    /// The stretch before it, if it was not long ago, was of a fast stream.
    is_fast: bool,
}

impl Arrivals {
    /// So many segments have come. Whether that is in a fast stream.
    #[inline]
    pub(crate) fn are_fast_with(&mut self, now: Instant, segments: u32) -> bool {
        // Truncated on purpose: the ticks wrap, after more than an hour.
        let now = (now.as_nanos() >> TICK_BITS) as u32;
        let age = now.wrapping_sub(self.since);
        if age >= STREAM_TICKS {
            // What comes in trains may leave out some stretches.
            self.is_fast = self.segments >= STREAM && age < 4 * STREAM_TICKS;
            (self.since, self.segments) = (now, 0);
        }
        self.segments = self.segments.saturating_add(segments);
        self.is_fast
    }
}
