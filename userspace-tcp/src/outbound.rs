//! The sending half of a connection: the queue of segments and the state of each (RFC 9293
//! section 3.4, RFC 2018, RFC 6675).
//!
//! A segment is the unit: it is never joined, and split only by the layer above, before it is sent. Its buffer is here, or with the link, or
//! released. A segment whose buffer is with the link is not sent a second time.
//!
//! Only a retransmission timeout, an undone recovery and a path that became narrower look at all segments in
//! flight. What is lost, what was sent again and what was not judged yet is in lists, and what is sacked is
//! skipped.

mod burst;
mod delivered;
mod fin;
mod list;
mod loss;
mod mtu_losses;
mod ring;
mod sack;
mod slot;
#[cfg(test)]
mod tests;

pub(crate) use burst::{Given, Limits};
pub(crate) use delivered::Delivered;
pub(crate) use fin::Fin;
pub(crate) use slot::Slot;

use userspace_net::pool::QueuePool;
use userspace_net::{Instant, checksum::PartialSum};

use crate::interface::{Outgoing, Payload, SegmentId};
use crate::rate::RateSampler;
use crate::seq::{Position, SeqNum, Space};
use delivered::Arrived;
use list::List;
use ring::Ring;
use sack::SackCache;
use slot::SlotState;

/// SND.UNA, SND.NXT, SND.WND and the queue.
#[derive(Debug)]
pub(crate) struct Outbound<B> {
    space: Space,
    ring: Ring<B>,
    /// Segments that were sent at least once: they come first.
    sent: usize,
    /// SND.UNA.
    una: Position,
    /// SND.NXT.
    next: Position,
    /// One past the end of the bytes queued.
    tail: Position,
    /// SND.WND, in bytes.
    window: u64,
    /// The greatest ever (MAX.SND.WND), and the greatest since nothing was queued.
    window_max: u64,
    window_offered: u64,
    /// It has stayed too small for a segment.
    was_too_small: bool,
    /// SND.WL1 (of the peer's space) and SND.WL2.
    window_seq: i64,
    window_ack: Position,
    pub(crate) fin: Fin,
    /// Bytes believed to be in the network.
    pipe: u64,
    /// Bytes lost and not sent again yet.
    lost_bytes: u64,
    /// Those of them that are no sign of congestion.
    excused_bytes: u64,
    /// Bytes and segments that the peer has by its SACK blocks (RACK.segs_sacked).
    sacked_bytes: u64,
    segs_sacked: u32,
    /// Originals in flight are here or behind it; they were sent in the order of the stream.
    originals: u32,
    /// Retransmissions in flight, in the order in which they were sent.
    again: List,
    /// Lost segments whose buffers are here: originals, and retransmissions.
    lost: List,
    lost_again: List,
    sack_cache: SackCache,
    /// Without SACK: bytes that must have left the network by the count of duplicate ACKs.
    left_by_duplicates: u64,
    /// Measures for a congestion control that goes by it.
    rate: Option<Box<RateSampler>>,
}

/// A segment with payload to be sent.
pub(crate) struct Outgo<B> {
    pub(crate) payload: Payload<B>,
    pub(crate) start: Position,
    pub(crate) seq: SeqNum,
    /// The last of the queue: pushed.
    pub(crate) last: bool,
}

/// Whether a segment of `len` bytes fits `cwnd` beside `pipe` bytes in the network. One alone always
/// does: it may have been posted when the path took more.
#[inline]
fn fits_beside(pipe: u64, len: u64, cwnd: u64) -> bool {
    pipe == 0 || pipe + len <= cwnd
}

/// What becomes of a buffer that comes back from the link.
pub(crate) enum Returned<B> {
    /// It is kept with its segment.
    Kept,
    /// It is kept, and its segment has to be sent again.
    Due,
    /// Its segment is gone.
    Out(B),
}

