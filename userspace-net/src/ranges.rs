//! A bounded set of what was received beyond the in-order point, by positions that never wrap: of bytes, or of
//! chunks.
//!
//! Its memory is lent by a [`RangePool`] while it holds something. It never holds more ranges than that allows: what
//! a peer scatters wider is refused.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::ops::Range;

use crate::pool::RangePool;

/// Most gaps that one call fills. What is beyond is left out, for its sender to send again.
pub const GAPS_MAX: usize = 4;

/// Ranges in ascending order, neither overlapping nor touching.
#[derive(Debug, Default)]
pub struct RangeSet {
    /// Borrowed from the pool while it is not empty.
    ranges: VecDeque<Range<u64>>,
}

/// The set has no place for one more range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Full;

/// What an insertion added, in ascending order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Gaps {
    gaps: [Range<u64>; GAPS_MAX],
    count: usize,
}

impl Gaps {
    #[inline]
    pub fn as_slice(&self) -> &[Range<u64>] {
        &self.gaps[..self.count]
    }

    fn push(&mut self, gap: Range<u64>) -> bool {
        let Some(place) = self.gaps.get_mut(self.count) else {
            return false;
        };
        *place = gap;
        self.count += 1;
        true
    }
}

impl RangeSet {
    /// Whether nothing is held.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// In ascending order.
    #[inline]
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Range<u64>> {
        self.ranges.iter()
    }

    /// One past the end of the last range.
    #[inline]
    pub fn end(&self) -> Option<u64> {
        self.ranges.back().map(|range| range.end)
    }

    /// The range that holds `position`.
    #[inline]
    pub fn containing(&self, position: u64) -> Option<Range<u64>> {
        self.overlapping(position..position + 1)
    }

    /// The first range that has bytes of `part`.
    pub fn overlapping(&self, part: Range<u64>) -> Option<Range<u64>> {
        let index = self.ranges.partition_point(|range| range.end <= part.start);
        self.ranges
            .get(index)
            .filter(|range| range.start < part.end)
            .cloned()
    }

    /// Adds `new` and says which parts were not there. After [`GAPS_MAX`] gaps the rest of
    /// `new` is left out.
    ///
    /// # Errors
    /// It would be one range more than may be.
    pub fn insert(&mut self, new: Range<u64>, pool: &mut RangePool) -> Result<Gaps, Full> {
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
    /// [`GAPS_MAX`] gaps the rest of `new` is left out.
    pub fn join_front(&mut self, new: Range<u64>, pool: &mut RangePool) -> (Gaps, u64) {
        let mut gaps = Gaps::default();
        let mut end = new.start;
        loop {
            let first = self.ranges.front().map_or(u64::MAX, |range| range.start);
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
    pub fn clear(&mut self, pool: &mut RangePool) {
        self.ranges.clear();
        pool.settle(&mut self.ranges);
    }
}
