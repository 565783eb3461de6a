//! The TSNs that are here (RFC 9260 section 6.2): each chunk is new exactly once, in whatever order chunks come.

#[cfg(test)]
mod tests;

use std::ops::Range;

use crate::chunk::GapBlock;
use crate::tsn::Tsn;

/// Most separate ranges of TSNs beyond the cumulative one. A chunk that would begin another one is not taken; its
/// sender sends it again.
pub const RANGES_MAX: usize = 128;

/// Most duplicates that are named until the next SACK; further ones are not.
pub const DUPLICATES_MAX: usize = 16;

/// The farthest TSN beyond the cumulative one that a SACK can name.
const REACH: u32 = u16::MAX as u32;

/// Whether a chunk's TSN is new.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrival {
    /// It was not here before.
    New,
    /// It was.
    Duplicate,
    /// Too far ahead, or one range too many: as if it had not come.
    NotTaken,
}

/// The TSNs of one association that are here.
#[derive(Debug)]
pub struct Arrivals {
    cumulative: Tsn,
    /// Offsets to `cumulative` of what came beyond it: ascending, apart from each other, none at 1.
    beyond: Vec<Range<u32>>,
    duplicates: Vec<Tsn>,
}

impl Arrivals {
    /// Before the peer's first chunk, which will have the TSN `first`.
    pub fn new(first: Tsn) -> Self {
        Self {
            cumulative: first.previous(),
            beyond: Vec::with_capacity(RANGES_MAX),
            duplicates: Vec::with_capacity(DUPLICATES_MAX),
        }
    }

    /// Every TSN up to this one is here.
    pub const fn cumulative(&self) -> Tsn {
        self.cumulative
    }

    /// Whether something is missing before the latest TSN.
    pub fn has_gap(&self) -> bool {
        !self.beyond.is_empty()
    }

    /// Takes a chunk's TSN.
    pub fn take(&mut self, tsn: Tsn) -> Arrival {
        let offset = tsn.since(self.cumulative);
        // What is not ahead is behind, and was here.
        if offset == 0 || !tsn.is_after(self.cumulative) {
            return self.note_duplicate(tsn);
        }
        if offset > REACH {
            return Arrival::NotTaken;
        }
        let after = self.beyond.partition_point(|range| range.start <= offset);
        let joins_before = match after.checked_sub(1).map(|before| &self.beyond[before]) {
            Some(before) if before.contains(&offset) => return self.note_duplicate(tsn),
            Some(before) => before.end == offset,
            None => false,
        };
        let joins_after = self
            .beyond
            .get(after)
            .is_some_and(|range| range.start == offset + 1);
        match (joins_before, joins_after) {
            (true, true) => {
                let joined = self.beyond.remove(after);
                self.beyond[after - 1].end = joined.end;
            }
            (true, false) => self.beyond[after - 1].end += 1,
            (false, true) => self.beyond[after].start = offset,
            (false, false) if offset == 1 => self.advance(1),
            (false, false) if self.beyond.len() == RANGES_MAX => return Arrival::NotTaken,
            (false, false) => self.beyond.insert(after, offset..offset + 1),
        }
        if self.beyond.first().is_some_and(|first| first.start == 1) {
            let first = self.beyond.remove(0);
            self.advance(first.end - 1);
        }
        Arrival::New
    }

    /// The blocks of a SACK.
    pub fn blocks(&self) -> impl Iterator<Item = GapBlock> + '_ {
        // None is beyond what 16 bits can name.
        self.beyond.iter().map(|range| GapBlock {
            start: range.start as u16,
            end: (range.end - 1) as u16,
        })
    }

    /// Duplicates since [`Self::acknowledged`].
    pub fn duplicates(&self) -> &[Tsn] {
        &self.duplicates
    }

    /// A SACK has told what is here.
    pub fn acknowledged(&mut self) {
        self.duplicates.clear();
    }

    fn note_duplicate(&mut self, tsn: Tsn) -> Arrival {
        if self.duplicates.len() < DUPLICATES_MAX {
            self.duplicates.push(tsn);
        }
        Arrival::Duplicate
    }

    /// The cumulative TSN moves on.
    fn advance(&mut self, count: u32) {
        self.cumulative = self.cumulative.plus(count);
        for range in &mut self.beyond {
            *range = range.start - count..range.end - count;
        }
    }
}
