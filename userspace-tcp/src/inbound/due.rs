//! When an acknowledgment is due (RFC 9293 section 3.8.6.3, RFC 5681 section 4.2): for more than one
//! full segment, at the latest after its delay, and at once where the peer learns something from it.
//!
//! The rule asks for one for at least every second full segment. But a message ends with a segment
//! that is not full. A sender that waits for the last two takes the delay for a loss, because it allows for a
//! delay only while a single segment is out (RFC 8985 section 7.2).
//!
//! In a fast stream ([`ArrivalRate`]) one that is due waits for further segments, some microseconds at most, as it
//! does wherever segments come many at a time. Else how many go would hang on how often somebody looks for segments,
//! and each is a packet that takes time from the sender, and from the receiver what answers it.
//!
//! [`ArrivalRate`]: userspace_net::arrival_rate::ArrivalRate

use std::time::Duration;

use userspace_net::{
    Instant,
    arrival_rate::{STRETCH, STRETCH_PACKETS},
};

use super::Text;

/// In-order segments of any size after which an acknowledgment goes out at once: a sender whose
/// queue counts segments must not wait for a delayed acknowledgment when they are small.
const ACK_EVERY_SEGMENTS: u16 = 8;

/// What counts as a full segment before a longer one was seen (the default MSS of RFC 9293).
const FULL_SEGMENT_MIN: u16 = 536;

/// The next acknowledgment.
#[derive(Debug)]
pub(super) struct AckDue {
    when: When,
    /// What it is of.
    bytes: u32,
    segments: u16,
    /// The peer's full segment, as far as it was seen.
    full_segment: u16,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum When {
    Never,
    At(Instant),
    Now,
}

impl Default for AckDue {
    fn default() -> Self {
        Self {
            when: When::Never,
            full_segment: FULL_SEGMENT_MIN,
            bytes: 0,
            segments: 0,
        }
    }
}

impl AckDue {
    /// Bytes came in order; the acknowledgment may wait for `delay`, and for no more than `most` bytes.
    pub(super) fn in_order(&mut self, now: Instant, text: &Text, delay: Duration, most: u32) {
        self.saw(text);
        let segments = short(text.segments);
        self.bytes = self.bytes.saturating_add(text.len);
        self.segments = self.segments.saturating_add(segments);
        let many = self.segments >= ACK_EVERY_SEGMENTS;
        if !many && self.bytes <= u32::from(self.full_segment) {
            self.wait_until(now + delay);
        } else if text.in_fast_stream && self.segments < STRETCH_PACKETS && self.bytes <= most {
            self.wait_until(now + STRETCH.min(delay));
        } else {
            self.when = When::Now;
        }
    }

    /// Bytes came in order, of which an acknowledgment has gone out.
    pub(super) fn saw(&mut self, text: &Text) {
        self.full_segment = self.full_segment.max(short(text.longest));
    }

    /// It may wait so long, unless it may not anyway.
    fn wait_until(&mut self, at: Instant) {
        self.when = match self.when {
            When::Never => When::At(at),
            When::At(before) => When::At(at.min(before)),
            When::Now => When::Now,
        };
    }

    pub(super) fn at_once(&mut self) {
        self.when = When::Now;
    }

    pub(super) fn is_now(&self) -> bool {
        self.when == When::Now
    }

    /// When a delayed one has waited long enough.
    pub(super) fn deadline(&self) -> Option<Instant> {
        match self.when {
            When::At(at) => Some(at),
            When::Never | When::Now => None,
        }
    }

    /// The one that may be delayed until then, if it still is, is due; says whether.
    pub(super) fn end_delay(&mut self, until: Instant) -> bool {
        let is_delayed = self.when == When::At(until);
        if is_delayed {
            self.when = When::Now;
        }
        is_delayed
    }

    pub(super) fn advance(&mut self, now: Instant) {
        if self.deadline().is_some_and(|at| at <= now) {
            self.when = When::Now;
        }
    }

    /// It has gone out.
    pub(super) fn sent(&mut self) {
        self.when = When::Never;
        self.bytes = 0;
        self.segments = 0;
    }
}

fn short(count: u32) -> u16 {
    u16::try_from(count).unwrap_or(u16::MAX)
}
