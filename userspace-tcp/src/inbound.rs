//! The receiving half of a connection: what has come (RFC 9293 section 3.10.7.4), the window
//! (section 3.8.6) and when to acknowledge (RFC 5681 section 4.2, RFC 2018).
//!
//! It keeps no octet, only which ones have come. The window's right edge never moves back.

#[cfg(test)]
mod tests;

use std::ops::Range;
use std::time::Duration;

use crate::config::Config;
use crate::interface::{NewRange, NewRanges};
use crate::options::{SACK_BLOCKS_MAX, SackBlock, SackBlocks};
use crate::pool::RangePool;
use crate::ranges::RangeSet;
use crate::seq::{Position, SeqNum, Space, StreamOffset};
use crate::time::Instant;

/// RFC 7323 section 2.3.
pub(crate) const WINDOW_SHIFT_MAX: u8 = 14;

/// RFC 7323 section 2.3: the window must stay below 2^30 octets.
const WINDOW_MAX: u32 = 1 << 30;

/// In-order segments of any size after which an acknowledgment goes out at once: a sender whose
/// queue counts segments must not wait for a delayed acknowledgment when they are small.
const ACK_EVERY_SEGMENTS: u32 = 8;

/// What counts as a full segment before a longer one was seen (the default MSS of RFC 9293).
const FULL_SEGMENT_MIN: u32 = 536;

/// When to acknowledge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ack {
    None,
    Delayed(Instant),
    Now,
}

/// What a segment's octets did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Accepted {
    pub(crate) new: NewRanges,
    /// The peer's FIN became the next thing in order.
    pub(crate) closed: bool,
    pub(crate) out_of_order: bool,
    /// Dropped: too many separate ranges.
    pub(crate) full: bool,
}

/// RCV.NXT, RCV.WND and what lies beyond RCV.NXT.
#[derive(Debug)]
pub(crate) struct Inbound {
    space: Space,
    /// RCV.NXT.
    next: Position,
    /// Received beyond `next`.
    held: RangeSet,
    /// Where the latest out-of-order segments began, latest first: the order of SACK blocks.
    recent: [Position; SACK_BLOCKS_MAX],
    fin: Option<Position>,
    fin_taken: bool,
    /// The layer above needs nothing before this.
    consumed: Position,
    /// Octets that may lie beyond `consumed`.
    limit: u32,
    shift: u8,
    /// The greatest right edge ever announced.
    edge: Position,
    /// The peer's full segment, as far as it was seen.
    full_segment: u32,
    /// Our own full segment size, for SWS avoidance.
    emss: u32,
    unacked_octets: u32,
    unacked_segments: u32,
    ack: Ack,
    /// A pure ACK with SACK blocks is due: segments with payload can't carry them.
    sack_due: bool,
    sack: bool,
    last_ack_sent: Position,
}

/// How a receive window is announced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WindowPlan {
    limit: u32,
    shift: u8,
}

impl WindowPlan {
    /// What a SYN offers. The window holds two segments at least, so that silly window avoidance
    /// never keeps the last one shut.
    pub(crate) fn new(config: &Config, mss: u16) -> Self {
        let limit = config
            .receive_window
            .max(2 * u32::from(mss))
            .min(WINDOW_MAX);
        let mut shift = 0;
        while config.window_scale && limit >> shift > u32::from(u16::MAX) {
            shift += 1;
        }
        Self {
            limit: limit.min(u32::from(u16::MAX) << shift),
            shift,
        }
    }

    /// The peer does not scale.
    pub(crate) fn unscaled(self) -> Self {
        Self {
            limit: self.limit.min(u32::from(u16::MAX)),
            shift: 0,
        }
    }

    pub(crate) fn shift(self) -> u8 {
        self.shift
    }

    /// The window field of a SYN, which is never scaled (RFC 7323 section 2.2).
    pub(crate) fn syn_field(self) -> u16 {
        u16::try_from(self.limit).unwrap_or(u16::MAX)
    }
}

impl Inbound {
    /// Begins behind the peer's SYN.
    pub(crate) fn new(irs: SeqNum, plan: WindowPlan, emss: u32, sack: bool) -> Self {
        Self {
            space: Space::new(irs),
            next: 1,
            held: RangeSet::default(),
            recent: [0; SACK_BLOCKS_MAX],
            fin: None,
            fin_taken: false,
            consumed: 1,
            limit: plan.limit,
            shift: plan.shift,
            edge: 1 + u64::from(plan.syn_field()),
            full_segment: FULL_SEGMENT_MIN,
            emss,
            unacked_octets: 0,
            unacked_segments: 0,
            ack: Ack::None,
            sack_due: false,
            sack,
            last_ack_sent: 1,
        }
    }

