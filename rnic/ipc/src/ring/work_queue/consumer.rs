//! The engine's end of a work queue: what the client wrote is copied once, and the copy checked.

use std::num::NonZeroU32;

use super::slot::{
    COUNT_WORD, WORDS, num_sge, opcode, sges_from_words, slot_from_words, slots_for,
};
use crate::ring::raw::{RawRing, RingFault, SharedWord};
use crate::ring::work_request::WorkRequest;
use crate::sync::Ordering;
use crate::work::{MAX_PLACES, SGES_IN_FIRST_SLOT, SGES_IN_NEXT_SLOT, WorkSlot, WrOpcode};

/// The engine's end of a work queue.
#[derive(Debug)]
pub struct WorkQueueConsumer {
    ring: RawRing<WORDS>,
    own: u32,
    /// Slots that every work request takes, in a shared receive queue.
    fixed: Option<NonZeroU32>,
    /// Slots known to be filled; the shared index is looked at only when none is left.
    filled: u32,
    pending: SharedWord,
}

/// A place in a work queue, for [`WorkQueueConsumer::peek`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place(u32);

impl WorkQueueConsumer {
    pub(super) fn new(
        ring: RawRing<WORDS>,
        pending: SharedWord,
        fixed: Option<NonZeroU32>,
    ) -> Self {
        Self {
            ring,
            own: 0,
            fixed,
            filled: 0,
            pending,
        }
    }

    /// Whether an access to its memory has faulted
    /// ([`SharedMemory::is_broken`](crate::shm::SharedMemory::is_broken)): what it says means nothing.
    pub fn is_broken(&self) -> bool {
        self.ring.is_broken()
    }

    /// Slots in all.
    pub fn capacity(&self) -> u32 {
        self.ring.capacity()
    }

    /// Whether a work request waits. A fault counts: `pop` will tell.
    pub fn is_empty(&self) -> bool {
        self.filled == 0 && self.ring.filled(self.own) == Ok(0)
    }

    /// How many work requests wait in a shared receive queue.
    pub fn waiting(&self) -> Result<u32, RingFault> {
        let each = self.fixed.map_or(1, NonZeroU32::get);
        Ok(self.ring.filled(self.own)? / each)
    }

    /// The opcode of the oldest work request, if one waits: to look at, because the client can write it
    /// until the request is taken.
    pub fn next_opcode(&self) -> Option<WrOpcode> {
        if self.is_empty() {
            return None;
        }
        WrOpcode::from_u8(opcode(self.ring.load_word(self.own, COUNT_WORD)))
    }

    /// Takes the oldest work request, if there is one, and gives its slots back to the client at once. `into` is
    /// a checked copy. How many requests may be outstanding, the engine counts itself. The opcode and flags are as the client wrote them. No more is copied than the
    /// elements that the request has, and no more than `into` has room for.
    pub fn pop(&mut self, into: &mut WorkRequest) -> Result<bool, RingFault> {
        if self.filled == 0 {
            self.filled = self.ring.filled(self.own)?;
            if self.filled == 0 {
                return Ok(false);
            }
        }
        let needed = self.copy(self.own, self.filled, into)?;
        self.own = self.own.wrapping_add(needed);
        self.filled -= needed;
        self.ring.consumer().store(self.own, Ordering::Release);
        Ok(true)
    }

    /// A copy of the oldest work request, if it takes one slot and has one element in it: for
    /// [`Self::take_single`]. A fault is left for [`Self::pop`] to tell.
    #[inline]
    pub fn single(&mut self) -> Option<WorkSlot> {
        if self.filled == 0 {
            self.filled = self.ring.filled(self.own).ok()?;
        }
        if self.filled == 0 || self.fixed.is_some() {
            return None;
        }
        let slot = slot_from_words(&self.ring.load(self.own));
        (slot.num_sge == 1).then_some(slot)
    }