impl<B> Outbound<B> {
    /// Before the SYN.
    pub(crate) fn new(iss: SeqNum) -> Self {
        Self {
            space: Space::new(iss),
            ring: Ring::new(),
            sent: 0,
            una: 0,
            next: 0,
            tail: 1,
            window: 0,
            window_max: 0,
            window_offered: 0,
            was_too_small: false,
            window_seq: 0,
            window_ack: 0,
            fin: Fin::default(),
            pipe: 0,
            lost_bytes: 0,
            excused_bytes: 0,
            sacked_bytes: 0,
            segs_sacked: 0,
            originals: 0,
            again: List::default(),
            lost: List::default(),
            lost_again: List::default(),
            sack_cache: SackCache::default(),
            left_by_duplicates: 0,
            rate: None,
        }
    }

    /// From now on delivery rates are measured; `selective`: the peer has SACK.
    pub(crate) fn measure_rate(&mut self, selective: bool) {
        let delivered = self.delivered();
        self.rate = Some(Box::new(RateSampler::new(delivered, selective)));
    }

    pub(crate) fn rate_mut(&mut self) -> Option<&mut RateSampler> {
        self.rate.as_deref_mut()
    }

    /// Another initial sequence number, before the SYN goes out.
    pub(crate) fn begin_at(&mut self, iss: SeqNum) {
        self.space = Space::new(iss);
    }

    pub(crate) fn iss(&self) -> SeqNum {
        self.space.wire(0)
    }

    pub(crate) fn una(&self) -> Position {
        self.una
    }

    pub(crate) fn next(&self) -> Position {
        self.next
    }

    /// One past the end of the bytes queued.
    pub(crate) fn tail(&self) -> Position {
        self.tail
    }

    /// A position as on the wire.
    pub(crate) fn wire(&self, position: Position) -> SeqNum {
        self.space.wire(position)
    }

    pub(crate) fn window(&self) -> u64 {
        self.window
    }

    pub(crate) fn window_max(&self) -> u64 {
        self.window_max
    }

    /// The largest segment that the peer's window is going to take, as far as is known: one that is
    /// larger would wait for as long as the peer does not offer more. A peer whose window has stayed too
    /// small once may never offer all of it again, but half (RFC 9293 section 3.8.6.2.1).
    #[inline]
    pub(crate) fn largest_fit(&self) -> u64 {
        match (self.window_offered, self.window_max) {
            (0, 0) => u64::MAX,
            (0, ever) => ever,
            (offered, ever) if self.was_too_small => offered.min(ever / 2),
            (offered, _) => offered,
        }
    }

    /// The next segment's bytes that the peer's window takes, if these are some and not all.
    pub(crate) fn part_in_window(&self) -> Option<u64> {
        let slot = self.ring.at(self.sent)?;
        let room = (self.una + self.window).saturating_sub(slot.start);
        (1..u64::from(slot.len)).contains(&room).then_some(room)
    }

    /// The peer's window has stayed too small for the next segment.
    pub(crate) fn window_is_too_small(&mut self) {
        self.was_too_small = true;
        self.window_offered = self.window;
    }

    /// Has `cut` make two segments of the next one, the first of so many bytes. Says whether it did.
    pub(crate) fn split(
        &mut self,
        at: u64,
        pool: &mut QueuePool<Slot<B>>,
        cut: impl FnOnce(B, usize) -> Result<[Outgoing<B>; 2], B>,
    ) -> bool {
        let Some(slot) = self.ring.at_mut(self.sent) else {
            return false;
        };
        let Some(buf) = slot.buf.take() else {
            return false;
        };
        match cut(buf, at as usize) {
            Ok([first, second]) => {
                debug_assert_eq!(
                    (u64::from(first.len), first.len + second.len),
                    (at, slot.len)
                );
                let middle = slot.start + at;
                let slots = [(slot.start, first), (middle, second)].map(|(start, part)| {
                    Slot::new(start, part.len, part.payload_sum, Some(part.buf))
                });
                self.ring.replace(self.sent, slots, pool);
                true
            }
            Err(buf) => {
                slot.buf = Some(buf);
                false
            }
        }
    }

    pub(crate) fn queued_segments(&self) -> usize {
        self.ring.len()
    }

