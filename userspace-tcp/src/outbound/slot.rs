//! One segment of the send queue.

use crate::seq::Position;
use crate::time::Instant;

/// A segment and what became of it.
#[derive(Debug)]
pub(crate) struct Slot<B> {
    /// `None` while it is with the link.
    pub(crate) buf: Option<B>,
    /// Its first octet.
    pub(crate) start: Position,
    /// When it went out the last time.
    pub(crate) sent_at: Instant,
    pub(crate) len: u32,
    /// Folded partial checksum of the payload.
    pub(crate) sum: u16,
    pub(crate) state: SlotState,
    /// It went out at least once.
    pub(crate) transmitted: bool,
    pub(crate) retransmitted: bool,
}

impl<B> Slot<B> {
    /// Behind its last octet.
    pub(crate) fn end(&self) -> Position {
        self.start + u64::from(self.len)
    }
}

/// Where the sender believes a segment to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SlotState {
    /// Never sent.
    Queued,
    /// On its way.
    InFlight,
    /// Not on its way and not with the peer: to be sent again.
    Lost,
    /// With the peer, by its word, which it may take back.
    Sacked,
}
