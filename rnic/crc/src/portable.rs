//! The kernel for every processor: copied, then checked by the crate `crc32c`, which takes the
//! processor's CRC32C instruction where there is one, and tables elsewhere.
#![allow(unsafe_code)]

/// The CRC, and if `SUM` the sum of the bytes as words of 32 bits of this machine.
///
/// # Safety
///
/// `len` bytes are readable at `from`; for a copy `len` bytes are writable at `to`, and none of
/// them is of those at `from`.
#[inline(never)]
pub(crate) unsafe fn run<const SUM: bool, const COPY: bool>(
    crc: u32,
    from: *const u8,
    to: *mut u8,
    len: usize,
) -> (u32, u64) {
    let bytes = if COPY {
        // SAFETY: the caller's promise.
        unsafe { std::ptr::copy_nonoverlapping(from, to, len) };
        // SAFETY: just written, and nobody else's. What is checked is what was loaded.
        unsafe { std::slice::from_raw_parts(to, len) }
    } else {
        // SAFETY: the caller's promise; without a copy the bytes are this process's own.
        unsafe { std::slice::from_raw_parts(from, len) }
    };
    let sum = if SUM { words(bytes) } else { 0 };
    (crc32c::crc32c_append(crc, bytes), sum)
}

/// The sum of the bytes as words of 32 bits of this machine.
#[inline(always)]
pub(crate) fn words(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<4>();
    let whole = words
        .iter()
        .map(|word| u64::from(u32::from_ne_bytes(*word)));
    let mut sum: u64 = whole.sum();
    if !rest.is_empty() {
        let mut last = [0; 4];
        last[..rest.len()].copy_from_slice(rest);
        sum += u64::from(u32::from_ne_bytes(last));
    }
    sum
}
