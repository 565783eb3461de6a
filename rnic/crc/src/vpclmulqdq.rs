//! The kernel of 512-bit vectors: four of them are folded over 256 bytes at a time by carry-less
//! multiplication, and in the end all their quarters into one vector of 128 bits.
//!
//! What is ahead of whole vectors goes into one by itself, behind zeros: bytes of zero ahead of all
//! others change neither a CRC whose state is none nor a sum. So nothing is left after the last vector.
//!
//! A vector with a word among bytes that are copied is loaded in two: what is before the word, and,
//! from a word earlier, what is behind it.
#![allow(unsafe_code)]

use std::arch::x86_64::{
    __m512i, __mmask16, _mm_crc32_u64, _mm_cvtsi32_si128, _mm_cvtsi128_si64, _mm_extract_epi64,
    _mm_xor_si128, _mm256_castsi256_si128, _mm256_extracti128_si256, _mm256_xor_si256,
    _mm512_add_epi64, _mm512_castsi512_si256, _mm512_clmulepi64_epi128, _mm512_extracti64x4_epi64,
    _mm512_loadu_si512, _mm512_mask_loadu_epi32, _mm512_mask_set1_epi32, _mm512_mask_storeu_epi8,
    _mm512_maskz_loadu_epi8, _mm512_maskz_loadu_epi32, _mm512_maskz_mov_epi64,
    _mm512_reduce_add_epi64, _mm512_setzero_si512, _mm512_slli_epi64, _mm512_srli_epi64,
    _mm512_storeu_si512, _mm512_sub_epi64, _mm512_xor_si512, _mm512_zextsi128_si512,
};

use crate::constants::fold_by;
use crate::{Words, pclmulqdq};

/// Bytes of a vector.
pub(crate) const VECTOR: usize = 64;
/// Bytes of four vectors.
const TURN: u32 = 4 * VECTOR as u32;

/// The CRC state (not inverted) after `len` bytes, and if `SUM` their sum as words of 32 bits, or
/// another number with the same [`fold`](crate::kernel::fold).
///
/// # Safety
///
/// `len` bytes are readable at `from`; for a copy `len` bytes are writable at `to`, and none of
/// them is of those at `from`.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi2,vpclmulqdq,sse4.2,pclmulqdq")]
pub(crate) unsafe fn run<const SUM: bool, const COPY: bool>(
    crc: u32,
    from: *const u8,
    to: *mut u8,
    len: usize,
) -> (u32, u64) {
    if len < VECTOR {
        // SAFETY: the caller's promise.
        return unsafe { pclmulqdq::run::<SUM, COPY>(crc, from, to, len) };
    }
    // SAFETY: the caller's promise, and there is a vector.
    unsafe { Way::<SUM, COPY, false>::new(from, to, len, Words::NONE).run(crc) }
}

/// As [`run`] for a copy, of `len` bytes of which `words` are some: the CRC state and the sum behind all.
///
/// # Safety
///
/// - `len` bytes, [`VECTOR`] or more, are writable at `to`.
/// - Each of `words` is a whole number of words of 32 bits from their end ([`Words::are_even_to`]), and
///   `VECTOR` or more from the next one.
/// - The bytes of `len` that are not of `words` are readable at `from`, and none is of those at `to`.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi2,vpclmulqdq,sse4.2,pclmulqdq")]
pub(crate) unsafe fn run_among(
    crc: u32,
    from: *const u8,
    to: *mut u8,
    len: usize,
    words: Words,
) -> (u32, u64) {
    // SAFETY: the caller's promise.
    unsafe { Way::<true, true, true>::new(from, to, len, words).run(crc) }
}

/// Bytes, where they go, how many are done, and their sum so far.
struct Way<const SUM: bool, const COPY: bool, const WORDS: bool> {
    /// Where the first byte would be, were there no words before those that are left.
    from: *const u8,
    to: *mut u8,
    len: usize,
    at: usize,
    /// Those that are left.
    words_among: Words,
    /// Sums of words of 64 bits, without what is carried out.
    words: __m512i,
    /// Sums of their later halves.
    halves: __m512i,
}

/// Each method is for a processor with what [`run`] takes.
impl<const SUM: bool, const COPY: bool, const WORDS: bool> Way<SUM, COPY, WORDS> {
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn new(from: *const u8, to: *mut u8, len: usize, words_among: Words) -> Self {
        Self {
            from,
            to,
            len,
            at: 0,
            words_among,
            words: _mm512_setzero_si512(),
            halves: _mm512_setzero_si512(),
        }
    }