    /// Bytes in the network (RFC 6675 section 4).
    pub(crate) fn pipe(&self) -> u64 {
        self.pipe.saturating_sub(self.left_by_duplicates)
    }

    /// The sum of all DeliveredData (RFC 9937): what was sent and is neither in the network
    /// nor lost.
    pub(crate) fn delivered(&self) -> u64 {
        self.next.saturating_sub(self.pipe() + self.lost_bytes)
    }

    pub(crate) fn lost_bytes(&self) -> u64 {
        self.lost_bytes
    }

    /// FlightSize of RFC 5681: sent and not cumulatively acknowledged.
    pub(crate) fn flight(&self) -> u64 {
        self.next - self.una
    }

    /// RACK.segs_sacked
    pub(crate) fn segs_sacked(&self) -> u32 {
        self.segs_sacked
    }

    /// Bytes queued that no segment carried yet.
    pub(crate) fn unsent_bytes(&self) -> u64 {
        self.ring
            .at(self.sent)
            .map_or(0, |slot| self.tail - slot.start)
    }

    /// The position of an acknowledgment number.
    pub(crate) fn position(&self, ack: SeqNum) -> i64 {
        self.space.position(self.una, ack)
    }

    /// The sequence number of a segment that takes none. Not beyond the window, so that a peer that
    /// has moved its right edge back still listens.
    pub(crate) fn idle_seq(&self, slack: u64) -> SeqNum {
        let edge = self.una + self.window;
        self.space.wire(if self.next > edge + slack {
            edge
        } else {
            self.next
        })
    }

    /// The sequence number before the first unacknowledged one: an end that gets a segment with it has
    /// to answer (RFC 9293 sections 3.8.4 and 3.10.7.4).
    pub(crate) fn probe_seq(&self) -> SeqNum {
        self.space.wire(self.una.saturating_sub(1))
    }

    /// The SYN goes out (again).
    pub(crate) fn syn_sent(&mut self) {
        self.next = self.next.max(1);
    }

    /// The peer has our SYN.
    pub(crate) fn syn_acknowledged(&mut self) {
        self.una = self.una.max(1);
    }

    pub(crate) fn push(&mut self, outgoing: Outgoing<B>, pool: &mut QueuePool<Slot<B>>) {
        let start = self.tail;
        self.tail += u64::from(outgoing.len);
        let slot = Slot::new(
            start,
            outgoing.len,
            outgoing.payload_sum,
            Some(outgoing.buf),
        );
        self.ring.push(slot, pool);
    }

    /// The link is done with a buffer.
    pub(crate) fn returned(&mut self, id: SegmentId, buf: B) -> Returned<B> {
        match self.ring.get_mut(id.0) {
            Some(slot) if slot.buf.is_none() => {
                slot.buf = Some(buf);
                if slot.state != SlotState::Lost {
                    return Returned::Kept;
                }
                self.list_lost(id.0);
                Returned::Due
            }
            _ => Returned::Out(buf),
        }
    }

    /// The peer's window, from a segment at `seq` with the acknowledgment `ack` (RFC 9293
    /// section 3.10.7.4).
    pub(crate) fn update_window(&mut self, seq: i64, ack: Position, window: u64) {
        let newer = self.window_seq < seq || (self.window_seq == seq && self.window_ack <= ack);
        if newer {
            self.window = window;
            self.window_max = self.window_max.max(window);
            self.window_offered = match self.ring.len() {
                0 => window,
                _ => self.window_offered.max(window),
            };
            self.window_seq = seq;
            self.window_ack = ack;
        }
    }

    /// Whether the first unsent segment is there and fits the peer's window.
    pub(crate) fn unsent_fits_window(&self) -> Option<bool> {
        let slot = self.ring.at(self.sent)?;
        Some(slot.end() <= self.una + self.window)
    }

    /// Whether the peer's window has no room for the first segment that is not acknowledged. What
    /// lies behind it says nothing: it may wait for bytes in flight that never arrive.
    pub(crate) fn is_shut_out(&self) -> bool {
        let first = self.ring.front();
        self.window == 0 || first.is_some_and(|slot| slot.end() > self.una + self.window)
    }

