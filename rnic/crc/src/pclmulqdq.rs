//! The kernel of 128-bit vectors: four of them are folded over 64 bytes at a time by carry-less
//! multiplication, then into one, and the last bytes go through the CRC32C instruction.
//!
//! Every byte is loaded once, into a register that is then stored, summed and folded.
#![allow(unsafe_code)]

use std::arch::x86_64::{
    __m128i, _mm_add_epi64, _mm_clmulepi64_si128, _mm_crc32_u8, _mm_crc32_u16, _mm_crc32_u32,
    _mm_crc32_u64, _mm_cvtsi32_si128, _mm_cvtsi128_si64, _mm_extract_epi64, _mm_loadu_si128,
    _mm_set_epi64x, _mm_setzero_si128, _mm_slli_epi64, _mm_srli_epi64, _mm_storeu_si128,
    _mm_sub_epi64, _mm_xor_si128,
};

use crate::constants::fold_by;

/// Bytes that are left, where they go, and their sum so far.
pub(crate) struct Way<const SUM: bool, const COPY: bool> {
    from: *const u8,
    to: *mut u8,
    left: usize,
    /// Two sums of words of 64 bits, without what is carried out.
    pub(crate) words: __m128i,
    /// Two sums of their later halves.
    pub(crate) halves: __m128i,
}

/// The CRC state (not inverted) after `len` bytes, and if `SUM` their sum as words of 32 bits.
///
/// # Safety
///
/// `len` bytes are readable at `from`; for a copy `len` bytes are writable at `to`, and none of
/// them is of those at `from`.
#[target_feature(enable = "sse4.2,pclmulqdq")]
pub(crate) unsafe fn run<const SUM: bool, const COPY: bool>(
    crc: u32,
    from: *const u8,
    to: *mut u8,
    len: usize,
) -> (u32, u64) {
    let mut way = Way::<SUM, COPY>::new(from, to, len);
    // SAFETY: the caller's promise is `Way`'s, and each vector is taken only while it is left.
    unsafe {
        if way.left < 16 {
            return way.tail(crc);
        }
        let begin = _mm_cvtsi32_si128(crc as i32);
        if way.left < 64 {
            let vector = _mm_xor_si128(way.vector(), begin);
            return way.finish(vector);
        }
        let mut vectors = [way.vector(), way.vector(), way.vector(), way.vector()];
        vectors[0] = _mm_xor_si128(vectors[0], begin);
        while way.left >= 64 {
            for vector in &mut vectors {
                *vector = _mm_xor_si128(fold::<64>(*vector), way.vector());
            }
        }
        let [first, second, third, fourth] = vectors;
        let vector = _mm_xor_si128(fold::<16>(first), second);
        let vector = _mm_xor_si128(fold::<16>(vector), third);
        way.finish(_mm_xor_si128(fold::<16>(vector), fourth))
    }
}

/// The CRC state (not inverted) after big-endian words.
#[target_feature(enable = "sse4.2")]
pub(crate) fn words<const N: usize>(crc: u32, words: [u32; N]) -> u32 {
    let (pairs, rest) = words.as_chunks::<2>();
    let mut crc = crc;
    for [first, second] in pairs {
        let pair = u64::from(first.swap_bytes()) | u64::from(second.swap_bytes()) << 32;
        crc = _mm_crc32_u64(crc.into(), pair) as u32;
    }
    for word in rest {
        crc = _mm_crc32_u32(crc, word.swap_bytes());
    }
    crc
}

/// A vector carried over `BYTES` bytes.
#[inline]
#[target_feature(enable = "sse4.2,pclmulqdq")]
pub(crate) fn fold<const BYTES: u32>(vector: __m128i) -> __m128i {
    let by = const { fold_by(BYTES) };
    let by = _mm_set_epi64x(by[1] as i64, by[0] as i64);
    _mm_xor_si128(
        _mm_clmulepi64_si128::<0x00>(vector, by),
        _mm_clmulepi64_si128::<0x11>(vector, by),
    )
}

