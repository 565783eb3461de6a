//! The ways in which the checks can be computed, and which one this processor takes.
//!
//! Invariant of the `unsafe` here: a [`Usable`] is a way for which this processor has what it takes. Only
//! [`Usable::best`] and [`Kernel::usable`] make one.
#![allow(unsafe_code)]

use std::sync::OnceLock;

use crate::{Checks, Words, add_sums, portable};
#[cfg(target_arch = "x86_64")]
use crate::{pclmulqdq, vpclmulqdq, vpclmulqdq_avx2};

/// A way to compute the checks; the fastest comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kernel {
    /// Carry-less multiplication of vectors of 512 bits (x86-64 with VPCLMULQDQ and AVX-512F, BW and
    /// VBMI2).
    Vpclmulqdq,
    /// Carry-less multiplication of vectors of 256 bits (x86-64 with VPCLMULQDQ and AVX2).
    VpclmulqdqAvx2,
    /// Carry-less multiplication of vectors of 128 bits (x86-64 with PCLMULQDQ and SSE4.2).
    Pclmulqdq,
    /// The processor's CRC32C instruction (x86-64, aarch64), or tables where it has none.
    Portable,
}

impl Kernel {
    /// All of them, the fastest first.
    pub const ALL: [Self; 4] = [
        Self::Vpclmulqdq,
        Self::VpclmulqdqAvx2,
        Self::Pclmulqdq,
        Self::Portable,
    ];

    /// The fastest that this processor has.
    #[inline]
    pub fn best() -> Self {
        // One look at one word, which is asked for each time that bytes are.
        static BEST: OnceLock<Kernel> = OnceLock::new();
        *BEST.get_or_init(Self::detect)
    }

    #[cold]
    fn detect() -> Self {
        #[cfg(target_arch = "x86_64")]
        if std::arch::is_x86_feature_detected!("pclmulqdq")
            && std::arch::is_x86_feature_detected!("sse4.2")
        {
            if !std::arch::is_x86_feature_detected!("vpclmulqdq")
                || !std::arch::is_x86_feature_detected!("avx2")
            {
                return Self::Pclmulqdq;
            }
            if std::arch::is_x86_feature_detected!("avx512f")
                && std::arch::is_x86_feature_detected!("avx512bw")
                && std::arch::is_x86_feature_detected!("avx512vbmi2")
            {
                return Self::Vpclmulqdq;
            }
            return Self::VpclmulqdqAvx2;
        }
        Self::Portable
    }

    /// Whether this processor has what it takes.
    #[inline]
    pub fn is_available(self) -> bool {
        // Each takes what the slower ones take.
        self >= Self::best()
    }

    /// Its name, as logs and benchmarks have it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Vpclmulqdq => "vpclmulqdq",
            Self::VpclmulqdqAvx2 => "vpclmulqdq-avx2",
            Self::Pclmulqdq => "pclmulqdq",
            Self::Portable => "portable",
        }
    }

    /// This way, or the portable one where this is not available.
    fn usable(self) -> Usable {
        Usable(match self.is_available() {
            true => self,
            false => Self::Portable,
        })
    }

    /// [`append`](crate::append) in this way; in the portable one where this is not available.
    pub fn append(self, crc: u32, bytes: &[u8]) -> u32 {
        self.usable().append(crc, bytes)
    }

    /// [`check`](crate::check) in this way; in the portable one where this is not available.
    pub fn check(self, crc: u32, bytes: &[u8]) -> Checks {
        self.usable().check(crc, bytes)
    }

    /// [`check_words`](crate::check_words) in this way; in the portable one where this is not available.
    pub fn check_words<const N: usize>(self, crc: u32, words: [u32; N]) -> Checks {
        self.usable().check_words(crc, words)
    }

    /// [`copy`](crate::copy) in this way; in the portable one where this is not available.
    pub fn copy(self, crc: u32, from: &[u8], to: &mut [u8]) -> Checks {
        self.usable().copy(crc, from, to)
    }

    /// [`copy_among`](crate::copy_among) in this way; in the portable one where this is not available.
    pub fn copy_among(self, crc: u32, from: &[u8], to: &mut [u8], words: Words) -> Checks {
        self.usable().copy_among(crc, from, to, words)
    }

    /// [`copy_from`](crate::copy_from) in this way; in the portable one where this is not available.
    ///
    /// # Safety
    ///
    /// `to.len()` bytes, `words` not counted, are readable at `from`, and none of them is of `to`.
    pub unsafe fn copy_from(
        self,
        crc: u32,
        from: *const u8,
        to: &mut [u8],
        words: Words,
    ) -> Checks {
        // SAFETY: the caller's promise.
        unsafe { self.usable().copy_from(crc, from, to, words) }
    }
}