    /// The connection is gone: what it borrowed goes back.
    pub(crate) fn clear(&mut self, pool: &mut RangePool) {
        self.held.clear(pool);
    }

    /// RCV.NXT on the wire.
    pub(crate) fn next_wire(&self) -> SeqNum {
        self.space.wire(self.next)
    }

    /// The position of a sequence number, relative to RCV.NXT.
    pub(crate) fn position(&self, seq: SeqNum) -> i64 {
        self.space.position(self.next, seq)
    }

    pub(crate) fn next(&self) -> Position {
        self.next
    }

    /// Every octet before this was received.
    pub(crate) fn in_order_to(&self) -> StreamOffset {
        self.next - 1 - u64::from(self.fin_taken)
    }

    pub(crate) fn last_ack_sent(&self) -> Position {
        self.last_ack_sent
    }

    /// Whether a segment at `start` that takes `len` sequence numbers has something to say.
    ///
    /// RFC 9293 section 3.10.7.4 but for one thing: a segment that begins exactly at the right edge
    /// is let in, because a peer that has filled the window sends its pure ACKs there, and a window
    /// probe begins there. Octets beyond the edge are cut off in [`Inbound::accept`].
    pub(crate) fn acceptable(&self, start: i64, len: u64) -> bool {
        let next = self.next.cast_signed();
        let end = start + len.cast_signed();
        let reaches = if len == 0 { start >= next } else { end > next };
        reaches && start <= self.edge.max(self.next).cast_signed()
    }

    /// Whether a sequence number lies in the window (for RST, RFC 5961 section 3.2).
    pub(crate) fn in_window(&self, start: i64) -> bool {
        start >= self.next.cast_signed() && start < self.edge.max(self.next + 1).cast_signed()
    }

    /// Takes the octets of an acceptable segment at `start`, and its FIN.
    pub(crate) fn accept(
        &mut self,
        now: Instant,
        start: i64,
        len: u32,
        fin: bool,
        ack_delay: Duration,
        pool: &mut RangePool,
    ) -> Accepted {
        let mut accepted = Accepted::default();
        if len == 0 && !fin {
            return accepted;
        }
        let stop = start.saturating_add(i64::from(len)).max(0).cast_unsigned();
        let first = start.max(0).cast_unsigned().max(self.next);
        let last = stop.min(self.edge).min(self.fin.unwrap_or(Position::MAX));
        let before = self.next;
        let had_hole = !self.held.is_empty();
        accepted.out_of_order = first > self.next;
        if first == self.next && first < last && !had_hole {
            accepted.new.push(new_range(&(first..last), start));
            self.next = last;
        } else if first < last {
            self.held.make_room(pool);
            let Ok(gaps) = self.held.insert(first..last, self.next) else {
                accepted.full = true;
                self.ack_at_once();
                return accepted;
            };
            for gap in gaps.as_slice() {
                accepted.new.push(new_range(gap, start));
            }
            if first > self.next {
                self.remember(first);
            } else if let Some(end) = self.held.take_front(self.next) {
                self.next = end;
                self.held.settle(pool);
            }
        }
        if fin {
            self.note_fin(stop);
        }
        accepted.closed = self.take_fin();
        self.full_segment = self.full_segment.max(len);
        let plain = !accepted.out_of_order && !had_hole && !fin && self.next > before;
        if plain {
            self.unacked_octets = self.unacked_octets.saturating_add(len);
            self.unacked_segments += 1;
            let many = self.unacked_segments >= ACK_EVERY_SEGMENTS;
            if many || self.unacked_octets >= 2 * self.full_segment {
                self.ack = Ack::Now;
            } else if self.ack == Ack::None {
                self.ack = Ack::Delayed(now + ack_delay);
            }
        } else {
            self.ack_at_once();
        }
        accepted
    }

