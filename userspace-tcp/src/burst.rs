//! A burst: segments of one connection that were never sent before, and leave one behind the other
//! ([`crate::Stack::poll_burst`]).
//!
//! Nearly every segment with payload goes out so. What all of a burst say alike is given once, and no
//! segment is more than what it differs in.

use crate::checksum::PartialSum;
use crate::ecn::Ecn;
use crate::interface::{ConnId, SegmentId};
use crate::options::Timestamps;
use crate::segment::Flags;
use crate::seq::SeqNum;
use crate::tuple::FourTuple;

/// The link that a burst goes out to.
pub trait BurstLink<B> {
    /// Whether it takes segments of this connection. Asked once, before any of them; when it says no,
    /// nothing has happened, and [`crate::Stack::poll_transmit`] gives what there is to send.
    fn takes(&mut self, conn: ConnId) -> bool;

    /// What all segments of the burst have in common, of which there is at least one. `local` is the
    /// source, `remote` the destination.
    fn begin(&mut self, tuple: &FourTuple, head: &BurstHead);

    /// A segment leaves. Its buffer is the link's until [`crate::Stack::transmitted`], or comes back at
    /// once when the link did not take it: to TCP it is as if it were lost on its way.
    fn put(&mut self, segment: BurstSegment<B>) -> Option<B>;
}

/// What all segments of a burst say. None of them has other options than timestamps, or is urgent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BurstHead {
    /// Whose.
    pub conn: ConnId,
    /// The next sequence number that is expected.
    pub ack: SeqNum,
    /// Control bits, but for PSH.
    pub flags: Flags,
    /// Window as on the wire.
    pub window: u16,
    /// The timestamps option.
    pub timestamps: Option<Timestamps>,
    /// The ECN field for the IP header.
    pub ecn: Ecn,
}

/// A segment of a burst.
#[derive(Debug)]
pub struct BurstSegment<B> {
    /// To give back with the buffer.
    pub id: SegmentId,
    /// The buffer.
    pub buf: B,
    /// Octets of payload in it.
    pub len: u32,
    /// The checksum's partial sum over these octets.
    pub sum: PartialSum,
    /// The first of them.
    pub seq: SeqNum,
    /// PSH is set: nothing is queued behind it.
    pub push: bool,
}
