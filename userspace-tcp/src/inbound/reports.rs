//! What acknowledgments have to tell beyond RCV.NXT. With SACK these are the blocks in their order (RFC 2018
//! section 4) and duplicates (D-SACK, RFC 2883 section 4). Without it, it is the count of segments out of order
//! (RFC 5681 section 3.2).
//!
//! All of it goes in segments without payload. What several segments brought before the first
//! acknowledgment could go out takes several of them, so that nothing stays untold.

use userspace_net::ranges::RangeSet;

use crate::options::{SACK_BLOCKS_MAX, SackBlock, SackBlocks};
use crate::seq::{Position, SeqNum, Space};

/// Ranges whose order of arrival is remembered.
const RECENT_MAX: usize = 8;

/// Duplicates that wait to be reported; further ones are joined to the last if they touch it, else
/// never reported.
const DUPLICATES_MAX: usize = SACK_BLOCKS_MAX;

/// Without SACK: most duplicate acknowledgments that wait to be sent.
const OWED_MAX: u8 = 16;

/// What is to be reported.
#[derive(Debug)]
pub(super) struct Reports {
    /// SACK is in use.
    sack: bool,
    /// An acknowledgment without payload has to go out.
    due: bool,
    /// One place in each range that grew last, latest first.
    recent: [SeqNum; RECENT_MAX],
    recent_count: u8,
    /// So many of `recent` were not reported yet.
    untold: u8,
    /// Oldest first.
    duplicates: [SackBlock; DUPLICATES_MAX],
    duplicates_count: u8,
    /// Without SACK: duplicate acknowledgments to send.
    owed: u8,
}

/// What was received beyond RCV.NXT, in numbers of the wire.
#[derive(Clone, Copy)]
pub(super) struct Held<'a> {
    pub(super) space: Space,
    pub(super) next: Position,
    pub(super) ranges: &'a RangeSet,
}

impl Held<'_> {
    /// The range that holds `at`.
    fn block_at(&self, at: SeqNum) -> Option<SackBlock> {
        let position = self.space.position(self.next, at);
        let range = self.ranges.containing(u64::try_from(position).ok()?)?;
        Some(SackBlock {
            left: self.space.wire(range.start),
            right: self.space.wire(range.end),
        })
    }
}

impl Reports {
    pub(super) fn new(sack: bool) -> Self {
        Self {
            sack,
            due: false,
            recent: [SeqNum(0); RECENT_MAX],
            recent_count: 0,
            untold: 0,
            duplicates: [SackBlock::default(); DUPLICATES_MAX],
            duplicates_count: 0,
            owed: 0,
        }
    }

    /// Whether an acknowledgment without payload has to go out.
    pub(super) fn due(&self) -> bool {
        self.due
    }

    /// An acknowledgment goes out at once; while something is held, it says what.
    pub(super) fn at_once(&mut self, held: &Held<'_>) {
        self.due |= self.sack && !held.ranges.is_empty();
    }

    /// A segment left a hole before it or fell into one, and RCV.NXT stayed.
    pub(super) fn out_of_order(&mut self) {
        if !self.sack {
            self.owed = (self.owed + 1).min(OWED_MAX);
            self.due = true;
        }
    }

    /// The range that holds `at` grew.
    pub(super) fn grew(&mut self, at: SeqNum, held: &Held<'_>) {
        let Some(block) = held.block_at(at).filter(|_| self.sack) else {
            return;
        };
        self.due = true;
        let inside = |at: SeqNum| at.distance(block.left) >= 0 && at.before(block.right);
        let count = usize::from(self.recent_count);
        if count > 0 && inside(self.recent[0]) {
            self.untold = self.untold.max(1);
            return;
        }
        let (old, untold) = (self.recent, usize::from(self.untold));
        self.recent[0] = at;
        self.recent_count = 1;
        self.untold = 1;
        for (index, &other) in old[..count].iter().enumerate() {
            let place = usize::from(self.recent_count);
            if place == RECENT_MAX {
                break;
            }
            if !inside(other) {
                self.recent[place] = other;
                self.recent_count += 1;
                self.untold += u8::from(index < untold);
            }
        }
    }