/// Each method is for a processor with what [`run`] takes, and for as many bytes as are left.
impl<const SUM: bool, const COPY: bool> Way<SUM, COPY> {
    #[inline]
    #[target_feature(enable = "sse4.2,pclmulqdq")]
    pub(crate) fn new(from: *const u8, to: *mut u8, left: usize) -> Self {
        Self {
            from,
            to,
            left,
            words: _mm_setzero_si128(),
            halves: _mm_setzero_si128(),
        }
    }

    /// Goes over `bytes` bytes that were loaded and stored already.
    ///
    /// # Safety
    ///
    /// So many are left.
    #[inline]
    unsafe fn skip(&mut self, bytes: usize) {
        self.left -= bytes;
        // SAFETY: within what `from` and `to` were promised for.
        unsafe {
            self.from = self.from.add(bytes);
            if COPY {
                self.to = self.to.add(bytes);
            }
        }
    }

    /// The next 16 bytes.
    ///
    /// # Safety
    ///
    /// So many are left.
    #[inline]
    #[target_feature(enable = "sse4.2,pclmulqdq")]
    unsafe fn vector(&mut self) -> __m128i {
        // SAFETY: within what `from` and `to` were promised for; any alignment will do.
        unsafe {
            let vector = _mm_loadu_si128(self.from.cast());
            if COPY {
                _mm_storeu_si128(self.to.cast(), vector);
            }
            if SUM {
                self.words = _mm_add_epi64(self.words, vector);
                self.halves = _mm_add_epi64(self.halves, _mm_srli_epi64::<32>(vector));
            }
            self.skip(16);
            vector
        }
    }

    /// The end of it, with all bytes so far in one vector.
    ///
    /// # Safety
    ///
    /// As many bytes are left as `left` says.
    #[inline]
    #[target_feature(enable = "sse4.2,pclmulqdq")]
    pub(crate) unsafe fn finish(mut self, mut vector: __m128i) -> (u32, u64) {
        // SAFETY: each is taken only while it is left.
        unsafe {
            while self.left >= 16 {
                vector = _mm_xor_si128(fold::<16>(vector), self.vector());
            }
            let crc = _mm_crc32_u64(0, _mm_cvtsi128_si64(vector) as u64);
            let crc = _mm_crc32_u64(crc, _mm_extract_epi64::<1>(vector) as u64);
            self.tail(crc as u32)
        }
    }

    /// The last bytes, fewer than 16.
    ///
    /// # Safety
    ///
    /// As many bytes are left as `left` says.
    #[inline]
    #[target_feature(enable = "sse4.2,pclmulqdq")]
    unsafe fn tail(mut self, mut crc: u32) -> (u32, u64) {
        let mut words = 0;
        // SAFETY: each is taken only while it is left.
        unsafe {
            if self.left >= 8 {
                let word: u64 = self.word();
                crc = _mm_crc32_u64(crc.into(), word) as u32;
                words = (word & 0xffff_ffff) + (word >> 32);
            }
            if self.left >= 4 {
                let word: u32 = self.word();
                crc = _mm_crc32_u32(crc, word);
                words += u64::from(word);
            }
            if self.left >= 2 {
                let word: u16 = self.word();
                crc = _mm_crc32_u16(crc, word);
                words += u64::from(word);
            }
            if self.left >= 1 {
                let byte: u8 = self.word();
                crc = _mm_crc32_u8(crc, byte);
                words += u64::from(byte);
            }
        }
        if !SUM {
            return (crc, 0);
        }
        // Without the later halves, what is left are the earlier ones, and nothing was carried out.
        let earlier = _mm_sub_epi64(self.words, _mm_slli_epi64::<32>(self.halves));
        let sums = _mm_add_epi64(earlier, self.halves);
        let low = _mm_cvtsi128_si64(sums) as u64;
        (crc, words + low + _mm_extract_epi64::<1>(sums) as u64)
    }

    /// The next bytes as a number of this machine.
    ///
    /// # Safety
    ///
    /// As many are left as it takes.
    #[inline]
    unsafe fn word<T: Copy>(&mut self) -> T {
        // SAFETY: within what `from` and `to` were promised for.
        unsafe {
            let word = self.from.cast::<T>().read_unaligned();
            if COPY {
                self.to.cast::<T>().write_unaligned(word);
            }
            self.skip(size_of::<T>());
            word
        }
    }
}
