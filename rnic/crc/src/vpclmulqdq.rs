//! The kernel of 512-bit vectors: four of them are folded over 256 octets at a time by carry-less
//! multiplication, then into one, into its quarters, and [`pclmulqdq`](crate::pclmulqdq) does the
//! rest. What is shorter than two turns is left to that kernel: the way in and out costs more.
#![allow(unsafe_code)]

use std::arch::x86_64::{
    __m512i, _mm_cvtsi32_si128, _mm_xor_si128, _mm512_add_epi64, _mm512_and_si512,
    _mm512_clmulepi64_epi128, _mm512_extracti32x4_epi32, _mm512_loadu_si512,
    _mm512_reduce_add_epi64, _mm512_set_epi64, _mm512_set1_epi64, _mm512_setzero_si512,
    _mm512_srli_epi64, _mm512_storeu_si512, _mm512_xor_si512, _mm512_zextsi128_si512,
};

use crate::constants::fold_by;
use crate::pclmulqdq::{self, Way};

/// Octets of four vectors.
const TURN: usize = 256;
/// Octets of a vector.
const VECTOR: usize = 64;

/// The CRC state (not inverted) after `len` octets, and if `SUM` their sum as words of 32 bits.
///
/// # Safety
///
/// `len` octets are readable at `from`; for a copy `len` octets are writable at `to`, and none of
/// them is of those at `from`.
#[target_feature(enable = "avx512f,vpclmulqdq,sse4.2,pclmulqdq")]
pub(crate) unsafe fn run<const SUM: bool, const COPY: bool>(
    crc: u32,
    from: *const u8,
    to: *mut u8,
    len: usize,
) -> (u32, u64) {
    if len < 2 * TURN {
        // SAFETY: the caller's promise.
        return unsafe { pclmulqdq::run::<SUM, COPY>(crc, from, to, len) };
    }
    let mut sums = _mm512_setzero_si512();
    let mut at = 0;
    // SAFETY: vectors are taken only where `at + VECTOR <= len`.
    let mut next = || unsafe {
        let vector = _mm512_loadu_si512(from.add(at).cast());
        if COPY {
            _mm512_storeu_si512(to.add(at).cast(), vector);
        }
        if SUM {
            let low = _mm512_and_si512(vector, _mm512_set1_epi64(0xffff_ffff));
            let words = _mm512_add_epi64(low, _mm512_srli_epi64::<32>(vector));
            sums = _mm512_add_epi64(sums, words);
        }
        at += VECTOR;
        vector
    };
    let mut vectors = [next(), next(), next(), next()];
    let begin = _mm512_zextsi128_si512(_mm_cvtsi32_si128(crc as i32));
    vectors[0] = _mm512_xor_si512(vectors[0], begin);
    for _ in 1..len / TURN {
        for vector in &mut vectors {
            *vector = fold_onto::<{ TURN as u32 }>(*vector, next());
        }
    }
    let [first, second, third, fourth] = vectors;
    let vector = fold_onto::<{ VECTOR as u32 }>(first, second);
    let vector = fold_onto::<{ VECTOR as u32 }>(vector, third);
    let mut vector = fold_onto::<{ VECTOR as u32 }>(vector, fourth);
    for _ in 0..len % TURN / VECTOR {
        vector = fold_onto::<{ VECTOR as u32 }>(vector, next());
    }
    let first = pclmulqdq::fold::<48>(_mm512_extracti32x4_epi32::<0>(vector));
    let second = pclmulqdq::fold::<32>(_mm512_extracti32x4_epi32::<1>(vector));
    let third = pclmulqdq::fold::<16>(_mm512_extracti32x4_epi32::<2>(vector));
    let fourth = _mm512_extracti32x4_epi32::<3>(vector);
    let vector = _mm_xor_si128(_mm_xor_si128(first, second), _mm_xor_si128(third, fourth));
    let mut way = Way::<SUM, COPY>::new(from, to, len);
    // SAFETY: `at` octets are done, and the others are left.
    unsafe {
        way.done(at, _mm512_reduce_add_epi64(sums) as u64);
        way.finish(vector)
    }
}

/// Quarters carried over `OCTETS` octets, onto what lies there.
#[inline]
#[target_feature(enable = "avx512f,vpclmulqdq")]
fn fold_onto<const OCTETS: u32>(vector: __m512i, there: __m512i) -> __m512i {
    let by = const { fold_by(OCTETS) };
    let [low, high] = [by[0] as i64, by[1] as i64];
    let by = _mm512_set_epi64(high, low, high, low, high, low, high, low);
    // The compiler makes one instruction of the two.
    _mm512_xor_si512(
        _mm512_xor_si512(
            _mm512_clmulepi64_epi128::<0x00>(vector, by),
            _mm512_clmulepi64_epi128::<0x11>(vector, by),
        ),
        there,
    )
}