/// A way for which this processor has what it takes, which is found out when one is made, and not again
/// for all bytes that it is used for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Usable(Kernel);

impl Usable {
    #[inline]
    pub fn best() -> Self {
        Self(Kernel::best())
    }

    /// [`append`](crate::append) in this way.
    pub fn append(self, crc: u32, bytes: &[u8]) -> u32 {
        // SAFETY: a kernel that doesn't copy reads so many bytes, and writes none.
        let (crc, _) = unsafe {
            self.run::<false, false>(crc, bytes.as_ptr(), std::ptr::null_mut(), bytes.len())
        };
        crc
    }

    /// [`check`](crate::check) in this way.
    #[inline]
    pub fn check(self, crc: u32, bytes: &[u8]) -> Checks {
        // SAFETY: a kernel that doesn't copy reads so many bytes, and writes none.
        let (crc, words) = unsafe {
            self.run::<true, false>(crc, bytes.as_ptr(), std::ptr::null_mut(), bytes.len())
        };
        Checks::new(crc, words)
    }

    /// [`check_words`](crate::check_words) in this way.
    #[inline]
    pub fn check_words<const N: usize>(self, crc: u32, words: [u32; N]) -> Checks {
        let sum = words.iter().map(|word| u64::from(word.to_be())).sum();
        #[cfg(target_arch = "x86_64")]
        if self.0 != Kernel::Portable {
            // SAFETY: who has the faster way has what this one takes.
            return Checks::new(!unsafe { pclmulqdq::words(!crc, words) }, sum);
        }
        let bytes = words.map(u32::to_be_bytes);
        Checks::new(crc32c::crc32c_append(crc, bytes.as_flattened()), sum)
    }

    /// [`copy`](crate::copy) in this way.
    pub fn copy(self, crc: u32, from: &[u8], to: &mut [u8]) -> Checks {
        let len = from.len().min(to.len());
        self.copy_among(crc, from, &mut to[..len], Words::NONE)
    }

    /// [`copy_among`](crate::copy_among) in this way.
    pub fn copy_among(self, crc: u32, from: &[u8], to: &mut [u8], words: Words) -> Checks {
        let needed = words.bytes_of(to.len());
        assert!(needed <= from.len(), "{needed} bytes of {}", from.len());
        // SAFETY: so many bytes are readable, and a shared slice is no part of an exclusive one.
        unsafe { self.copy_from(crc, from.as_ptr(), to, words) }
    }

    /// [`copy_from`](crate::copy_from) in this way.
    ///
    /// # Safety
    ///
    /// `to.len()` bytes, `words` not counted, are readable at `from`, and none of them is of `to`.
    #[inline]
    pub unsafe fn copy_from(
        self,
        crc: u32,
        from: *const u8,
        to: &mut [u8],
        words: Words,
    ) -> Checks {
        let len = to.len();
        if words.are_in(len) {
            // SAFETY: the caller's promise.
            return unsafe { self.copy_with_words(crc, from, to, words) };
        }
        // SAFETY: the caller's promise, and `to` is writable.
        let (crc, sum) = unsafe { self.run::<true, true>(crc, from, to.as_mut_ptr(), len) };
        Checks::new(crc, sum)
    }

