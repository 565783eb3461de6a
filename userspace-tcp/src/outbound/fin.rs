//! Our FIN: a segment of its own behind the queue.

use crate::seq::Position;
use crate::time::Instant;

/// Whether a FIN is wanted, out, or acknowledged.
#[derive(Debug, Default)]
pub(crate) struct Fin {
    /// The layer above has closed.
    pub(crate) wanted: bool,
    /// It was sent more than once.
    pub(crate) retransmitted: bool,
    at: Option<Position>,
    sent_at: Instant,
    lost: bool,
    acknowledged: bool,
}

impl Fin {
    pub(crate) fn acknowledged(&self) -> bool {
        self.acknowledged
    }

    /// Whether it has to go out, once all octets are.
    pub(crate) fn due(&self) -> bool {
        self.wanted && !self.acknowledged && (self.at.is_none() || self.lost)
    }

    /// Goes out at `tail`, or again where it was.
    pub(super) fn sent(&mut self, tail: Position, now: Instant) -> Position {
        self.retransmitted |= self.at.is_some();
        self.lost = false;
        self.sent_at = now;
        *self.at.get_or_insert(tail)
    }

    pub(super) fn timed_out(&mut self) {
        self.lost = self.at.is_some();
    }

    /// Returns when it was sent if `ack` is the first to cover it.
    pub(super) fn acknowledge(&mut self, ack: Position) -> Option<Instant> {
        let at = self.at.filter(|&at| at < ack && !self.acknowledged)?;
        debug_assert!(at + 1 == ack, "nothing lies behind a FIN");
        self.acknowledged = true;
        Some(self.sent_at)
    }
}
