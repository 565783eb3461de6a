//! A bounded set of received ranges beyond the in-order point (RFC 9293 section 3.10.7.4,
//! RFC 2018).
//!
//! Its memory is lent by a [`RangePool`] while it holds something. It never holds more than
//! [`RANGES_MAX`] ranges: what a peer scatters wider is refused.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::ops::Range;

use crate::interface::NEW_RANGES_MAX;
use crate::pool::RangePool;
use crate::seq::Position;

/// Most separate ranges of one connection. A segment that would make one more is dropped.
pub(crate) const RANGES_MAX: usize = 1024;

/// Ranges in ascending order, neither overlapping nor touching.
#[derive(Debug, Default)]
pub(crate) struct RangeSet {
    /// Borrowed from the pool while it is not empty.
    ranges: VecDeque<Range<Position>>,
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
    pub(crate) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// In ascending order.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = &Range<Position>> {
        self.ranges.iter()
    }

    /// One past the end of the last range.
    pub(crate) fn end(&self) -> Option<Position> {
        self.ranges.back().map(|range| range.end)
    }

    /// The range that holds `position`.
    pub(crate) fn containing(&self, position: Position) -> Option<Range<Position>> {
        self.overlapping(position..position + 1)
    }

    /// The first range that has bytes of `part`.
    pub(crate) fn overlapping(&self, part: Range<Position>) -> Option<Range<Position>> {
        let index = self.ranges.partition_point(|range| range.end <= part.start);
        self.ranges
            .get(index)
            .filter(|range| range.start < part.end)
            .cloned()
    }

    /// Adds `new` and says which parts were not there. After [`NEW_RANGES_MAX`] gaps the rest of
    /// `new` is left out.
    pub(crate) fn insert(
        &mut self,
        new: Range<Position>,
        pool: &mut RangePool,
    ) -> Result<Gaps, Full> {
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
            if !pool.make_room(&mut self.ranges) {
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

    /// `new` begins before every range. Takes away those that it touches; says which parts of it
    /// were not there, and where what is without a gap from its beginning ends. After
    /// [`NEW_RANGES_MAX`] gaps the rest of `new` is left out.
    pub(crate) fn join_front(
        &mut self,
        new: Range<Position>,
        pool: &mut RangePool,
    ) -> (Gaps, Position) {
        let mut gaps = Gaps::default();
        let mut end = new.start;
        loop {
            let first = self
                .ranges
                .front()
                .map_or(Position::MAX, |range| range.start);
            let gap = end..first.min(new.end);
            if !gap.is_empty() {
                if !gaps.push(gap.clone()) {
                    break;
                }
                end = gap.end;
            }
            if first > end {
                break;
            }
            end = self
                .ranges
                .pop_front()
                .map_or(end, |range| end.max(range.end));
        }
        pool.settle(&mut self.ranges);
        (gaps, end)
    }

    /// Forgets every range.
    pub(crate) fn clear(&mut self, pool: &mut RangePool) {
        self.ranges.clear();
        pool.settle(&mut self.ranges);
    }
}
