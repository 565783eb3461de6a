//! CRC32C (RFC 5044 section 4.4) over bytes where they lie, and over bytes while they are copied,
//! together with their Internet checksum (RFC 1071): one pass instead of three.
//!
//! The fastest [`Kernel`] that the processor has is chosen at run time. What is copied may belong
//! to another process that writes it meanwhile: each byte is loaded once, and checks and copy are
//! of what was loaded.
//!
//! `unsafe` is what the vector instructions and the raw copies need, and lives in the kernels.
//!
//! ```
//! let mut copy = [0; 9];
//! let checks = rnic_crc::copy(0, b"123456789", &mut copy);
//! assert_eq!(&copy, b"123456789");
//! assert_eq!(checks.crc, 0xe306_9283);
//! assert_eq!(checks, rnic_crc::check(0, b"123456789"));
//! ```

#![deny(unsafe_code)]

mod constants;
mod kernel;
#[cfg(target_arch = "x86_64")]
mod pclmulqdq;
mod portable;
mod sum;
#[cfg(test)]
mod tests;
#[cfg(target_arch = "x86_64")]
mod vpclmulqdq;
#[cfg(target_arch = "x86_64")]
mod vpclmulqdq_avx2;
mod words;

pub use kernel::Kernel;
use kernel::Usable;
pub use words::{Word, Words};

/// What is known of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checks {
    /// The CRC32C of the bytes before and these.
    pub crc: u32,
    /// The one's complement sum of these bytes as big-endian words of 16 bits, not complemented; an
    /// odd last byte is padded with zero.
    pub sum: u16,
}

/// The CRC32C of bytes whose beginning has the CRC `crc` (0 when there is none), and `bytes`.
pub fn append(crc: u32, bytes: &[u8]) -> u32 {
    Usable::best().append(crc, bytes)
}

/// The checks of bytes, in one pass.
#[inline]
pub fn check(crc: u32, bytes: &[u8]) -> Checks {
    Usable::best().check(crc, bytes)
}

/// The checks of big-endian words of 32 bits, by their values. The vectors of [`check`] would load a header
/// that was just written in other pieces than it was stored in, and wait until it is in the cache.
#[inline]
pub fn check_words<const N: usize>(crc: u32, words: [u32; N]) -> Checks {
    Usable::best().check_words(crc, words)
}

/// The one's complement sum of bytes as in [`Checks`], for whoever has no use for their CRC.
pub fn sum(bytes: &[u8]) -> u16 {
    sum::sum(bytes)
}

/// The one's complement sum of two (RFC 1071 section 1).
#[inline]
pub fn add_sums(one: u16, other: u16) -> u16 {
    let (sum, carry) = one.overflowing_add(other);
    sum + u16::from(carry)
}

/// Copies `from` to `to`, as many bytes as both have, and gives the checks of what was copied.
pub fn copy(crc: u32, from: &[u8], to: &mut [u8]) -> Checks {
    Usable::best().copy(crc, from, to)
}

/// Fills `to` with the first bytes of `from` and with `words` among them, and gives the checks of all.
///
/// # Panics
/// When `from` has too few bytes for that.
pub fn copy_among(crc: u32, from: &[u8], to: &mut [u8], words: Words) -> Checks {
    Usable::best().copy_among(crc, from, to, words)
}

/// Fills `to` with the bytes that begin at `from` and with `words` among them, and gives the checks of
/// all. Another process may write what is copied meanwhile.
///
/// # Safety
///
/// As many bytes as `to` has, `words` not counted, are readable there, and none of them is of `to`.
#[inline]
#[allow(unsafe_code)]
pub unsafe fn copy_from(crc: u32, from: *const u8, to: &mut [u8], words: Words) -> Checks {
    // SAFETY: the caller's promise.
    unsafe { Usable::best().copy_from(crc, from, to, words) }
}