    /// The layer above needs nothing before `offset`. Positions not received yet count as the last
    /// received one.
    pub(crate) fn consume(&mut self, offset: StreamOffset) {
        let position = offset.saturating_add(1).min(self.in_order_to() + 1);
        self.consumed = self.consumed.max(position);
        // The peer may be waiting: tell it without being asked when the window that it knows of is
        // less than half open, or too small for what it may want to send.
        let known = self.edge.saturating_sub(self.next);
        let low = u64::from(self.limit / 2).max(2 * u64::from(self.emss));
        if self.offered_edge() > self.edge && known < low && !self.fin_taken {
            self.ack = Ack::Now;
        }
    }

    /// An acknowledgment goes out as soon as possible.
    pub(crate) fn ack_at_once(&mut self) {
        self.ack = Ack::Now;
        self.sack_due = self.sack && !self.held.is_empty();
    }

    pub(crate) fn ack_due(&self) -> bool {
        self.ack == Ack::Now
    }

    pub(crate) fn sack_due(&self) -> bool {
        self.sack_due
    }

    pub(crate) fn ack_deadline(&self) -> Option<Instant> {
        match self.ack {
            Ack::Delayed(at) => Some(at),
            Ack::None | Ack::Now => None,
        }
    }

    /// The time of a delayed acknowledgment has come.
    pub(crate) fn advance(&mut self, now: Instant) {
        if self.ack_deadline().is_some_and(|at| at <= now) {
            self.ack = Ack::Now;
        }
    }

    /// The window field of a segment that goes out now with RCV.NXT as its acknowledgment.
    pub(crate) fn acknowledge(&mut self) -> u16 {
        let edge = self.offered_edge();
        // Rounded down: an edge that the field can't name exactly is still honoured on arrival
        // (RFC 7323 section 2.4).
        let field = edge.saturating_sub(self.next) >> self.shift;
        let field = u16::try_from(field).unwrap_or(u16::MAX);
        self.edge = self.edge.max(self.next + (u64::from(field) << self.shift));
        self.last_ack_sent = self.next;
        self.ack = Ack::None;
        self.unacked_octets = 0;
        self.unacked_segments = 0;
        field
    }

    /// The SACK blocks of a pure ACK (RFC 2018 section 4): the latest received first.
    pub(crate) fn sack_blocks(&mut self) -> SackBlocks {
        self.sack_due = false;
        let mut blocks = SackBlocks::default();
        if !self.sack {
            return blocks;
        }
        let mut reported = [0; SACK_BLOCKS_MAX];
        let recent = self
            .recent
            .iter()
            .filter_map(|&at| self.held.containing(at));
        for range in recent.chain(self.held.as_slice().iter().rev().cloned()) {
            let count = blocks.as_slice().len();
            if count == SACK_BLOCKS_MAX {
                break;
            }
            // No range begins at 0, where the SYN is.
            if !reported.contains(&range.start) {
                reported[count] = range.start;
                let (left, right) = (self.space.wire(range.start), self.space.wire(range.end));
                blocks.push(SackBlock { left, right });
            }
        }
        blocks
    }

    /// The right edge to announce: moved on only by a worthwhile step (RFC 9293
    /// section 3.8.6.2.2), never back.
    fn offered_edge(&self) -> Position {
        let wanted = self.consumed + u64::from(self.limit);
        let step = u64::from((self.limit / 2).min(self.emss));
        if wanted >= self.edge + step {
            wanted
        } else {
            self.edge
        }
    }

    fn remember(&mut self, position: Position) {
        if self.recent[0] != position {
            self.recent.rotate_right(1);
            self.recent[0] = position;
        }
    }

    /// A FIN counts when it is within reach and nothing lies behind it.
    fn note_fin(&mut self, at: Position) {
        let highest = self
            .held
            .as_slice()
            .last()
            .map_or(self.next, |range| range.end);
        if self.fin.is_none() && at >= highest && at <= self.edge.max(self.next) {
            self.fin = Some(at);
        }
    }

    fn take_fin(&mut self) -> bool {
        let taken = self.fin == Some(self.next) && !self.fin_taken;
        if taken {
            self.fin_taken = true;
            self.next += 1;
        }
        taken
    }
}

/// A part of the payload of a segment that begins at `start`.
fn new_range(part: &Range<Position>, start: i64) -> NewRange {
    NewRange {
        offset: part.start - 1,
        // Both are within the payload of one segment.
        skip: (part.start.cast_signed() - start) as u32,
        len: (part.end - part.start) as u32,
    }
}
