//! Unsent segments that go out one behind the other: each is looked at where it is, once, and what they
//! change together is written down at the end.

use userspace_net::{Instant, checksum::PartialSum};

use crate::interface::SegmentId;
use crate::link::BurstSegment;
use crate::seq::Position;

use super::slot::Slot;
use super::{Outbound, fits_beside};

/// What the next segment must fit to go out as others do; the peer's window comes on top.
pub(crate) struct Limits {
    /// The congestion window, in bytes.
    pub(crate) cwnd: u64,
    /// Bytes of the largest segment.
    pub(crate) len: u32,
}

impl Limits {
    /// The peer's window alone.
    pub(crate) const NONE: Self = Self {
        cwnd: u64::MAX,
        len: u32::MAX,
    };

    /// Whether a segment fits, where the peer's window ends at `edge` and so many bytes are in the
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

    /// Takes unsent segments out to the link as a burst, as long as the next one fits all windows and the
    /// last one given lets it go on; how many segments, and how many bytes.
    #[inline(always)]
    pub(crate) fn take_burst(
        &mut self,
        now: Instant,
        limits: &Limits,
        mut give: impl FnMut(BurstSegment<B>) -> Given<B>,
    ) -> (usize, u64) {
        let edge = self.una + self.window;
        let count = self.ring.len();
        let (mut place, mut bytes, mut end) = (self.sent, 0, self.next);
        let first = self.ring.name(place);
        while let Some(slot) = self.ring.at_mut(place) {
            let inflight = (self.pipe + bytes).saturating_sub(self.left_by_duplicates);
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
            bytes += u64::from(slot.len);
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
        self.pipe += bytes;
        self.next = self.next.max(end);
        (sent, bytes)
    }
}
