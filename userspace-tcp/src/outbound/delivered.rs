//! What one ACK says has arrived, gathered segment by segment.

use userspace_net::Instant;

use super::slot::Slot;
use crate::rate::Stamp;
use crate::seq::Position;

/// The segments that an ACK is the first to acknowledge, cumulatively or selectively. An original
/// is a segment that was sent only once.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Delivered {
    /// Sequence numbers newly acknowledged cumulatively.
    pub(crate) bytes: u64,
    /// Cumulatively: bytes of the largest segment.
    pub(crate) largest: u32,
    /// Something was newly acknowledged selectively.
    pub(crate) sacked: bool,
    /// Cumulatively: when the first of them was sent, that no earlier ACK has named.
    pub(super) first_sent: Option<Instant>,
    /// Cumulatively: when the latest retransmission was sent of them.
    pub(crate) resent_at: Option<Instant>,
    /// Selectively: when the first original was sent.
    pub(super) first_sacked: Option<Instant>,
    /// When the latest original was sent; zero: there is none.
    last_original: Instant,
    /// End of the lowest original; the greatest position if there is none.
    pub(crate) lowest_original: Position,
    /// The latest transmission that is known to have arrived: when it was sent, and its end;
    /// zero: there is none.
    newest: (Instant, Position),
    /// Its stamp.
    stamp: Stamp,
    /// Behind the highest of them.
    pub(crate) highest: Position,
    /// The peer has got these bytes more than once (RFC 2883).
    pub(crate) duplicate: Option<(Position, Position)>,
}

impl Default for Delivered {
    fn default() -> Self {
        Self {
            bytes: 0,
            largest: 0,
            sacked: false,
            first_sent: None,
            resent_at: None,
            first_sacked: None,
            last_original: Instant::ZERO,
            lowest_original: Position::MAX,
            newest: (Instant::ZERO, 0),
            stamp: Stamp::default(),
            highest: 0,
            duplicate: None,
        }
    }
}

/// A segment that has arrived, or our FIN.
pub(super) struct Arrived {
    pub(super) sent_at: Instant,
    pub(super) end: Position,
    pub(super) retransmitted: bool,
    pub(super) stamp: Stamp,
}

impl<B> From<&Slot<B>> for Arrived {
    fn from(slot: &Slot<B>) -> Self {
        Self {
            sent_at: slot.sent_at,
            end: slot.end(),
            retransmitted: slot.retransmitted,
            stamp: slot.stamp,
        }
    }
}

impl Delivered {
    /// Adds one. `answers` says whether this ACK can be the answer to a retransmission at a time
    /// (RFC 8985 section 6.2, step 2).
    #[inline]
    pub(super) fn add(&mut self, arrived: &Arrived, answers: &impl Fn(Instant) -> bool) {
        let Arrived {
            sent_at,
            end,
            stamp,
            ..
        } = *arrived;
        self.highest = self.highest.max(end);
        if !arrived.retransmitted {
            self.last_original = self.last_original.max(sent_at);
            self.lowest_original = self.lowest_original.min(end);
        } else if !answers(sent_at) {
            return;
        }
        if (sent_at, end) >= self.newest {
            self.newest = (sent_at, end);
            self.stamp = stamp;
        }
    }

    /// When the segment was sent whose round trip this ACK measures; `None` when that is ambiguous
    /// (Karn's algorithm, RFC 6298 section 3).
    pub(crate) fn sample(&self) -> Option<Instant> {
        self.first_sent
            .or(self.first_sacked)
            .filter(|_| self.resent_at.is_none())
    }

    /// When the latest original was sent: the round trip with the least waiting in it.
    pub(crate) fn last_original(&self) -> Option<Instant> {
        Some(self.last_original).filter(|at| *at > Instant::ZERO)
    }

    /// The latest transmission that is known to have arrived: when it was sent, and its end.
    pub(crate) fn newest(&self) -> Option<(Instant, Position)> {
        Some(self.newest).filter(|(_, end)| *end > 0)
    }

    /// When the latest transmission was sent that is known to have arrived, and its stamp.
    pub(crate) fn newest_stamp(&self) -> Option<(Instant, Stamp)> {
        self.newest().map(|(sent_at, _)| (sent_at, self.stamp))
    }

    /// An ACK of one original.
    #[cfg(test)]
    pub(crate) fn of_original(sent_at: Instant, end: Position, stamp: Stamp) -> Self {
        let mut delivered = Self::default();
        let arrived = Arrived {
            sent_at,
            end,
            retransmitted: false,
            stamp,
        };
        delivered.add(&arrived, &|_| true);
        delivered
    }
}