    /// As [`Self::copy_from`], where there are words.
    ///
    /// # Safety
    ///
    /// The same.
    unsafe fn copy_with_words(
        self,
        crc: u32,
        from: *const u8,
        to: &mut [u8],
        words: Words,
    ) -> Checks {
        #[cfg(target_arch = "x86_64")]
        if self.0 == Kernel::Vpclmulqdq
            && to.len().min(words.every) >= vpclmulqdq::VECTOR
            && words.are_even_to(to.len())
        {
            // SAFETY: the processor has what it takes, and words and room are as they have to be; else the
            // caller's promise.
            let (crc, sum) =
                unsafe { vpclmulqdq::run_among(!crc, from, to.as_mut_ptr(), to.len(), words) };
            return Checks::new(!crc, sum);
        }
        let (mut checks, mut from) = (Checks { crc, sum: 0 }, from);
        for (bytes, word) in words.runs(to.len()) {
            let (begin, end) = (bytes.start, bytes.end);
            let place = &mut to[bytes];
            // SAFETY: the caller's promise: so many bytes are behind those of the runs before, and
            // the place is writable.
            let (crc, sum) = unsafe {
                self.run::<true, true>(checks.crc, from, place.as_mut_ptr(), place.len())
            };
            checks = checks.then(begin, Checks::new(crc, sum));
            // SAFETY: within them, or one past the end.
            from = unsafe { from.add(end - begin) };
            to[end..end + word.len()].copy_from_slice(&word);
            checks = checks.then(end, self.check(checks.crc, &word));
        }
        checks
    }

    /// The CRC, and if `SUM` the sum of the bytes as words of 32 bits of this machine.
    ///
    /// # Safety
    ///
    /// `len` bytes are readable at `from`; for a copy `len` bytes are writable at `to`, and none
    /// of them is of those at `from`.
    #[inline]
    unsafe fn run<const SUM: bool, const COPY: bool>(
        self,
        crc: u32,
        from: *const u8,
        to: *mut u8,
        len: usize,
    ) -> (u32, u64) {
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            Kernel::Vpclmulqdq => {
                // SAFETY: the processor has what it takes; else the caller's promise.
                let (crc, words) = unsafe { vpclmulqdq::run::<SUM, COPY>(!crc, from, to, len) };
                (!crc, words)
            }
            #[cfg(target_arch = "x86_64")]
            Kernel::VpclmulqdqAvx2 => {
                // SAFETY: the processor has what it takes; else the caller's promise.
                let (crc, words) =
                    unsafe { vpclmulqdq_avx2::run::<SUM, COPY>(!crc, from, to, len) };
                (!crc, words)
            }
            #[cfg(target_arch = "x86_64")]
            Kernel::Pclmulqdq => {
                // SAFETY: the processor has what it takes; else the caller's promise.
                let (crc, words) = unsafe { pclmulqdq::run::<SUM, COPY>(!crc, from, to, len) };
                (!crc, words)
            }
            // SAFETY: the caller's promise.
            _ => unsafe { portable::run::<SUM, COPY>(crc, from, to, len) },
        }
    }
}

impl Checks {
    #[inline]
    fn new(crc: u32, words: u64) -> Self {
        Self {
            crc,
            sum: fold(words),
        }
    }

    /// The checks of so many bytes and of those behind them, which are `next`'s, whose CRC is of both.
    #[inline]
    pub fn then(self, bytes: usize, next: Self) -> Self {
        // RFC 1071 section 2 (B): behind an odd number of bytes all words lie the other way round.
        let sum = if bytes.is_multiple_of(2) {
            next.sum
        } else {
            next.sum.swap_bytes()
        };
        Self {
            crc: next.crc,
            sum: add_sums(self.sum, sum),
        }
    }
}

/// The one's complement sum of big-endian words of 16 bits, from that of words of 32 bits of this
/// machine: the carries are added back in (RFC 1071 section 1) until 16 bits are left.
#[inline]
pub(crate) fn fold(words: u64) -> u16 {
    // Twice each: the first time may carry. No branch that is taken for some sums only.
    let words = (words & 0xffff_ffff) + (words >> 32);
    let words = (words & 0xffff_ffff) + (words >> 32);
    let words = (words & 0xffff) + (words >> 16);
    let words = (words & 0xffff) + (words >> 16);
    u16::from_be_bytes((words as u16).to_ne_bytes())
}
