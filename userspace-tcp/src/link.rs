//! What segments go out to ([`crate::Stack::transmit`]).
//!
//! Nearly every segment with data goes out in a burst: segments of one connection that were never sent
//! before, one behind the other. What all of a burst say alike is given once, and no segment is more than
//! what it differs in. All others are given whole.

use userspace_net::{Ecn, FourTuple, checksum::PartialSum};

use crate::interface::{ConnId, Payload, SegmentId, Transmit};
use crate::options::{Options, Timestamps};
use crate::segment::{Flags, TcpHeader};
use crate::seq::SeqNum;

/// The link that segments go out to.
pub trait Link<B> {
    /// What all segments of the burst have in common, of which there is at least one. `local` is the
    /// source, `remote` the destination.
    fn begin(&mut self, tuple: &FourTuple, head: &BurstHead);

    /// A segment of the burst leaves. Its buffer is the link's until [`crate::Stack::transmitted`], or
    /// comes back at once when the link did not take it: to TCP it is as if it were lost on its way.
    fn put(&mut self, segment: BurstSegment<B>) -> Option<B>;

    /// Any other segment leaves: the only one of its call.
    fn send(&mut self, segment: Transmit<B>);
}

/// The next segment, by itself.
#[derive(Debug)]
pub(crate) struct One<B> {
    begun: Option<(FourTuple, BurstHead)>,
    pub(crate) segment: Option<Transmit<B>>,
}

impl<B> Default for One<B> {
    fn default() -> Self {
        Self {
            begun: None,
            segment: None,
        }
    }
}

impl<B> Link<B> for One<B> {
    fn begin(&mut self, tuple: &FourTuple, head: &BurstHead) {
        self.begun = Some((*tuple, *head));
    }

    fn put(&mut self, segment: BurstSegment<B>) -> Option<B> {
        let Some((tuple, head)) = &self.begun else {
            return Some(segment.buf);
        };
        self.segment = Some(segment.with(tuple, head));
        None
    }

    fn send(&mut self, segment: Transmit<B>) {
        self.segment = Some(segment);
    }
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
    /// Bytes of payload in it.
    pub len: u32,
    /// The checksum's partial sum over these bytes.
    pub sum: PartialSum,
    /// The first of them.
    pub seq: SeqNum,
    /// PSH is set: nothing is queued behind it.
    pub push: bool,
}

impl BurstHead {
    /// The header of a segment that begins at `seq`, with these flags more.
    pub(crate) fn header(&self, tuple: &FourTuple, seq: SeqNum, flags: Flags) -> TcpHeader {
        TcpHeader {
            source_port: tuple.local.port,
            destination_port: tuple.remote.port,
            seq,
            ack: self.ack,
            flags: self.flags | flags,
            window: self.window,
            urgent: 0,
            options: Options {
                timestamps: self.timestamps,
                ..Options::default()
            },
        }
    }
}

impl<B> BurstSegment<B> {
    /// The segment with all that it says.
    pub fn with(self, tuple: &FourTuple, head: &BurstHead) -> Transmit<B> {
        let push = if self.push {
            Flags::PSH
        } else {
            Flags::default()
        };
        Transmit {
            conn: Some(head.conn),
            tuple: *tuple,
            header: head.header(tuple, self.seq, push),
            payload: Some(Payload {
                id: self.id,
                buf: self.buf,
                len: self.len,
                sum: self.sum,
                retransmission: false,
                lost: None,
            }),
            ecn: head.ecn,
            fragment_to: None,
        }
    }
}
