//! A work request outside its ring: a checked copy that the client can't write.
//!
//! It has room for as many elements as its queue pair's work may have, made once; taking a work
//! request off a ring never allocates.

use crate::work::{
    INLINE_PER_SGE, MAX_PLACES, MAX_SGE, Operands, Sge, WR_INLINE, WorkSlot, WrOpcode,
};

/// A work request, decoded or to be encoded.
#[derive(Clone, PartialEq, Eq)]
pub struct WorkRequest {
    /// Everything but the elements; its `sge` and `num_sge` are not used.
    pub slot: WorkSlot,
    /// The elements, then the places of operands; as many as there is room for.
    sges: Box<[Sge]>,
    /// Places that are taken, also those that there is no room for.
    places: usize,
}

/// Has room for every work request that there can be.
impl Default for WorkRequest {
    fn default() -> Self {
        Self::with_room(MAX_PLACES)
    }
}

impl std::fmt::Debug for WorkRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WorkRequest")
            .field("wr_id", &self.slot.wr_id)
            .field("opcode", &self.opcode())
            .field("flags", &self.slot.flags)
            .field("rkey", &self.slot.rkey)
            .field("remote_addr", &self.slot.remote_addr)
            .field("sges", &self.sges())
            .finish()
    }
}

impl WorkRequest {
    /// A work request without elements and with room for any number.
    pub fn new(opcode: WrOpcode, wr_id: u64) -> Self {
        let slot = WorkSlot {
            wr_id,
            opcode: opcode as u8,
            ..WorkSlot::default()
        };
        Self {
            slot,
            ..Self::default()
        }
    }

    /// Room for a work request of up to so many places of elements, at most [`MAX_PLACES`]. Of one
    /// that has more the others are not kept.
    pub fn with_room(places: usize) -> Self {
        Self {
            slot: WorkSlot::default(),
            sges: vec![Sge::default(); places.min(MAX_PLACES)].into(),
            places: 0,
        }
    }

    /// The opcode, if the client wrote one that exists.
    #[inline]
    pub fn opcode(&self) -> Option<WrOpcode> {
        WrOpcode::from_u8(self.slot.opcode)
    }

    /// Elements that it has, also those that there was no room for.
    #[inline]
    pub fn num_sge(&self) -> usize {
        self.places.saturating_sub(self.operand_places())
    }

    /// The elements that there was room for.
    #[inline]
    pub fn sges(&self) -> &[Sge] {
        &self.sges[..self.num_sge().min(self.sges.len())]
    }

    /// Replaces the elements, and drops the operands; false, and nothing is changed, when there is
    /// no room for so many.
    #[must_use]
    pub fn set_sges(&mut self, sges: &[Sge]) -> bool {
        let places = sges.len() + self.operand_places();
        let room = self.sges.get_mut(..places);
        let Some(room) = room.filter(|_| sges.len() <= MAX_SGE) else {
            return false;
        };
        let (elements, operands) = room.split_at_mut(sges.len());
        elements.copy_from_slice(sges);
        operands.fill(Sge::default());
        self.places = places;
        true
    }

    /// The operands that the opcode has, the others 0; none when the client left them out, or wrote
    /// more elements than there was room for.
    pub fn operands(&self) -> Option<Operands> {
        let places = self.operand_places();
        let first = self.places.checked_sub(places)?;
        let found = self.sges.get(first..self.places)?;
        let mut operands = Operands::default();
        for (pair, place) in operands.chunks_exact_mut(2).zip(found) {
            pair.copy_from_slice(&place.words());
        }
        Some(operands)
    }

    /// Replaces the operands that the opcode has; false, and nothing is changed, when there is no room
    /// for them.
    #[must_use]
    pub fn set_operands(&mut self, operands: &Operands) -> bool {
        let (first, places) = (self.num_sge(), self.operand_places());
        let Some(found) = self.sges.get_mut(first..first + places) else {
            return false;
        };
        for (place, pair) in found.iter_mut().zip(operands.chunks_exact(2)) {
            *place = Sge::from_words([pair[0], pair[1]]);
        }
        self.places = first + places;
        true
    }

    /// The elements and the places of the operands that there was room for.
    pub(super) fn places(&self) -> &[Sge] {
        &self.sges[..self.places.min(self.sges.len())]
    }

    /// Places of elements that the operands of its opcode take.
    #[inline]
    fn operand_places(&self) -> usize {
        self.opcode().map_or(0, WrOpcode::operand_places)
    }

    /// Bytes of the work: those that it carries, or the sum of the elements' lengths.
    pub fn total_length(&self) -> u64 {
        if self.is_inline() {
            return self.slot.inline_len.into();
        }
        self.sges().iter().map(|sge| u64::from(sge.length)).sum()
    }

    /// Whether it carries its bytes itself, as the client says.
    #[inline]
    pub fn is_inline(&self) -> bool {
        self.slot.flags & WR_INLINE != 0
    }

    /// Copies bytes that it carries, from the one at `at` on. Beyond its elements' places all are 0.
    pub fn copy_inline(&self, at: usize, out: &mut [u8]) {
        let mut done = 0;
        while done < out.len() {
            let (index, from) = ((at + done) / INLINE_PER_SGE, (at + done) % INLINE_PER_SGE);
            let bytes = self.sges().get(index).copied().unwrap_or_default();
            let count = (INLINE_PER_SGE - from).min(out.len() - done);
            out[done..done + count].copy_from_slice(&bytes.to_inline()[from..from + count]);
            done += count;
        }
    }

    /// Becomes another work request, whose elements are to be put.
    pub(super) fn begin(&mut self, slot: WorkSlot) {
        self.slot = slot;
        self.places = usize::from(slot.num_sge);
    }

    /// Puts elements from the one of this number on, as far as there is room.
    pub(super) fn put(&mut self, first: usize, sges: &[Sge]) {
        for (place, sge) in self.sges.iter_mut().skip(first).zip(sges) {
            *place = *sge;
        }
    }
}
