//! The peer's SACK blocks (RFC 2018) and what they report twice (RFC 2883).
//!
//! A block mostly repeats what the ones before it have said, and adds a little at its end. So each
//! block is known again by its left edge, and segments that are sacked are skipped as one run.

use userspace_net::Instant;

use super::Outbound;
use super::delivered::{Arrived, Delivered};
use super::slot::SlotState;
use crate::options::{SACK_BLOCKS_MAX, SackBlock};
use crate::seq::{Position, SeqNum};

/// The latest blocks.
#[derive(Debug, Default)]
pub(super) struct SackCache {
    known: [Option<Known>; SACK_BLOCKS_MAX],
    /// The one to be replaced next.
    oldest: u8,
}

/// All segments from `block.left` to before the one named `behind` are sacked.
#[derive(Debug, Clone, Copy)]
struct Known {
    block: SackBlock,
    behind: u32,
}

impl SackCache {
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    fn find(&mut self, left: SeqNum) -> Option<&mut Known> {
        let mut known = self.known.iter_mut().flatten();
        known.find(|known| known.block.left == left)
    }

    fn remember(&mut self, block: SackBlock, behind: u32) {
        let known = Known { block, behind };
        match self.find(block.left) {
            Some(place) => *place = known,
            None => {
                self.known[usize::from(self.oldest)] = Some(known);
                self.oldest = (self.oldest + 1) % SACK_BLOCKS_MAX as u8;
            }
        }
    }
}

impl<B> Outbound<B> {
    /// Notes what the peer's SACK blocks name; blocks that make no sense are ignored. `ack` is the
    /// acknowledgment number that they came with.
    pub(crate) fn note_sacked(
        &mut self,
        blocks: &[SackBlock],
        ack: Position,
        answers: impl Fn(Instant) -> bool,
        delivered: &mut Delivered,
    ) {
        let mut blocks = blocks;
        if let Some((first, others)) = blocks.split_first()
            && let Some(duplicate) = self.duplicate(first, others.first(), ack)
        {
            delivered.duplicate = Some(duplicate);
            blocks = others;
        }
        let before = self.segs_sacked;
        for block in blocks {
            let (left, right) = (self.position(block.left), self.position(block.right));
            let una = self.una.cast_signed();
            if left < una || left >= right || right > self.next.cast_signed() {
                continue;
            }
            let (left, right) = (left.cast_unsigned(), right.cast_unsigned());
            self.sack(block, left, right, &answers, delivered);
        }
        delivered.sacked |= self.segs_sacked > before;
    }

    /// RFC 2883 section 4: the first block reports a duplicate if it lies below the acknowledgment
    /// number or within the second block.
    fn duplicate(
        &self,
        first: &SackBlock,
        second: Option<&SackBlock>,
        ack: Position,
    ) -> Option<(Position, Position)> {
        let (left, right) = (self.position(first.left), self.position(first.right));
        let within = |block: &SackBlock| {
            self.position(block.left) <= left && right <= self.position(block.right)
        };
        let duplicate = right <= ack.cast_signed() || second.is_some_and(within);
        let sound = 1 <= left && left < right && right <= self.next.cast_signed();
        (duplicate && sound).then(|| (left.cast_unsigned(), right.cast_unsigned()))
    }

    fn sack(
        &mut self,
        block: &SackBlock,
        left: Position,
        right: Position,
        answers: &impl Fn(Instant) -> bool,
        delivered: &mut Delivered,
    ) {
        let known = self.sack_cache.find(block.left).map(|known| *known);
        // What lay before the queue was acknowledged since.
        let known = known.filter(|known| self.ring.place(known.behind) <= self.sent);
        let first = match known {
            Some(known) if !known.block.right.before(block.right) => return,
            Some(known) => known.behind,
            None => self.ring.find(left),
        };
        let mut name = first;
        while self.ring.place(name) < self.sent {
            let Some(slot) = self.ring.get(name) else {
                break;
            };
            if slot.state == SlotState::Sacked {
                name = self.behind_sacked(name);
                continue;
            }
            if slot.end() > right {
                break;
            }
            let arrived = Arrived::from(slot);
            let (len, state) = (u64::from(slot.len), slot.state);
            self.leave(name, len, &arrived, state);
            let behind = name.wrapping_add(1);
            if let Some(slot) = self.ring.get_mut(name) {
                slot.state = SlotState::Sacked;
                slot.next = behind;
            }
            self.sacked_bytes += len;
            self.segs_sacked += 1;
            if !arrived.retransmitted {
                delivered.first_sacked = match delivered.first_sacked {
                    Some(first) => Some(first.min(arrived.sent_at)),
                    None => Some(arrived.sent_at),
                };
            }
            delivered.add(&arrived, answers);
            name = behind;
        }
        self.sack_cache.remember(*block, name);
        if let Some(at) = self.fin.at()
            && (left..right).contains(&at)
            && self.fin.sack()
        {
            delivered.sacked = true;
            delivered.add(&self.fin.arrived(at + 1), answers);
        }
    }

    /// The name of the segment that follows a run of sacked ones. What was walked is shortened for the next time.
    pub(super) fn behind_sacked(&mut self, name: u32) -> u32 {
        let mut last = name;
        loop {
            let Some(next) = self.sacked_next(last) else {
                return last;
            };
            let Some(after) = self.sacked_next(next) else {
                return next;
            };
            if let Some(slot) = self.ring.get_mut(last) {
                slot.next = after;
            }
            last = after;
        }
    }

    fn sacked_next(&self, name: u32) -> Option<u32> {
        let slot = self.ring.get(name)?;
        (slot.state == SlotState::Sacked).then_some(slot.next)
    }
}