    /// Takes the work request that [`Self::single`] has just copied, and gives its slot back to the
    /// client.
    #[inline]
    pub fn take_single(&mut self) {
        debug_assert!(self.filled > 0);
        self.own = self.own.wrapping_add(1);
        self.filled = self.filled.saturating_sub(1);
        self.ring.consumer().store(self.own, Ordering::Release);
    }

    /// The addresses of what the next [`Self::pop`] reads or writes, for who fetches it into the cache
    /// ahead of that. Not to be read by any other way.
    pub fn memory_ahead(&self) -> [*const u8; 4] {
        let pending = std::ptr::from_ref(self.pending.get()).cast();
        let [producer, consumer, entry] = self.ring.memory_ahead(self.own);
        [producer, consumer, pending, entry]
    }

    /// Where the oldest work request waits, or will.
    pub fn front(&self) -> Place {
        Place(self.own)
    }

    /// Where the work request waits, or will, that was posted `count` behind the one at `place`; none
    /// when one between them is not there. It takes a look at each of those.
    pub fn behind(&self, place: Place, count: u32) -> Result<Option<Place>, RingFault> {
        let mut place = place;
        for _ in 0..count {
            let left = self.left(place)?;
            if left == 0 {
                return Ok(None);
            }
            let num_sge = num_sge(self.ring.load_word(place.0, COUNT_WORD));
            let needed = self.needed(num_sge, left)?;
            place = Place(place.0.wrapping_add(needed));
        }
        Ok(Some(place))
    }

    /// Copies the work request at `place` as [`Self::pop`] does, and leaves it where it is; false
    /// when none waits there. What `pop` gives later is another copy: the client can write it
    /// meanwhile.
    pub fn peek(&self, place: Place, into: &mut WorkRequest) -> Result<bool, RingFault> {
        let left = self.left(place)?;
        if left == 0 {
            return Ok(false);
        }
        self.copy(place.0, left, into)?;
        Ok(true)
    }

    /// Slots from `place` on that are filled; none when it is not among those that wait.
    fn left(&self, place: Place) -> Result<u32, RingFault> {
        let before = place.0.wrapping_sub(self.own);
        Ok(self.ring.filled(self.own)?.saturating_sub(before))
    }

    /// Slots that a work request takes of which `left` are there.
    #[inline]
    fn needed(&self, num_sge: u16, left: u32) -> Result<u32, RingFault> {
        if usize::from(num_sge) > MAX_PLACES {
            let max = MAX_PLACES;
            return Err(RingFault::TooManySges { num_sge, max });
        }
        let least = slots_for(num_sge.into());
        let needed = self.fixed.map_or(least, NonZeroU32::get);
        if least > needed {
            let (needed, most) = (least, needed);
            return Err(RingFault::TooLong { needed, most });
        }
        if needed > left {
            let found = left;
            return Err(RingFault::Incomplete { needed, found });
        }
        Ok(needed)
    }

    /// Copies the work request at `index`, where `left` slots are filled, and gives the slots that
    /// it takes.
    #[inline(always)]
    fn copy(&self, index: u32, left: u32, into: &mut WorkRequest) -> Result<u32, RingFault> {
        let words = self.ring.load(index);
        let slot = slot_from_words(&words);
        let needed = self.needed(slot.num_sge, left)?;
        let num_sge = usize::from(slot.num_sge);
        into.begin(slot);
        let in_first = num_sge.min(SGES_IN_FIRST_SLOT);
        into.put(0, &slot.sge[..in_first]);
        for first in (in_first..num_sge).step_by(SGES_IN_NEXT_SLOT) {
            let count = (num_sge - first).min(SGES_IN_NEXT_SLOT);
            let sges = sges_from_words(&self.ring.load(index.wrapping_add(slots_for(first))));
            into.put(first, &sges[..count]);
        }
        Ok(needed)
    }

    /// Answers the queue pair's doorbell: call it before draining both queues. Either queue's end
    /// will do.
    pub fn clear_pending(&self) {
        self.pending.get().swap(0, Ordering::AcqRel);
    }
}
