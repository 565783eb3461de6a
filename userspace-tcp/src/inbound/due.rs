//! When an acknowledgment is due (RFC 9293 section 3.8.6.3, RFC 5681 section 4.2): for more than one
//! full segment, at the latest after its delay, and at once where the peer learns something from it.
//!
//! The rule asks for one for at least every second full segment. But a message ends with a segment
//! that is not full: a sender that waits for the last two takes the delay for a loss, because it
//! allows for one only while a single segment is out (RFC 8985 section 7.2).

use std::time::Duration;

use super::Text;
use crate::time::Instant;

/// In-order segments of any size after which an acknowledgment goes out at once: a sender whose
/// queue counts segments must not wait for a delayed acknowledgment when they are small.
const ACK_EVERY_SEGMENTS: u32 = 8;

/// What counts as a full segment before a longer one was seen (the default MSS of RFC 9293).
const FULL_SEGMENT_MIN: u32 = 536;

/// The next acknowledgment.
#[derive(Debug)]
pub(super) struct AckDue {
    when: When,
    /// The peer's full segment, as far as it was seen.
    full_segment: u32,
    octets: u32,
    segments: u32,
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
            octets: 0,
            segments: 0,
        }
    }
}

impl AckDue {
    /// Octets came in order; the acknowledgment may wait for `delay`.
    pub(super) fn in_order(&mut self, now: Instant, text: &Text, delay: Duration) {
        self.full_segment = self.full_segment.max(text.longest);
        self.octets = self.octets.saturating_add(text.len);
        self.segments = self.segments.saturating_add(text.segments);
        let many = self.segments >= ACK_EVERY_SEGMENTS;
        if many || self.octets > self.full_segment {
            self.when = When::Now;
        } else if self.when == When::Never {
            self.when = When::At(now + delay);
        }
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
        self.octets = 0;
        self.segments = 0;
    }
}