    /// Whether the first unsent segment fits `cwnd`.
    pub(crate) fn unsent_fits_cwnd(&self, cwnd: u64) -> bool {
        let len = self.ring.at(self.sent).map_or(0, |slot| slot.len);
        self.fits_cwnd(u64::from(len), cwnd)
    }

    /// Whether a segment of `len` bytes fits `cwnd`.
    pub(crate) fn fits_cwnd(&self, len: u64, cwnd: u64) -> bool {
        fits_beside(self.pipe(), len, cwnd)
    }

    /// Bytes that could be queued and sent at once with a congestion window of `cwnd`; what is lost
    /// goes before them unless it is `held`. `waiting` more may be queued than cwnd lets go.
    pub(crate) fn room(&self, cwnd: u64, held: bool, waiting: u64) -> u64 {
        let lost = if held { 0 } else { self.lost_bytes };
        let by_network = cwnd.saturating_sub(self.pipe() + lost) + waiting;
        let by_peer = (self.una + self.window).saturating_sub(self.next);
        by_network.min(by_peer).saturating_sub(self.unsent_bytes())
    }

    /// Whether only one segment is out.
    pub(crate) fn one_out(&self) -> bool {
        self.sent + usize::from(self.fin.is_out()) <= 1
    }

    /// Whether anything waits to be acknowledged or retransmitted.
    pub(crate) fn outstanding(&self) -> bool {
        self.una < self.next
    }

    /// Takes the segment at this place of the queue.
    // Moved as a whole it would take longer than all that is done with it.
    #[inline(always)]
    fn take(&mut self, place: usize, now: Instant) -> Option<Outgo<B>> {
        let last = place + 1 == self.ring.len();
        let id = SegmentId(self.ring.name(place));
        let inflight = self.pipe();
        let slot = self.ring.at_mut(place)?;
        let buf = slot.depart(now)?;
        if let Some(rate) = &mut self.rate {
            slot.stamp = rate.sent(now, slot.len, inflight);
        }
        self.pipe += u64::from(slot.len);
        let payload = Payload {
            id,
            buf,
            len: slot.len,
            sum: PartialSum::from_folded(slot.sum),
            retransmission: std::mem::replace(&mut slot.transmitted, true),
            lost: None,
        };
        Some(Outgo {
            payload,
            start: slot.start,
            seq: self.space.wire(slot.start),
            last,
        })
    }

    /// Everything before `ack`, which lies in SND.UNA..=SND.NXT, is with the peer. See
    /// [`Delivered::add`] for `answers`.
    pub(crate) fn acknowledge(
        &mut self,
        ack: Position,
        answers: impl Fn(Instant) -> bool,
        pool: &mut QueuePool<Slot<B>>,
        delivered: &mut Delivered,
        mut release: impl FnMut(B),
    ) {
        delivered.bytes = ack.saturating_sub(self.una);
        // The first segment is what duplicate ACKs ask for; those behind it they stand for.
        let asked_for = self.ring.front().map_or(0, |slot| u64::from(slot.len));
        self.una = self.una.max(ack);
        self.take_originals(ack, &answers, delivered, &mut release);
        while let Some(slot) = self.ring.front().filter(|slot| slot.end() <= ack) {
            debug_assert!(self.sent > 0, "acknowledged before it was sent");
            let arrived = Arrived::from(slot);
            delivered.largest = delivered.largest.max(slot.len);
            let (name, len, state) = (self.ring.front_name(), u64::from(slot.len), slot.state);
            if state == SlotState::Sacked {
                self.sacked_bytes -= len;
                self.segs_sacked -= 1;
            } else {
                delivered.first_sent.get_or_insert(arrived.sent_at);
                delivered.add(&arrived, &answers);
                self.leave(name, len, &arrived, state);
            }
            if arrived.retransmitted {
                delivered.resent_at = delivered.resent_at.max(Some(arrived.sent_at));
            }
            self.sent -= 1;
            if self.originals == name {
                self.originals = name.wrapping_add(1);
            }
            if let Some(buf) = self.ring.pop().and_then(|slot| slot.buf) {
                release(buf);
            }
        }
        self.ring.settle(pool);
        self.stand_in(delivered.bytes.saturating_sub(asked_for));
        if self.fin.acknowledge(ack) {
            let arrived = self.fin.arrived(ack);
            delivered.first_sent.get_or_insert(arrived.sent_at);
            delivered.add(&arrived, &answers);
            if arrived.retransmitted {
                delivered.resent_at = delivered.resent_at.max(Some(arrived.sent_at));
            }
        }
    }

