//! The receiving half of a connection: what has come (RFC 9293 section 3.10.7.4), the window, and
//! the acknowledgments.
//!
//! It keeps no byte, only which ones have come; each is new to the layer above once.

mod due;
mod echo;
mod reports;
#[cfg(test)]
mod tests;
mod window;

use std::ops::Range;
use std::time::Duration;

use userspace_net::Instant;
use userspace_net::pool::RangePool;
use userspace_net::ranges::RangeSet;

use crate::interface::{NewRange, NewRanges};
use crate::options::SackBlocks;
use crate::seq::{Position, SeqNum, Space, StreamOffset};
use due::AckDue;
use echo::Echo;
pub(crate) use echo::EchoMode;
use reports::{Held, Reports};
use window::Window;
pub(crate) use window::{WINDOW_SHIFT_MAX, WindowPlan};

/// Most separate ranges beyond the in-order point. A segment that would make one more is dropped.
pub(crate) const RANGES_MAX: usize = 1024;

/// An acknowledgment that is due waits no longer when what it is of is more than this part of the window.
const ACK_SHARE: u32 = 4;

/// The part of the sequence space that a segment takes behind its SYN.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Text {
    /// Its position; negative: before the SYN.
    pub(crate) start: i64,
    /// Bytes of payload.
    pub(crate) len: u32,
    /// In so many segments of the peer's, and how many bytes the longest of them has.
    pub(crate) segments: u32,
    pub(crate) longest: u32,
    /// It came in a fast stream of segments, this connection's or of several.
    pub(crate) in_fast_stream: bool,
    pub(crate) fin: bool,
    /// The packet was marked (CE).
    pub(crate) ce: bool,
    /// The peer has reduced its congestion window (CWR).
    pub(crate) cwr: bool,
}

/// What a segment's bytes did.
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
    fin: Option<Position>,
    fin_taken: bool,
    window: Window,
    due: AckDue,
    reports: Reports,
    echo: Echo,
    last_ack_sent: Position,
}

/// What a segment that goes out says of what has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Acknowledgment {
    pub(crate) number: SeqNum,
    /// The window field.
    pub(crate) window: u16,
    /// Whether ECE is set.
    pub(crate) ece: bool,
}

impl Inbound {
    /// Begins behind the peer's SYN.
    pub(crate) fn new(irs: SeqNum, plan: WindowPlan, emss: u32, sack: bool) -> Self {
        Self {
            space: Space::new(irs),
            next: 1,
            held: RangeSet::default(),
            fin: None,
            fin_taken: false,
            window: Window::new(plan, emss),
            due: AckDue::default(),
            reports: Reports::new(sack),
            echo: Echo::new(EchoMode::Off),
            last_ack_sent: 1,
        }
    }

