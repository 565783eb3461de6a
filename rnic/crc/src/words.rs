//! Words among bytes that are copied: there are more bytes behind the copy than before it.

use std::ops::Range;

/// Bytes of a word.
const LEN: usize = 4;

/// Words of 32 bits, big-endian, that a copy puts among the bytes it copies. One is after the first `first`
/// bytes, then one at every `every` bytes of the copy. Each has a value that is greater by `step` than the one
/// before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Words {
    /// Where in the copy the next one begins.
    pub(crate) first: usize,
    pub(crate) every: usize,
    pub(crate) value: u32,
    step: u32,
}

impl Words {
    /// No words at all.
    pub const NONE: Self = Self::new(usize::MAX, 1 << (usize::BITS - 1), 0, 0);

    /// Words at bytes `first`, `first + every` and so on of what is copied to.
    ///
    /// # Panics
    /// When `every` is no power of two, or less than a word.
    #[inline]
    pub const fn new(first: usize, every: usize, value: u32, step: u32) -> Self {
        assert!(
            every.is_power_of_two() && every >= LEN,
            "words would lie one upon the other, or need a division"
        );
        Self {
            first,
            every,
            value,
            step,
        }
    }

    /// How many of the first `len` bytes of the copy are of no word.
    #[inline]
    pub const fn bytes_of(&self, len: usize) -> usize {
        if !self.are_in(len) {
            return len;
        }
        let behind = len - self.first;
        let words = LEN * (behind >> self.every.trailing_zeros());
        let last = behind & (self.every - 1);
        len - words - if last < LEN { last } else { LEN }
    }

    /// Whether one begins in the first `len` bytes of the copy.
    #[inline]
    pub(crate) const fn are_in(&self, len: usize) -> bool {
        self.first < len
    }

    /// Whether all of them are a whole number of words from the end of `len` bytes, each of them whole.
    #[inline]
    pub(crate) const fn are_even_to(&self, len: usize) -> bool {
        (len | self.first | self.every).is_multiple_of(LEN)
    }

    /// Goes on to the next one behind the first.
    #[inline]
    pub(crate) const fn advance(&mut self) {
        self.first = self.first.saturating_add(self.every);
        self.value = self.value.wrapping_add(self.step);
    }

    /// What the first `len` bytes of the copy are: bytes that are copied, and the word behind
    /// them if there is room for any of it.
    #[inline]
    pub fn runs(mut self, len: usize) -> impl Iterator<Item = (Range<usize>, Word)> {
        let mut at = 0;
        std::iter::from_fn(move || {
            if at >= len {
                return None;
            }
            let bytes = at..self.first.min(len);
            let word = Word {
                bytes: self.value.to_be_bytes(),
                len: LEN.min(len - bytes.end),
            };
            at = bytes.end + word.len;
            self.advance();
            Some((bytes, word))
        })
    }
}

/// A word, or as much of it as there is room for: nothing where there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Word {
    bytes: [u8; LEN],
    len: usize,
}

impl std::ops::Deref for Word {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}
