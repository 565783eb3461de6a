//! Unsent segments that go out one behind the other: each is looked at where it is, once, and what they
//! change together is written down behind the last.

use crate::burst::BurstSegment;
use crate::checksum::PartialSum;
use crate::interface::{Outgoing, SegmentId};
use crate::pool::QueuePool;
use crate::seq::Position;
use crate::time::Instant;

use super::slot::{Slot, SlotState};
use super::{Outbound, fits_beside};

/// What the next segment must fit to go out as others do; the peer's window comes on top.
pub(crate) struct Limits {
    /// The congestion window, in octets.
    pub(crate) cwnd: u64,
    /// Octets of the largest segment.
    pub(crate) len: u32,
}

impl Limits {
    /// Whether a segment fits, where the peer's window ends at `edge` and so many octets are in the
    /// network.
    #[inline]
    fn let_go<B>(&self, slot: &Slot<B>, edge: Position, pipe: u64) -> bool {
        slot.len <= self.len
            && slot.end() <= edge
            && fits_beside(pipe, u64::from(slot.len), self.cwnd)
    }
}

/// What becomes of a segment of a burst that was given to the link.
pub(crate) struct Given<B> {
    /// The link did not take it.
    pub(crate) back: Option<B>,
    /// The next one may be given.
    pub(crate) goes_on: bool,
}

impl<B> Outbound<B> {
    /// Whether the first unsent segment is there and fits all windows.
    #[inline]
    pub(crate) fn next_fits(&self, limits: &Limits) -> bool {
        let edge = self.una + self.window;
        let slot = self.ring.at(self.sent);
        slot.is_some_and(|slot| limits.let_go(slot, edge, self.pipe()))
    }

    /// Octets that fit all windows now, where none waits to be sent: a segment of so many would be
    /// [let go](Limits::let_go).
    #[inline]
    pub(crate) fn fits_now(&self, cwnd: u64) -> u64 {
        let pipe = self.pipe();
        let by_network = match pipe {
            0 => u64::MAX,
            _ => cwnd.saturating_sub(pipe),
        };
        let by_peer = (self.una + self.window).saturating_sub(self.tail);
        by_network.min(by_peer)
    }

    /// Gives a segment to the link that is queued, as one that was sent, only then; all before it were
    /// sent.
    #[inline(always)]
    pub(crate) fn send_alone(
        &mut self,
        now: Instant,
        outgoing: Outgoing<B>,
        pool: &mut QueuePool<Slot<B>>,
        give: impl FnOnce(BurstSegment<B>) -> Option<B>,
    ) {
        let (start, len) = (self.tail, outgoing.len);
        let back = give(BurstSegment {
            id: SegmentId(self.ring.name(self.sent)),
            buf: outgoing.buf,
            len,
            sum: outgoing.payload_sum,
            seq: self.space.wire(start),
            push: true,
        });
        let inflight = self.pipe();
        let mut slot = Slot::new(start, len, outgoing.payload_sum, back);
        slot.state = SlotState::InFlight;
        slot.sent_at = now;
        slot.transmitted = true;
        if let Some(rate) = &mut self.rate {
            slot.stamp = rate.sent(now, len, inflight);
        }
        self.ring.push(slot, pool);
        self.sent += 1;
        self.tail += u64::from(len);
        self.pipe += u64::from(len);
        self.next = self.next.max(self.tail);
    }

    /// Takes unsent segments out to the link as a burst, as long as the next one fits all windows and the
    /// last one given lets it go on; how many segments, and how many octets.
    #[inline(always)]
    pub(crate) fn take_burst(
        &mut self,
        now: Instant,
        limits: &Limits,
        mut give: impl FnMut(BurstSegment<B>) -> Given<B>,
    ) -> (usize, u64) {
        let edge = self.una + self.window;
        let count = self.ring.len();
        let (mut place, mut octets, mut end) = (self.sent, 0, self.next);
        let first = self.ring.name(place);
        while let Some(slot) = self.ring.at_mut(place) {
            let inflight = (self.pipe + octets).saturating_sub(self.left_by_duplicates);
            if !limits.let_go(slot, edge, inflight) {
                break;
            }
            let Some(buf) = slot.depart(now) else {
                break;
            };
            if let Some(rate) = &mut self.rate {
                slot.stamp = rate.sent(now, slot.len, inflight);
            }
            slot.transmitted = true;
            octets += u64::from(slot.len);
            end = slot.end();
            let id = SegmentId(first.wrapping_add((place - self.sent) as u32));
            place += 1;
            let given = give(BurstSegment {
                id,
                buf,
                len: slot.len,
                sum: PartialSum::from_folded(slot.sum),
                seq: self.space.wire(slot.start),
                push: place == count,
            });
            // What the link did not take is in flight, so it is kept.
            if given.back.is_some() {
                slot.buf = given.back;
            }
            if !given.goes_on {
                break;
            }
        }
        let sent = place - self.sent;
        self.sent = place;
        self.pipe += octets;
        self.next = self.next.max(end);
        (sent, octets)
    }
}
