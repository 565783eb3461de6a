//! Integers in network order at places that are constants of a header.

/// 32 bits from octet `at` on.
#[inline]
pub(crate) fn word(octets: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([octets[at], octets[at + 1], octets[at + 2], octets[at + 3]])
}

/// 64 bits from octet `at` on.
#[inline]
pub(crate) fn long(octets: &[u8], at: usize) -> u64 {
    u64::from(word(octets, at)) << 32 | u64::from(word(octets, at + 4))
}
