//! Our FIN, behind the queue: it goes with the last segment when that is sent, and by itself else. What
//! becomes of it is known apart from that segment.

use userspace_net::Instant;

use super::delivered::Arrived;
use crate::rack::Rack;
use crate::rate::Stamp;
use crate::seq::Position;

/// Whether a FIN is wanted, out, or acknowledged.
#[derive(Debug, Default)]
pub(crate) struct Fin {
    /// The layer above has closed.
    pub(crate) wanted: bool,
    /// It goes in a segment of its own.
    pub(crate) alone: bool,
    /// It goes when all before it is acknowledged.
    pub(crate) waits: bool,
    /// It was sent more than once.
    retransmitted: bool,
    at: Option<Position>,
    /// It goes with the last segment.
    rides: bool,
    pub(super) sent_at: Instant,
    lost: bool,
    sacked: bool,
    acknowledged: bool,
}

impl Fin {
    pub(crate) fn acknowledged(&self) -> bool {
        self.acknowledged
    }

    /// Whether it has to go out, once all bytes are. `outstanding`: some of those are not acknowledged.
    pub(crate) fn due_behind(&self, outstanding: bool) -> bool {
        self.due() && !(self.waits && self.at.is_none() && outstanding)
    }

    /// Whether it has to go out, once all bytes are, or sooner or later.
    pub(crate) fn due(&self) -> bool {
        self.wanted && !self.acknowledged && (self.at.is_none() || self.lost)
    }

    /// Whether it goes with the last segment, now that this is sent: it never went before, or went so, and
    /// the peer is not known to have it.
    pub(crate) fn may_ride(&self) -> bool {
        let together = self.at.is_none() || self.rides;
        self.wanted && !self.alone && together && !self.acknowledged && !self.sacked
    }

    /// It went with the last segment.
    pub(super) fn rides(&self) -> bool {
        self.rides
    }

    /// It goes with the last segment.
    pub(super) fn ride(&mut self) {
        self.rides = true;
    }

    /// Where it is, once it was sent.
    pub(super) fn at(&self) -> Option<Position> {
        self.at
    }

    /// Goes out at `tail`, or again where it was.
    pub(super) fn sent(&mut self, tail: Position, now: Instant) -> Position {
        self.retransmitted |= self.at.is_some();
        self.lost = false;
        self.sent_at = now;
        *self.at.get_or_insert(tail)
    }

    /// To be sent again, unless the peer has it.
    pub(super) fn lose(&mut self) {
        self.lost = self.at.is_some() && !self.sacked && !self.acknowledged;
    }

    /// The peer has taken its word back.
    pub(super) fn forget_sack(&mut self) {
        self.sacked = false;
    }

    /// A SACK block covers it; whether that is news.
    pub(super) fn sack(&mut self) -> bool {
        self.lost = false;
        !std::mem::replace(&mut self.sacked, true)
    }

    /// RFC 8985 section 6.2, step 5. Returns when it will be lost, if that is not yet.
    pub(super) fn judge(&mut self, rack: &Rack, patience: u64, now: Instant) -> Option<Instant> {
        let at = self.at?;
        if self.lost || self.sacked || self.acknowledged || !rack.sent_after(self.sent_at, at + 1) {
            return None;
        }
        let due = self.sent_at.plus_nanos(patience);
        self.lost = due <= now;
        (!self.lost).then_some(due)
    }

    /// Returns whether `ack` is the first to say that it has arrived.
    pub(super) fn acknowledge(&mut self, ack: Position) -> bool {
        let covered = self.at.is_some_and(|at| at < ack) && !self.acknowledged;
        self.acknowledged |= covered;
        covered && !self.sacked
    }

    /// It has arrived, by an ACK or a SACK block up to `end`.
    pub(super) fn arrived(&self, end: Position) -> Arrived {
        Arrived {
            sent_at: self.sent_at,
            end,
            retransmitted: self.retransmitted,
            stamp: Stamp::default(),
        }
    }

    /// It was sent and is not acknowledged.
    pub(super) fn is_out(&self) -> bool {
        self.at.is_some() && !self.acknowledged
    }

    /// It is in flight after all.
    pub(super) fn forgive(&mut self) {
        self.lost = false;
    }

    /// Whether it is to be sent again.
    pub(super) fn is_lost(&self) -> bool {
        self.lost
    }
}
