//! The client's end of a work queue.

use std::num::NonZeroU32;

use super::QpShard;
use super::slot::{WORDS, put_sges, slot_words, slots_for};
use crate::ring::raw::{RawRing, RingFull, SharedWord};
use crate::ring::work_request::WorkRequest;
use crate::sync::Ordering;
use crate::work::{
    INLINE_PER_SGE, MAX_PLACES, MAX_SGE, Operands, SGES_IN_FIRST_SLOT, SGES_IN_NEXT_SLOT, Sge,
    WR_INLINE, WorkSlot, WrOpcode, sges_for_inline,
};

/// The client's end of a work queue.
#[derive(Debug)]
pub struct WorkQueueProducer {
    ring: RawRing<WORDS>,
    own: u32,
    /// Slots that every work request takes, in a shared receive queue.
    fixed: Option<NonZeroU32>,
    /// Slots known to be free; the shared index is looked at only when they don't suffice.
    free: u32,
    /// None of a shared receive queue.
    bell: Option<Bell>,
}

/// How the engine is notified of a queue pair's work.
#[derive(Clone, Debug)]
pub(super) struct Bell {
    pub(super) pending: SharedWord,
    pub(super) shard: QpShard,
}

impl WorkQueueProducer {
    pub(super) fn new(ring: RawRing<WORDS>, bell: Option<Bell>, fixed: Option<NonZeroU32>) -> Self {
        Self {
            free: ring.capacity(),
            ring,
            own: 0,
            fixed,
            bell,
        }
    }

    /// Slots in all.
    pub fn capacity(&self) -> u32 {
        self.ring.capacity()
    }

    /// Slots that the engine has taken or that were never used: room for new work.
    pub fn free_slots(&self) -> u32 {
        // A fault of the engine's index can't be told from a full ring by the client, nor need be:
        // an engine like that is lost either way.
        self.ring.free(self.own).unwrap_or(0)
    }

    /// Puts a work request, visible to the engine at once. Afterwards [`Self::set_pending`].
    pub fn push(&mut self, request: &WorkRequest) -> Result<(), RingFull> {
        let places = request.places();
        self.push_places(&request.slot, places.len(), |index| places[index])
    }

    /// As [`Self::push`], with the elements elsewhere; more than [`crate::work::MAX_SGE`] never fit.
    /// Of the operands those go that the opcode has.
    pub fn push_parts(
        &mut self,
        slot: &WorkSlot,
        sges: &[Sge],
        operands: &Operands,
    ) -> Result<(), RingFull> {
        self.push_with(slot, operands, sges.len(), |index| sges[index])
    }

    /// Puts a work request that carries its bytes; more than [`crate::work::MAX_INLINE`] never
    /// fit. They are copied: their place may be used again at once.
    pub fn push_inline(
        &mut self,
        slot: &WorkSlot,
        bytes: &[u8],
        operands: &Operands,
    ) -> Result<(), RingFull> {
        let slot = WorkSlot {
            flags: slot.flags | WR_INLINE,
            inline_len: u32::try_from(bytes.len()).map_err(|_| RingFull)?,
            ..*slot
        };
        self.push_with(&slot, operands, sges_for_inline(bytes.len()), |index| {
            let rest = &bytes[index * INLINE_PER_SGE..];
            Sge::from_inline(&rest[..rest.len().min(INLINE_PER_SGE)])
        })
    }

    /// Puts a work request of `count` elements and the operands that its opcode has.
    fn push_with(
        &mut self,
        slot: &WorkSlot,
        operands: &Operands,
        count: usize,
        element: impl Fn(usize) -> Sge,
    ) -> Result<(), RingFull> {
        if count > MAX_SGE {
            return Err(RingFull);
        }
        let opcode = WrOpcode::from_u8(slot.opcode);
        let more = opcode.map_or(0, WrOpcode::operand_places);
        if more == 0 {
            return self.push_places(slot, count, element);
        }
        self.push_places(slot, count + more, |index| match index.checked_sub(count) {
            None => element(index),
            Some(pair) => Sge::from_words([operands[2 * pair], operands[2 * pair + 1]]),
        })
    }

    fn push_places(
        &mut self,
        slot: &WorkSlot,
        count: usize,
        element: impl Fn(usize) -> Sge,
    ) -> Result<(), RingFull> {
        let least = slots_for(count);
        let needed = self.fixed.map_or(least, NonZeroU32::get);
        if self.free < needed {
            self.free = self.free_slots();
        }
        if count > MAX_PLACES || least > needed || self.free < needed {
            return Err(RingFull);
        }
        let in_first = count.min(SGES_IN_FIRST_SLOT);
        let mut words = slot_words(slot, count as u16);
        put_sges(&mut words[4..], (0..in_first).map(&element));
        self.ring.store(self.own, &words);
        for first in (in_first..count).step_by(SGES_IN_NEXT_SLOT) {
            let end = count.min(first + SGES_IN_NEXT_SLOT);
            let mut words = [0; WORDS];
            put_sges(&mut words, (first..end).map(&element));
            self.ring
                .store(self.own.wrapping_add(slots_for(first)), &words);
        }
        self.own = self.own.wrapping_add(needed);
        self.free -= needed;
        self.ring.producer().store(self.own, Ordering::Release);
        Ok(())
    }

    /// Marks the queue pair as having work. It was not marked: gives the shard by whose ring its doorbell is to be
    /// rung, as the engine wrote it.
    pub fn set_pending(&self) -> Option<u32> {
        let Bell { pending, shard } = self.bell.as_ref()?;
        // The shard is read after the swap (module head).
        (pending.get().swap(1, Ordering::AcqRel) == 0).then(|| shard.get())
    }
}