    /// Bytes from `left` up to `right` came again.
    pub(super) fn duplicate(&mut self, left: SeqNum, right: SeqNum) {
        if !self.sack {
            return;
        }
        self.due = true;
        let count = usize::from(self.duplicates_count);
        if let Some(place) = self.duplicates.get_mut(count) {
            *place = SackBlock { left, right };
            self.duplicates_count += 1;
        } else if self.duplicates[DUPLICATES_MAX - 1].right == left {
            self.duplicates[DUPLICATES_MAX - 1].right = right;
        }
    }

    /// Nothing is held any more.
    pub(super) fn nothing_held(&mut self) {
        self.recent_count = 0;
        self.untold = 0;
    }

    /// The SACK blocks of an acknowledgment that goes out: at most `room`, which is not 0.
    pub(super) fn blocks(&mut self, room: usize, held: &Held<'_>) -> SackBlocks {
        debug_assert!(room > 0);
        let room = room.clamp(1, SACK_BLOCKS_MAX);
        let mut blocks = SackBlocks::default();
        if self.sack {
            let duplicate = self.take_duplicate();
            if let Some(duplicate) = duplicate {
                blocks.push(duplicate);
                if let Some(block) = held.block_at(duplicate.left) {
                    blocks.push(block);
                }
            }
            // The D-SACK block itself names no range.
            let own = usize::from(duplicate.is_some());
            self.tell_latest(room, own, held, &mut blocks);
            fill(room, own, self.recent_blocks(held), &mut blocks);
            let highest = held.ranges.iter().rev().map(|range| SackBlock {
                left: held.space.wire(range.start),
                right: held.space.wire(range.end),
            });
            fill(room, own, highest, &mut blocks);
        }
        self.owed = self.owed.saturating_sub(1);
        self.due = self.untold > 0 || self.duplicates_count > 0 || self.owed > 0;
        blocks
    }

    fn take_duplicate(&mut self) -> Option<SackBlock> {
        let first = (self.duplicates_count > 0).then(|| self.duplicates[0]);
        self.duplicates.rotate_left(1);
        self.duplicates_count = self.duplicates_count.saturating_sub(1);
        first
    }

    /// Ranges that were not reported yet: as many of the oldest as find place, the latest of them
    /// first.
    fn tell_latest(&mut self, room: usize, own: usize, held: &Held<'_>, blocks: &mut SackBlocks) {
        let mut group = SackBlocks::default();
        while let Some(last) = usize::from(self.untold).checked_sub(1) {
            let told = |block: &SackBlock| {
                blocks.as_slice()[own..].contains(block) || group.as_slice().contains(block)
            };
            let block = held.block_at(self.recent[last]);
            if let Some(block) = block.filter(|block| !told(block)) {
                if blocks.as_slice().len() + group.as_slice().len() >= room {
                    break;
                }
                group.push(block);
            }
            self.untold -= 1;
        }
        for &block in group.as_slice().iter().rev() {
            blocks.push(block);
        }
    }

    fn recent_blocks<'a>(&'a self, held: &'a Held<'_>) -> impl Iterator<Item = SackBlock> + 'a {
        let recent = &self.recent[..usize::from(self.recent_count)];
        recent.iter().filter_map(|&at| held.block_at(at))
    }
}

/// Appends what is not there yet behind the first `own` blocks, up to `room`.
fn fill(room: usize, own: usize, from: impl Iterator<Item = SackBlock>, blocks: &mut SackBlocks) {
    for block in from {
        if blocks.as_slice().len() >= room {
            return;
        }
        if !blocks.as_slice()[own..].contains(&block) {
            blocks.push(block);
        }
    }
}