    /// The CRC state and the sum behind all.
    ///
    /// # Safety
    ///
    /// What [`run`] and [`run_among`] ask for.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi2,vpclmulqdq,sse4.2,pclmulqdq")]
    unsafe fn run(mut self, crc: u32) -> (u32, u64) {
        let way = &mut self;
        let len = way.len;
        let zero = _mm512_setzero_si512();
        // SAFETY: `len` bytes are the first ones and `len / VECTOR` vectors, one at least.
        unsafe {
            let (first, second) = way.begin(crc);
            let [mut a, mut b, mut c, mut d] = match len / VECTOR % 4 {
                1 => [zero, zero, first, second],
                2 => [zero, first, second, way.vector()],
                3 => [first, second, way.vector(), way.vector()],
                _ => {
                    let second = carried(first, times::<{ VECTOR as u32 }>(), second);
                    [second, way.vector(), way.vector(), way.vector()]
                }
            };
            while way.at < len {
                for vector in [&mut a, &mut b, &mut c, &mut d] {
                    *vector = carried(*vector, times::<TURN>(), way.vector());
                }
            }
            (last([a, b, c, d]), way.sum())
        }
    }

    /// What is ahead of whole vectors, and the first of those, with the state before them.
    ///
    /// # Safety
    ///
    /// There is one, and none of all is done.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi2")]
    unsafe fn begin(&mut self, crc: u32) -> (__m512i, __m512i) {
        let ahead = self.len % VECTOR;
        let wanted = (1_u64 << ahead) - 1;
        // SAFETY: as many bytes are there; an unwanted one is neither read nor written.
        let bytes = unsafe {
            let bytes = if WORDS && self.words_among.are_in(ahead) {
                self.with_word((1 << (ahead / 4)) - 1)
            } else {
                _mm512_maskz_loadu_epi8(wanted, self.from.cast())
            };
            if COPY {
                _mm512_mask_storeu_epi8(self.to.cast(), wanted, bytes);
            }
            bytes
        };
        self.at = ahead;
        let first = at_end(bytes, ahead);
        self.add(first);
        // The state is of the first four bytes, which may lie in both vectors.
        let state = |crc: u32| _mm512_zextsi128_si512(_mm_cvtsi32_si128(crc as i32));
        let here = at_end(state(crc), ahead);
        let there = state(crc.checked_shr(8 * ahead as u32).unwrap_or(0));
        // SAFETY: the caller's promise.
        let second = unsafe { self.vector() };
        (
            _mm512_xor_si512(first, here),
            _mm512_xor_si512(second, there),
        )
    }

    /// The next vector.
    ///
    /// # Safety
    ///
    /// As many bytes are not done.
    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn vector(&mut self) -> __m512i {
        // SAFETY: within what `from` and `to` were promised for; any alignment will do.
        let vector = unsafe {
            let vector = if WORDS && self.words_among.are_in(self.at + VECTOR) {
                self.with_word(!0)
            } else {
                _mm512_loadu_si512(self.from.wrapping_add(self.at).cast())
            };
            if COPY {
                _mm512_storeu_si512(self.to.add(self.at).cast(), vector);
            }
            vector
        };
        self.at += VECTOR;
        self.add(vector);
        vector
    }

