//! One segment of the send queue.

use userspace_net::{Instant, checksum::PartialSum};

use crate::rate::Stamp;
use crate::seq::Position;

/// A segment and its state.
#[derive(Debug)]
pub(crate) struct Slot<B> {
    /// `None` while it is with the link.
    pub(super) buf: Option<B>,
    /// Its first byte.
    pub(super) start: Position,
    /// Segment.xmit_ts of RFC 8985: when it went out the last time.
    pub(super) sent_at: Instant,
    pub(super) len: u32,
    /// Neighbours in a [`super::list::List`]; at its ends the segment itself.
    pub(super) previous: u32,
    /// Of a sacked segment: those from here to before this one are all sacked.
    pub(super) next: u32,
    /// Folded partial checksum of the payload.
    pub(super) sum: u16,
    pub(super) state: SlotState,
    /// The buffer holds the header of a transmission.
    pub(super) transmitted: bool,
    /// Sent more than once.
    pub(super) retransmitted: bool,
    /// Lost because of its size.
    pub(super) excused: bool,
    /// Of its latest transmission.
    pub(super) stamp: Stamp,
}

impl<B> Slot<B> {
    /// A segment that was never sent.
    #[inline]
    pub(super) fn new(start: Position, len: u32, sum: PartialSum, buf: Option<B>) -> Self {
        Self {
            buf,
            start,
            sent_at: Instant::ZERO,
            len,
            previous: 0,
            next: 0,
            sum: sum.folded(),
            state: SlotState::Queued,
            transmitted: false,
            retransmitted: false,
            excused: false,
            stamp: Stamp::default(),
        }
    }

    /// Behind its last byte.
    pub(super) fn end(&self) -> Position {
        self.start + u64::from(self.len)
    }

    /// It goes out: its buffer, which is here.
    #[inline]
    pub(super) fn depart(&mut self, now: Instant) -> Option<B> {
        let buf = self.buf.take()?;
        self.state = SlotState::InFlight;
        self.sent_at = now;
        Some(buf)
    }
}

/// Where the sender believes a segment to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SlotState {
    /// Never sent.
    Queued,
    /// On its way.
    InFlight,
    /// Not on its way and not with the peer: to be sent again.
    Lost,
    /// With the peer, by its word, which it may take back.
    Sacked,
}
