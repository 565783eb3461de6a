//! Which pieces of a stream are known to end with the CRC of what is before.

/// A bit for each piece, the lowest for the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CrcVerified {
    /// The piece is a segment, which ends with the CRC of what is before.
    pub alone: u64,
    /// The piece and the next one are of such a segment.
    pub joined: u64,
}

impl CrcVerified {
    /// Nothing is known.
    pub const NONE: Self = Self {
        alone: 0,
        joined: 0,
    };

    /// Piece number `at` is of a segment that ends with the CRC of what is before. It is the one that the
    /// segment `begins` with or not, and the segment `goes_on` in the next piece or does not.
    #[inline]
    pub fn add(&mut self, at: usize, begins: bool, goes_on: bool) {
        self.alone |= u64::from(begins && !goes_on) << at;
        self.joined |= u64::from(goes_on) << at;
    }

    /// How many pieces the segment has that begins with piece number `at`: 1 when none of several begins
    /// there.
    pub fn segment(&self, at: usize) -> usize {
        let before = at.checked_sub(1).map_or(0, |before| self.from(before) & 1);
        match before {
            0 => self.from(at).trailing_ones() as usize + 1,
            _ => 1,
        }
    }

    fn from(&self, at: usize) -> u64 {
        self.joined.checked_shr(at as u32).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_in_several_pieces_is_known_where_it_begins() {
        let mut verified = CrcVerified::NONE;
        // One in a piece; one in three; one that is not verified, in two; one in two; one in a piece.
        verified.add(0, true, false);
        verified.add(1, true, true);
        verified.add(2, false, true);
        verified.add(3, false, false);
        verified.add(6, true, true);
        verified.add(7, false, false);
        verified.add(8, true, false);
        assert_eq!(verified.alone, 0b1_0000_0001);
        let segments: Vec<usize> = (0..10).map(|at| verified.segment(at)).collect();
        assert_eq!(segments, [1, 3, 1, 1, 1, 1, 2, 1, 1, 1]);
        assert_eq!(verified.segment(64), 1);
    }
}
