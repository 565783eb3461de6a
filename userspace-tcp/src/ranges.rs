//! A bounded set of received ranges beyond the in-order point (RFC 9293 section 3.10.7.4,
//! RFC 2018).
//!
//! It never holds more than [`RANGES_MAX`] ranges: what a peer scatters wider is refused.

#[cfg(test)]
mod tests;

use std::ops::Range;

use crate::interface::NEW_RANGES_MAX;
use crate::pool::RangePool;
use crate::seq::Position;

/// Most separate ranges kept for one connection. A segment that would make one more is dropped.
pub(crate) const RANGES_MAX: usize = 32;

/// Ranges in ascending order, neither overlapping nor touching. Borrowed from the
/// pool while it is not empty.
#[derive(Debug, Default)]
pub(crate) struct RangeSet {
    ranges: Vec<Range<Position>>,
}

/// The set has no place for one more range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Full;

/// What an insertion added, in ascending order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Gaps {
    gaps: [Range<Position>; NEW_RANGES_MAX],
    count: usize,
}

impl Gaps {
    pub(crate) fn as_slice(&self) -> &[Range<Position>] {
        &self.gaps[..self.count]
    }

    pub(crate) fn push(&mut self, gap: Range<Position>) -> bool {
        let Some(place) = self.gaps.get_mut(self.count) else {
            return false;
        };
        *place = gap;
        self.count += 1;
        true
    }
}

impl RangeSet {
    /// Borrows memory for as many ranges as there may be.
    pub(crate) fn make_room(&mut self, pool: &mut RangePool) {
        pool.make_room(&mut self.ranges);
    }

    /// Gives the memory back if the set is empty.
    pub(crate) fn settle(&mut self, pool: &mut RangePool) {
        pool.settle(&mut self.ranges);
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self, pool: &mut RangePool) {
        self.ranges.clear();
        pool.settle(&mut self.ranges);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    pub(crate) fn as_slice(&self) -> &[Range<Position>] {
        &self.ranges
    }

    /// The range that holds `position`.
    pub(crate) fn containing(&self, position: Position) -> Option<Range<Position>> {
        let index = self.ranges.partition_point(|range| range.end <= position);
        self.ranges
            .get(index)
            .filter(|range| range.start <= position)
            .cloned()
    }

    /// Adds `new` and says which parts were not there. After [`NEW_RANGES_MAX`] gaps the rest of
    /// `new` is left out. A range that begins at `base`, where [`RangeSet::take_front`] will take
    /// it away, always finds a place.
    pub(crate) fn insert(&mut self, new: Range<Position>, base: Position) -> Result<Gaps, Full> {
        let mut gaps = Gaps::default();
        let mut end = new.end;
        // Those that touch or overlap: lo..hi.
        let lo = self.ranges.partition_point(|range| range.end < new.start);
        let mut hi = lo;
        let mut cursor = new.start;
        while let Some(range) = self.ranges.get(hi).filter(|range| range.start <= end) {
            if cursor < range.start && !gaps.push(cursor..range.start) {
                end = cursor;
                break;
            }
            cursor = cursor.max(range.end);
            hi += 1;
        }
        if cursor < end && !gaps.push(cursor..end) {
            end = cursor;
        }
        if gaps.count == 0 {
            return Ok(gaps);
        }
        if lo == hi {
            if self.ranges.len() >= RANGES_MAX && new.start != base {
                return Err(Full);
            }
            self.ranges.insert(lo, new.start..end);
        } else {
            let start = new.start.min(self.ranges[lo].start);
            let end = end.max(self.ranges[hi - 1].end);
            self.ranges[lo] = start..end;
            self.ranges.drain(lo + 1..hi);
        }
        Ok(gaps)
    }

    /// Takes away the first range if it begins at or before `base`, and returns its end.
    pub(crate) fn take_front(&mut self, base: Position) -> Option<Position> {
        let first = self.ranges.first().filter(|range| range.start <= base)?;
        let end = first.end;
        self.ranges.remove(0);
        Some(end)
    }
}
