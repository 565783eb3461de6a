//! A work request outside its ring: a checked copy that nobody else can write.
//!
//! It has room for as many elements as its queue pair's work may have, made once; taking a work
//! request off a ring never allocates.

use crate::work::{INLINE_PER_SGE, MAX_SGE, Sge, WR_INLINE, WorkSlot, WrOpcode};

/// A work request, decoded or to be encoded.
#[derive(Clone, PartialEq, Eq)]
pub struct WorkRequest {
    /// Everything but the elements; its `sge` and `num_sge` are not used.
    pub slot: WorkSlot,
    /// As many as there is room for.
    sges: Box<[Sge]>,
    /// Elements that it has, also those that there is no room for.
    num_sge: usize,
}

/// Has room for every work request that there can be.
impl Default for WorkRequest {
    fn default() -> Self {
        Self::with_room(MAX_SGE)
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

    /// Room for a work request of up to `sges` elements, at most [`MAX_SGE`]. Of one that has more
    /// the others are not kept.
    pub fn with_room(sges: usize) -> Self {
        Self {
            slot: WorkSlot::default(),
            sges: vec![Sge::default(); sges.min(MAX_SGE)].into(),
            num_sge: 0,
        }
    }

    /// The opcode, if the client wrote one that exists.
    pub fn opcode(&self) -> Option<WrOpcode> {
        WrOpcode::from_u8(self.slot.opcode)
    }

    /// Elements that it has, also those that there was no room for.
    pub fn num_sge(&self) -> usize {
        self.num_sge
    }

    /// The elements that there was room for.
    pub fn sges(&self) -> &[Sge] {
        &self.sges[..self.num_sge.min(self.sges.len())]
    }

    /// Replaces the elements; false, and nothing is changed, when there is no room for so many.
    #[must_use]
    pub fn set_sges(&mut self, sges: &[Sge]) -> bool {
        let Some(place) = self.sges.get_mut(..sges.len()) else {
            return false;
        };
        place.copy_from_slice(sges);
        self.num_sge = sges.len();
        true
    }

    /// Octets of the work: those that it carries, or the sum of the elements' lengths.
    pub fn total_length(&self) -> u64 {
        if self.is_inline() {
            return self.slot.inline_len.into();
        }
        self.sges().iter().map(|sge| u64::from(sge.length)).sum()
    }

    /// Whether it carries its octets itself, as the client says.
    pub fn is_inline(&self) -> bool {
        self.slot.flags & WR_INLINE != 0
    }

    /// Copies octets that it carries, from the one at `at` on. Beyond its elements' places all are 0.
    pub fn copy_inline(&self, at: usize, out: &mut [u8]) {
        let mut done = 0;
        while done < out.len() {
            let (index, from) = ((at + done) / INLINE_PER_SGE, (at + done) % INLINE_PER_SGE);
            let octets = self.sges().get(index).copied().unwrap_or_default();
            let count = (INLINE_PER_SGE - from).min(out.len() - done);
            out[done..done + count].copy_from_slice(&octets.to_inline()[from..from + count]);
            done += count;
        }
    }

    /// Becomes another work request, whose elements are to be put.
    pub(super) fn begin(&mut self, slot: WorkSlot) {
        self.slot = slot;
        self.num_sge = usize::from(slot.num_sge);
    }

    /// Puts elements from the one of this number on, as far as there is room.
    pub(super) fn put(&mut self, first: usize, sges: &[Sge]) {
        for (place, sge) in self.sges.iter_mut().skip(first).zip(sges) {
            *place = *sge;
        }
    }
}