    /// The next vector, or as many 32-bit lanes of it as are wanted, in which a word begins.
    ///
    /// # Safety
    ///
    /// As many bytes are not done, and the word is the next one, among them.
    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn with_word(&mut self, wanted: __mmask16) -> __m512i {
        let lane: __mmask16 = 1 << ((self.words_among.first - self.at) / 4);
        let value = self.words_among.value.to_be() as i32;
        let before = lane - 1;
        let from = self.from.wrapping_add(self.at);
        self.from = self.from.wrapping_sub(4);
        self.words_among.advance();
        // SAFETY: within what `from` was promised for: what is before the word, and what is behind it,
        // which begins where the word would; an unwanted lane is not read.
        let vector = unsafe {
            let vector = _mm512_maskz_loadu_epi32(before & wanted, from.cast());
            let behind = !(before | lane) & wanted;
            _mm512_mask_loadu_epi32(vector, behind, from.wrapping_sub(4).cast())
        };
        _mm512_mask_set1_epi32(vector, lane, value)
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn add(&mut self, vector: __m512i) {
        if SUM {
            self.words = _mm512_add_epi64(self.words, vector);
            self.halves = _mm512_add_epi64(self.halves, _mm512_srli_epi64::<32>(vector));
        }
    }

    /// The sum of words of 32 bits, or of 16 bits as [`run`] says.
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn sum(&self) -> u64 {
        // Without the later halves, what is left are the earlier ones, and nothing was carried out.
        let earlier = _mm512_sub_epi64(self.words, _mm512_slli_epi64::<32>(self.halves));
        let sum = _mm512_reduce_add_epi64(_mm512_add_epi64(earlier, self.halves)) as u64;
        // By an odd number of bytes ahead of vectors, each stands in the other half of its word of 16
        // bits (RFC 1071 section 2, B).
        match self.len % 2 {
            0 => sum,
            _ => sum.rotate_left(8),
        }
    }
}

/// The first bytes of a vector, fewer than all, at its end behind zeros.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi2")]
fn at_end(vector: __m512i, bytes: usize) -> __m512i {
    #[cfg(not(miri))]
    return std::arch::x86_64::_mm512_maskz_expand_epi8(!(!0 >> bytes), vector);
    // It does not know this instruction.
    #[cfg(miri)]
    {
        let mut places = [0_u8; 2 * VECTOR];
        // SAFETY: a vector is as many bytes, and the places are more.
        unsafe {
            _mm512_storeu_si512(places[VECTOR - bytes..].as_mut_ptr().cast(), vector);
            _mm512_loadu_si512(places.as_ptr().cast())
        }
    }
}

/// The quarters of a vector, each carried as far as it is multiplied for, onto what lies there.
#[inline]
#[target_feature(enable = "avx512f,vpclmulqdq")]
fn carried(vector: __m512i, times: __m512i, there: __m512i) -> __m512i {
    // The compiler makes one instruction of the two.
    _mm512_xor_si512(
        _mm512_xor_si512(
            _mm512_clmulepi64_epi128::<0x00>(vector, times),
            _mm512_clmulepi64_epi128::<0x11>(vector, times),
        ),
        there,
    )
}

/// What carries all quarters over `BYTES` bytes.
#[inline]
#[target_feature(enable = "avx512f")]
fn times<const BYTES: u32>() -> __m512i {
    let [low, high] = const { fold_by(BYTES) };
    multipliers(&[low, high, low, high, low, high, low, high])
}

/// What carries each quarter over `BYTES` bytes and to where the last one stands.
#[inline]
#[target_feature(enable = "avx512f")]
fn times_to_last<const BYTES: u32>() -> __m512i {
    multipliers(
        const {
            let mut all = [0; 8];
            let mut quarter = 0;
            while quarter < 4 {
                let bytes = BYTES + 16 * (3 - quarter as u32);
                // Over none it is not carried, but kept as it is.
                if bytes > 0 {
                    [all[2 * quarter], all[2 * quarter + 1]] = fold_by(bytes);
                }
                quarter += 1;
            }
            &{ all }
        },
    )
}

#[inline]
#[target_feature(enable = "avx512f")]
fn multipliers(all: &[u64; 8]) -> __m512i {
    // SAFETY: as many bytes as a vector has.
    unsafe { _mm512_loadu_si512(all.as_ptr().cast()) }
}

/// The CRC state after four vectors, of which nothing is behind.
#[inline]
#[target_feature(enable = "avx512f,vpclmulqdq,sse4.2")]
fn last([a, b, c, d]: [__m512i; 4]) -> u32 {
    let kept = _mm512_maskz_mov_epi64(0b1100_0000, d);
    let first = carried(
        a,
        times_to_last::<192>(),
        carried(b, times_to_last::<128>(), kept),
    );
    let second = carried(c, times_to_last::<64>(), _mm512_setzero_si512());
    let vector = carried(d, times_to_last::<0>(), _mm512_xor_si512(first, second));
    let vector = _mm256_xor_si256(
        _mm512_castsi512_si256(vector),
        _mm512_extracti64x4_epi64::<1>(vector),
    );
    let vector = _mm_xor_si128(
        _mm256_castsi256_si128(vector),
        _mm256_extracti128_si256::<1>(vector),
    );
    let crc = _mm_crc32_u64(0, _mm_cvtsi128_si64(vector) as u64);
    _mm_crc32_u64(crc, _mm_extract_epi64::<1>(vector) as u64) as u32
}