    /// How congestion marks are echoed from now on.
    pub(crate) fn echo_marks(&mut self, mode: EchoMode) {
        self.echo = Echo::new(mode);
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

    /// Every byte before this was received.
    pub(crate) fn in_order_to(&self) -> StreamOffset {
        self.next - 1 - u64::from(self.fin_taken)
    }

    /// Whether nothing has come beyond RCV.NXT, which is `seq`.
    pub(crate) fn is_next(&self, seq: SeqNum) -> bool {
        self.held.is_empty() && self.fin.is_none() && seq == self.next_wire()
    }

    /// The layer above needs nothing before this.
    pub(crate) fn consumed(&self) -> Position {
        self.window.consumed()
    }

    pub(crate) fn last_ack_sent(&self) -> Position {
        self.last_ack_sent
    }

    /// Whether a segment at `start` that takes `len` sequence numbers has something to say.
    ///
    /// RFC 9293 section 3.10.7.4 but for one thing: a segment that begins exactly at the right edge is let in. A
    /// peer that has filled the window sends its pure ACKs there, and a window probe begins there. Bytes beyond the edge are cut off in [`Inbound::accept`].
    pub(crate) fn acceptable(&self, start: i64, len: u64) -> bool {
        let next = self.next.cast_signed();
        let end = start + len.cast_signed();
        let reaches = if len == 0 { start >= next } else { end > next };
        reaches && start <= self.window.edge().max(self.next).cast_signed()
    }

    /// Bytes from RCV.NXT on that are within the window.
    pub(crate) fn room(&self) -> u32 {
        let room = self.window.edge().saturating_sub(self.next);
        u32::try_from(room).unwrap_or(u32::MAX)
    }

    /// Whether a sequence number lies in the window (for RST, RFC 5961 section 3.2).
    pub(crate) fn in_window(&self, start: i64) -> bool {
        let edge = self.window.edge().max(self.next + 1);
        start >= self.next.cast_signed() && start < edge.cast_signed()
    }

    /// Takes the bytes of an acceptable segment, and its FIN.
    pub(crate) fn accept(
        &mut self,
        now: Instant,
        text: Text,
        ack_delay: Duration,
        pool: &mut RangePool,
    ) -> Accepted {
        let Text {
            start, len, fin, ..
        } = text;
        let mut accepted = Accepted::default();
        if len == 0 && !fin {
            return accepted;
        }
        let stop = start.saturating_add(i64::from(len)).max(0).cast_unsigned();
        let first = start.max(0).cast_unsigned().max(self.next);
        let last = stop
            .min(self.window.edge())
            .min(self.fin.unwrap_or(Position::MAX));
        let before = self.next;
        let had_hole = !self.held.is_empty();
        accepted.out_of_order = first > self.next;
        let again = self.first_again(start, stop);
        // What lies outside the window says nothing of congestion (RFC 3168 sections 6.1.5, 6.1.6).
        let mark_changed = first < last
            && self
                .echo
                .arrived(text.ce, text.cwr, self.last_ack_sent, self.next);
        if first == self.next && first < last && !had_hole {
            accepted.new.push(new_range(&(first..last), start));
            self.next = last;
        } else if first < last {
            let gaps = if accepted.out_of_order {
                let Ok(gaps) = self.held.insert(first..last, pool) else {
                    accepted.full = true;
                    self.ack_at_once();
                    return accepted;
                };
                self.report_out_of_order(gaps.as_slice().last());
                gaps
            } else {
                let (gaps, end) = self.held.join_front(first..last, pool);
                self.next = end;
                if self.held.is_empty() {
                    self.reports.nothing_held();
                }
                gaps
            };
            for gap in gaps.as_slice() {
                accepted.new.push(new_range(gap, start));
            }
        }
        if fin {
            self.note_fin(stop);
        }
        accepted.closed = self.take_fin();
        self.report_again(again.as_ref());
        // A FIN is acknowledged at once, also one that has waited for these bytes.
        let plain = !(fin || accepted.closed || accepted.out_of_order || had_hole);
        if plain && again.is_none() && !mark_changed && self.next > before {
            self.acknowledge_new(now, &text, ack_delay);
        } else {
            self.ack_at_once();
        }
        accepted
    }

    /// Takes bytes that are the next in order ([`Inbound::is_next`]), within the window
    /// ([`Inbound::room`]), of segments without marks: what [`Inbound::accept`] does with them but for
    /// [`Inbound::acknowledge_new`].
    #[inline]
    pub(crate) fn take_next(&mut self, bytes: u32) {
        self.next += u64::from(bytes);
    }

    /// Has bytes acknowledged that came in order, unless what went out since has done it.
    pub(crate) fn acknowledge_new(&mut self, now: Instant, text: &Text, ack_delay: Duration) {
        let end = text.start + i64::from(text.len);
        if self.last_ack_sent.cast_signed() < end {
            let most = self.window.limit() / ACK_SHARE;
            self.due.in_order(now, text, ack_delay, most);
        } else {
            self.due.saw(text);
        }
    }

    /// Whether the next acknowledgment says that a packet was marked.
    pub(crate) fn echoes_marks(&self) -> bool {
        self.echo.ece()
    }

    /// A segment that is not accepted takes `len` sequence numbers from `start`: what of it had
    /// come before is reported.
    pub(crate) fn came_again(&mut self, start: i64, len: u64) {
        let stop = start.saturating_add_unsigned(len).max(0).cast_unsigned();
        let again = self.first_again(start, stop);
        self.report_again(again.as_ref());
    }

    /// The layer above needs nothing before `offset`. Positions not received yet count as the last
    /// received one.
    pub(crate) fn consume(&mut self, offset: StreamOffset) {
        let position = offset.saturating_add(1).min(self.in_order_to() + 1);
        if self.window.consume(position, self.next) && !self.fin_taken {
            self.due.at_once();
        }
    }

    /// An acknowledgment goes out as soon as possible.
    pub(crate) fn ack_at_once(&mut self) {
        self.due.at_once();
        let held = Held {
            space: self.space,
            next: self.next,
            ranges: &self.held,
        };
        self.reports.at_once(&held);
    }

    /// An acknowledgment is due, on whatever goes out next.
    pub(crate) fn ack_due(&self) -> bool {
        self.due.is_now()
    }

    /// An acknowledgment is due that must not carry payload.
    pub(crate) fn pure_ack_due(&self) -> bool {
        self.reports.due() || self.echo.has_earlier()
    }

    pub(crate) fn ack_deadline(&self) -> Option<Instant> {
        self.due.deadline()
    }

    /// The acknowledgment that may be delayed until then, if it still is, goes out as soon as possible;
    /// says whether.
    pub(crate) fn end_ack_delay(&mut self, until: Instant) -> bool {
        self.due.end_delay(until)
    }

    /// The time of a delayed acknowledgment may have come.
    pub(crate) fn advance(&mut self, now: Instant) {
        self.due.advance(now);
    }

    /// What a segment says that goes out now.
    pub(crate) fn acknowledge(&mut self) -> Acknowledgment {
        let (position, ece) = match self.echo.take_earlier() {
            Some(earlier) => earlier,
            None => {
                self.due.sent();
                (self.next, self.echo.ece())
            }
        };
        self.last_ack_sent = position;
        Acknowledgment {
            number: self.space.wire(position),
            window: self.window.announce(position),
            ece,
        }
    }

    /// The SACK blocks of an acknowledgment without payload that has place for `room` of them.
    pub(crate) fn sack_blocks(&mut self, room: usize) -> SackBlocks {
        let held = Held {
            space: self.space,
            next: self.next,
            ranges: &self.held,
        };
        self.reports.blocks(room, &held)
    }

    /// The connection is over: gives back what was lent.
    pub(crate) fn clear(&mut self, pool: &mut RangePool) {
        self.held.clear(pool);
        self.reports.nothing_held();
    }

    /// The first bytes from `start` up to `stop` that had come before.
    fn first_again(&self, start: i64, stop: Position) -> Option<Range<Position>> {
        // No byte stands before 1, where the SYN is.
        let start = start.max(1).cast_unsigned();
        let known = if start < self.next {
            start..self.next
        } else if self.held.is_empty() {
            return None;
        } else {
            self.held.overlapping(start..stop)?
        };
        let again = known.start.max(start)..known.end.min(stop);
        (!again.is_empty()).then_some(again)
    }

    fn report_again(&mut self, again: Option<&Range<Position>>) {
        if let Some(again) = again {
            let (left, right) = (self.space.wire(again.start), self.space.wire(again.end));
            self.reports.duplicate(left, right);
        }
    }

    fn report_out_of_order(&mut self, grown: Option<&Range<Position>>) {
        self.reports.out_of_order();
        if let Some(part) = grown {
            let held = Held {
                space: self.space,
                next: self.next,
                ranges: &self.held,
            };
            self.reports.grew(self.space.wire(part.start), &held);
        }
    }

    /// A FIN counts when it is within reach and nothing lies behind it.
    fn note_fin(&mut self, at: Position) {
        let highest = self.held.end().unwrap_or(self.next);
        if self.fin.is_none() && at >= highest && at <= self.window.edge().max(self.next) {
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
