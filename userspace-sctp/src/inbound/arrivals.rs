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

    /// The highest TSN that is here.
    pub fn highest(&self) -> Tsn {
        let beyond = self.beyond.last().map_or(0, |range| range.end - 1);
        self.cumulative.plus(beyond)
    }

    /// What [`Self::take`] would say of a chunk's TSN.
    pub fn look(&self, tsn: Tsn) -> Arrival {
        let offset = tsn.since(self.cumulative);
        // What is not ahead is behind, and was here.
        if offset == 0 || !tsn.is_after(self.cumulative) {
            return Arrival::Duplicate;
        }
        if offset > REACH {
            return Arrival::NotTaken;
        }
        let after = self.after(offset);
        let before = after.checked_sub(1).map(|before| &self.beyond[before]);
        if before.is_some_and(|before| before.contains(&offset)) {
            return Arrival::Duplicate;
        }
        let joins = offset == 1
            || before.is_some_and(|before| before.end == offset)
            || self.begins(after, offset + 1);
        match joins || self.beyond.len() < RANGES_MAX {
            true => Arrival::New,
            false => Arrival::NotTaken,
        }
    }

    /// Takes a chunk's TSN.
    pub fn take(&mut self, tsn: Tsn) -> Arrival {
        let arrival = self.look(tsn);
        match arrival {
            Arrival::New => self.add(tsn.since(self.cumulative)),
            Arrival::Duplicate if self.duplicates.len() < DUPLICATES_MAX => {
                self.duplicates.push(tsn);
            }
            Arrival::Duplicate | Arrival::NotTaken => {}
        }
        arrival
    }

    /// The range behind `offset`.
    fn after(&self, offset: u32) -> usize {
        self.beyond.partition_point(|range| range.start <= offset)
    }

    fn begins(&self, range: usize, offset: u32) -> bool {
        let range = self.beyond.get(range);
        range.is_some_and(|range| range.start == offset)
    }

    fn add(&mut self, offset: u32) {
        let after = self.after(offset);
        let joins_before = after
            .checked_sub(1)
            .is_some_and(|before| self.beyond[before].end == offset);
        match (joins_before, self.begins(after, offset + 1)) {
            (true, true) => {
                let joined = self.beyond.remove(after);
                self.beyond[after - 1].end = joined.end;
            }
            (true, false) => self.beyond[after - 1].end += 1,
            (false, true) => self.beyond[after].start = offset,
            (false, false) if offset == 1 => self.advance(1),
            (false, false) => self.beyond.insert(after, offset..offset + 1),
        }
        if self.begins(0, 1) {
            let first = self.beyond.remove(0);
            self.advance(first.end - 1);
        }
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

    /// The cumulative TSN moves on.
    fn advance(&mut self, count: u32) {
        self.cumulative = self.cumulative.plus(count);
        for range in &mut self.beyond {
            *range = range.start - count..range.end - count;
        }
    }
}
