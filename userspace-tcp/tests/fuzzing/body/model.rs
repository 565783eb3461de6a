//! What a careful layer above and a careful peer know about one connection, to check what the stack
//! says and sends.

use std::collections::HashMap;

use userspace_tcp::{Received, Segment, SegmentId, SeqNum, TcpHeader};

use super::seen::Seen;

#[derive(Debug, Default)]
pub struct Model {
    /// Our initial sequence number, once a SYN of ours was seen.
    pub iss: Option<SeqNum>,
    pub irs: SeqNum,
    /// One past the end of what the peer has sent, counted from its first byte.
    pub peer_sent: u64,
    pub in_order: u64,
    pub consumed: u64,
    /// The peer has sent a FIN, or something that no peer sends.
    pub odd: bool,
    /// The highest acknowledgment that the peer has given.
    pub acked: u32,
    /// One past the greatest sequence number that we have sent.
    pub sent_to: u32,
    /// TSval of the last segment that we sent.
    pub our_timestamp: Option<u32>,
    pub peer_timestamp: u32,
    /// The shift of our windows behind the SYN.
    pub shift: u8,
    /// Payload of the peer's largest segment as it announces it.
    pub peer_mss: Option<u16>,
    /// What each segment of the send queue was when it went out the first time.
    segments: HashMap<SegmentId, Posted>,
    /// Our FIN went out.
    fin_sent: bool,
    /// The congestion control is DCTCP.
    pub dctcp: bool,
    /// What we have acknowledged, counted from the peer's first byte.
    acked_to: i64,
    /// The right edge of the receive window, counted from the peer's first byte.
    edge: i64,
    seen: Seen,
}

/// A segment of the send queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Posted {
    seq: SeqNum,
    len: u32,
    /// One of its transmissions has come through the path.
    arrived: bool,
}

impl Posted {
    fn end(&self) -> SeqNum {
        self.seq.add(self.len)
    }
}

impl Model {
    /// The sequence number of a byte of the peer.
    pub fn peer_seq(&self, offset: u64) -> u32 {
        self.irs.0.wrapping_add(1).wrapping_add(offset as u32)
    }

    /// Where our segments that are out begin and end, in order.
    pub fn starts(&self) -> Vec<(u32, u32)> {
        let segments = self.unacknowledged().into_iter();
        segments
            .map(|segment| (segment.seq.0, segment.end().0))
            .collect()
    }

    fn unacknowledged(&self) -> Vec<Posted> {
        let ahead = |seq: SeqNum| seq.0.wrapping_sub(self.acked).cast_signed();
        let mut all: Vec<_> = self.segments.values().copied().collect();
        // A peer may acknowledge a part of one.
        all.retain(|segment| ahead(segment.end()) > 0);
        all.sort_by_key(|segment| ahead(segment.seq));
        all
    }

    /// What a sound peer acknowledges: all that has arrived, without a hole.
    pub fn arrived_to(&self) -> u32 {
        let mut to = self.acked;
        for segment in self.unacknowledged() {
            if segment.seq.0.wrapping_sub(to).cast_signed() > 0 || !segment.arrived {
                return to;
            }
            to = segment.end().0;
        }
        // Neither SYN nor FIN is too large for any path.
        let opens = self.iss.is_some_and(|iss| iss.0 == to);
        let closes = self.fin_sent && to.wrapping_add(1) == self.sent_to;
        to.wrapping_add(u32::from(opens || closes))
    }

    /// Whether `seq` is a number that was used.
    pub fn was_sent(&self, seq: SeqNum) -> bool {
        let first = self.iss.map_or(self.sent_to, |iss| iss.0);
        seq.0.wrapping_sub(first) < self.sent_to.wrapping_sub(first)
    }

    /// Whether everything that was sent is acknowledged.
    pub fn all_acked(&self) -> bool {
        self.acked == self.sent_to
    }

    pub fn take(&mut self, received: &Received, segment: &Segment<'_>, window: u64) {
        let syn = u32::from(segment.header.flags.syn());
        for range in received.new.iter() {
            assert!(range.len > 0, "an empty range");
            let end = range.skip as usize + range.len as usize;
            assert!(end <= segment.payload.len(), "bytes that are not there");
            let seq = segment.header.seq.0.wrapping_add(syn + range.skip);
            assert_eq!(seq, self.peer_seq(range.offset), "at another place");
            let last = range.offset + u64::from(range.len);
            assert!(last <= self.consumed + window, "outside of the window");
            self.seen.add(range.offset, last);
        }
        assert!(received.in_order_to >= self.in_order, "went back");
        self.in_order = received.in_order_to;
        assert_eq!(self.in_order, self.seen.first_gap());
    }

    /// A segment of the connection goes out, and comes through the path or not.
    pub fn sent(&mut self, header: &TcpHeader, payload: Option<(SegmentId, u32)>, arrives: bool) {
        let flags = header.flags;
        if flags.syn() {
            assert!(self.iss.is_none_or(|iss| iss == header.seq), "another ISS");
            if self.iss.is_none() {
                self.sent_to = header.seq.0.wrapping_add(1);
                self.acked = header.seq.0;
            }
            self.iss = Some(header.seq);
        }
        if let Some(timestamps) = header.options.timestamps {
            self.our_timestamp = Some(timestamps.value);
        }
        let len = payload.map_or(0, |(_, len)| len);
        let end = header
            .seq
            .0
            .wrapping_add(len)
            .wrapping_add(u32::from(flags.fin()));
        if !flags.syn() && end.wrapping_sub(self.sent_to).cast_signed() > 0 {
            assert!(
                len > 0 || flags.fin(),
                "sequence numbers that were never used"
            );
            self.sent_to = end;
        }
        self.fin_sent |= flags.fin();
        if let Some((id, len)) = payload {
            let fresh = Posted {
                seq: header.seq,
                len,
                arrived: false,
            };
            let posted = self.segments.entry(id).or_insert(fresh);
            let same = (posted.seq, posted.len) == (header.seq, len);
            assert!(same, "a segment was cut again");
            posted.arrived |= arrives;
        }
        if flags.ack() && !flags.rst() {
            self.check_window(header);
        }
    }

    /// What was acknowledged is forgotten.
    pub fn forget_acked(&mut self) {
        let una = self.acked;
        self.segments
            .retain(|_, segment| segment.end().0.wrapping_sub(una).cast_signed() > 0);
    }

    fn check_window(&mut self, header: &TcpHeader) {
        let shift = if header.flags.syn() { 0 } else { self.shift };
        let ahead = header.ack.0.wrapping_sub(self.peer_seq(self.in_order));
        let position = self.in_order.cast_signed() + i64::from(ahead.cast_signed());
        // The FIN takes a sequence number after the bytes. DCTCP acknowledges what came before
        // a mark by itself (RFC 8257 section 3.2).
        let least = if self.dctcp {
            self.acked_to
        } else {
            self.in_order.cast_signed()
        };
        let most = self.in_order.cast_signed() + 1;
        assert!(
            (least..=most).contains(&position),
            "acknowledges {position}, in order is {}",
            self.in_order
        );
        self.acked_to = position;
        let edge = position + (i64::from(header.window) << shift);
        // A window is rounded down to what the field can say.
        let slack = (1 << shift) - 1;
        assert!(edge + slack >= self.edge, "the window shrinks");
        self.edge = self.edge.max(edge);
    }
}