    /// As many of the first segments as are acknowledged and were sent once, of which nothing was heard
    /// before. They went out in the order of the stream, so of all but their sizes the first and the
    /// last say what there is to know.
    #[inline]
    fn take_originals(
        &mut self,
        ack: Position,
        answers: &impl Fn(Instant) -> bool,
        delivered: &mut Delivered,
        release: &mut impl FnMut(B),
    ) {
        let is_one = |slot: &&Slot<B>| {
            slot.end() <= ack && slot.state == SlotState::InFlight && !slot.retransmitted
        };
        let Some(first) = self.ring.front().filter(is_one).map(Arrived::from) else {
            return;
        };
        delivered.first_sent.get_or_insert(first.sent_at);
        delivered.add(&first, answers);
        let front = self.ring.front_name();
        let (mut bytes, mut last) = (0, first);
        while let Some(slot) = self.ring.front().filter(is_one) {
            delivered.largest = delivered.largest.max(slot.len);
            bytes += u64::from(slot.len);
            last = Arrived::from(slot);
            if let Some(buf) = self.ring.pop().and_then(|slot| slot.buf) {
                release(buf);
            }
        }
        delivered.add(&last, answers);
        self.pipe -= bytes;
        let behind = self.ring.front_name();
        let count = behind.wrapping_sub(front);
        self.sent -= count as usize;
        if self.originals.wrapping_sub(front) < count {
            self.originals = behind;
        }
    }

    /// A segment has arrived that was in flight or believed to be lost.
    fn leave(&mut self, name: u32, len: u64, arrived: &Arrived, state: SlotState) {
        match state {
            SlotState::InFlight => {
                self.pipe -= len;
                if arrived.retransmitted {
                    self.again.remove(&mut self.ring, name);
                }
            }
            SlotState::Lost => {
                self.lost_bytes -= len;
                self.forget_excuse(name);
                self.unlist_lost(name);
            }
            SlotState::Sacked | SlotState::Queued => {}
        }
    }

    /// Segments that wait for being sent for the first time.
    pub(crate) fn unsent_segments(&self) -> usize {
        self.ring.len().saturating_sub(self.sent)
    }

    /// Lets our FIN go with a segment that was taken, if that is the last of the queue and the peer's
    /// window takes the FIN too; whether it does.
    pub(crate) fn take_riding_fin(&mut self, last: bool, now: Instant) -> bool {
        let rides = last && self.fin.may_ride() && self.tail < self.una + self.window;
        if rides {
            self.fin.ride();
            self.take_fin(now);
        }
        rides
    }

    /// A FIN goes out (again); the sequence number it takes.
    pub(crate) fn take_fin(&mut self, now: Instant) -> SeqNum {
        let at = self.fin.sent(self.tail, now);
        self.next = self.next.max(at + 1);
        self.space.wire(at)
    }

    /// Gives every buffer that is here to `release` and forgets the queue.
    pub(crate) fn clear(&mut self, pool: &mut QueuePool<Slot<B>>, mut release: impl FnMut(B)) {
        while let Some(slot) = self.ring.pop() {
            if let Some(buf) = slot.buf {
                release(buf);
            }
        }
        self.ring.settle(pool);
        self.sent = 0;
        self.pipe = 0;
        self.lost_bytes = 0;
        self.excused_bytes = 0;
        self.sacked_bytes = 0;
        self.segs_sacked = 0;
        self.left_by_duplicates = 0;
        self.again = List::default();
        self.lost = List::default();
        self.lost_again = List::default();
        self.originals = self.ring.front_name();
    }
}
