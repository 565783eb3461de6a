//! Slots as words in shared memory, and how many of them a work request takes.

use crate::work::{SGES_IN_FIRST_SLOT, SGES_IN_NEXT_SLOT, SLOT_SIZE, Sge, WorkSlot};

pub(super) const WORDS: usize = SLOT_SIZE / size_of::<u64>();
/// The word of a first slot that has the opcode and the number of elements.
pub(super) const COUNT_WORD: usize = 2;

/// Slots that a work request takes that has so many places of elements.
pub const fn slots_for(places: usize) -> u32 {
    1 + places
        .saturating_sub(SGES_IN_FIRST_SLOT)
        .div_ceil(SGES_IN_NEXT_SLOT) as u32
}

/// The words of a first slot as they lie in memory, without elements.
pub(super) fn slot_words(slot: &WorkSlot, num_sge: u16) -> [u64; WORDS] {
    let [r0, r1, r2, r3] = slot.rkey.to_ne_bytes();
    let [n0, n1] = num_sge.to_ne_bytes();
    let [l0, l1, l2, l3] = slot.inline_len.to_ne_bytes();
    let [z0, z1, z2, z3] = slot.reserved.to_ne_bytes();
    [
        slot.wr_id,
        slot.remote_addr,
        u64::from_ne_bytes([r0, r1, r2, r3, slot.opcode, slot.flags, n0, n1]),
        u64::from_ne_bytes([l0, l1, l2, l3, z0, z1, z2, z3]),
        0,
        0,
        0,
        0,
    ]
}

pub(super) fn put_sges(words: &mut [u64], sges: impl Iterator<Item = Sge>) {
    for (pair, sge) in words.chunks_exact_mut(2).zip(sges) {
        pair.copy_from_slice(&sge.words());
    }
}

#[inline]
pub(super) fn slot_from_words(words: &[u64; WORDS]) -> WorkSlot {
    let [r0, r1, r2, r3, opcode, flags, ..] = words[COUNT_WORD].to_ne_bytes();
    let [l0, l1, l2, l3, z0, z1, z2, z3] = words[3].to_ne_bytes();
    WorkSlot {
        wr_id: words[0],
        remote_addr: words[1],
        rkey: u32::from_ne_bytes([r0, r1, r2, r3]),
        opcode,
        flags,
        num_sge: num_sge(words[COUNT_WORD]),
        inline_len: u32::from_ne_bytes([l0, l1, l2, l3]),
        reserved: u32::from_ne_bytes([z0, z1, z2, z3]),
        sge: [
            Sge::from_words([words[4], words[5]]),
            Sge::from_words([words[6], words[7]]),
        ],
    }
}

pub(super) fn opcode(word: u64) -> u8 {
    let [_, _, _, _, opcode, ..] = word.to_ne_bytes();
    opcode
}

#[inline]
pub(super) fn num_sge(word: u64) -> u16 {
    let [.., n0, n1] = word.to_ne_bytes();
    u16::from_ne_bytes([n0, n1])
}

pub(super) fn sges_from_words(words: &[u64; WORDS]) -> [Sge; SGES_IN_NEXT_SLOT] {
    std::array::from_fn(|index| Sge::from_words([words[2 * index], words[2 * index + 1]]))
}
