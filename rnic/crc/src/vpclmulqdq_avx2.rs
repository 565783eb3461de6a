//! The kernel of 256-bit vectors, for processors that multiply these without carry and have no vectors of 512
//! bits. Four of them are folded over 128 bytes at a time, then into one of 128 bits. From there on
//! [`pclmulqdq`] does the rest.
//!
//! Every byte is loaded once, into a register that is then stored, summed and folded.
#![allow(unsafe_code)]

use std::arch::x86_64::{
    __m128i, __m256i, _mm_add_epi64, _mm_cvtsi32_si128, _mm_xor_si128, _mm256_add_epi64,
    _mm256_castsi256_si128, _mm256_clmulepi64_epi128, _mm256_extracti128_si256, _mm256_loadu_si256,
    _mm256_set_epi64x, _mm256_setzero_si256, _mm256_srli_epi64, _mm256_storeu_si256,
    _mm256_xor_si256, _mm256_zextsi128_si256,
};

use crate::constants::fold_by;
use crate::pclmulqdq::{self, fold};

/// Bytes of a vector.
const VECTOR: usize = 32;
/// Bytes of four vectors.
const TURN: usize = 4 * VECTOR;

/// The sums of bytes so far, as [`pclmulqdq::Way`] has them.
struct Sums {
    words: __m256i,
    halves: __m256i,
}

/// The CRC state (not inverted) after `len` bytes, and if `SUM` their sum as words of 32 bits.
///
/// # Safety
///
/// `len` bytes are readable at `from`; for a copy `len` bytes are writable at `to`, and none of
/// them is of those at `from`.
#[target_feature(enable = "avx2,vpclmulqdq,sse4.2,pclmulqdq")]
pub(crate) unsafe fn run<const SUM: bool, const COPY: bool>(
    crc: u32,
    from: *const u8,
    to: *mut u8,
    len: usize,
) -> (u32, u64) {
    if len < TURN {
        // SAFETY: the caller's promise.
        return unsafe { pclmulqdq::run::<SUM, COPY>(crc, from, to, len) };
    }
    let mut sums = Sums {
        words: _mm256_setzero_si256(),
        halves: _mm256_setzero_si256(),
    };
    let mut at = 0;
    let mut next = || {
        // SAFETY: it is asked for only while as many bytes are left; any alignment will do.
        let vector = unsafe { vector::<COPY>(from.add(at), to.wrapping_add(at)) };
        if SUM {
            sums.add(vector);
        }
        at += VECTOR;
        vector
    };
    let begin = _mm256_zextsi128_si256(_mm_cvtsi32_si128(crc as i32));
    let [mut a, mut b, mut c, mut d] = [_mm256_xor_si256(next(), begin), next(), next(), next()];
    for _ in 1..len / TURN {
        for vector in [&mut a, &mut b, &mut c, &mut d] {
            *vector = carried::<{ TURN as u32 }>(*vector, next());
        }
    }
    let mut all = a;
    for vector in [b, c, d] {
        all = carried::<{ VECTOR as u32 }>(all, vector);
    }
    for _ in 0..len % TURN / VECTOR {
        all = carried::<{ VECTOR as u32 }>(all, next());
    }
    let [first, second] = halves(all);
    let vector = _mm_xor_si128(fold::<16>(first), second);
    // SAFETY: the bytes behind those that are done are within the caller's promise.
    let mut way =
        unsafe { pclmulqdq::Way::<SUM, COPY>::new(from.add(at), to.wrapping_add(at), len - at) };
    let [low, high] = halves(sums.words);
    way.words = _mm_add_epi64(low, high);
    let [low, high] = halves(sums.halves);
    way.halves = _mm_add_epi64(low, high);
    // SAFETY: as many bytes are left as it was made for.
    unsafe { way.finish(vector) }
}

impl Sums {
    #[inline]
    #[target_feature(enable = "avx2")]
    fn add(&mut self, vector: __m256i) {
        self.words = _mm256_add_epi64(self.words, vector);
        self.halves = _mm256_add_epi64(self.halves, _mm256_srli_epi64::<32>(vector));
    }
}

/// A vector of bytes, which are copied on the way if `COPY`.
///
/// # Safety
///
/// As many bytes are readable at `from`, and for a copy writable at `to`.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn vector<const COPY: bool>(from: *const u8, to: *mut u8) -> __m256i {
    // SAFETY: the caller's promise.
    unsafe {
        let vector = _mm256_loadu_si256(from.cast());
        if COPY {
            _mm256_storeu_si256(to.cast(), vector);
        }
        vector
    }
}

/// The halves of a vector, each carried over `BYTES` bytes, onto what lies there.
#[inline]
#[target_feature(enable = "avx2,vpclmulqdq")]
fn carried<const BYTES: u32>(vector: __m256i, there: __m256i) -> __m256i {
    let [low, high] = const { fold_by(BYTES) };
    let (low, high) = (low as i64, high as i64);
    let times = _mm256_set_epi64x(high, low, high, low);
    let earlier = _mm256_clmulepi64_epi128::<0x00>(vector, times);
    let later = _mm256_clmulepi64_epi128::<0x11>(vector, times);
    _mm256_xor_si256(_mm256_xor_si256(earlier, later), there)
}

/// The first and the second half of a vector.
#[inline]
#[target_feature(enable = "avx2")]
fn halves(vector: __m256i) -> [__m128i; 2] {
    [
        _mm256_castsi256_si128(vector),
        _mm256_extracti128_si256::<1>(vector),
    ]
}
