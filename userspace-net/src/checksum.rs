//! The Internet checksum (RFC 1071), in pieces that can be added up in any order.
//!
//! A partial sum is taken once per payload and kept with it, so that a retransmission touches only
//! the header. Every piece but the last must have an even length.

#[cfg(test)]
mod tests;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::{Add, AddAssign};

/// A one's complement sum of 16-bit words, not complemented. Sums add up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PartialSum(u16);

impl PartialSum {
    /// The sum of nothing.
    pub const ZERO: Self = Self(0);

    /// From a folded 16-bit sum.
    #[inline]
    pub const fn from_folded(sum: u16) -> Self {
        Self(sum)
    }

    /// From a sum of big-endian words of 32 bits (RFC 1071 section 2 (C)): of fewer than 2^32 of them.
    #[inline]
    pub const fn of_words(words: u64) -> Self {
        Self(reduce(words))
    }

    /// The folded 16-bit sum, not complemented.
    #[inline]
    pub const fn folded(self) -> u16 {
        self.0
    }

    /// The sum of the same bytes when an odd number of others is before them (RFC 1071 section 2
    /// (B)).
    #[inline]
    pub const fn behind_odd(self) -> Self {
        Self(self.0.swap_bytes())
    }
}

impl Add for PartialSum {
    type Output = Self;

    #[inline]
    fn add(self, other: Self) -> Self {
        let (sum, carry) = self.0.overflowing_add(other.0);
        Self(sum + u16::from(carry))
    }
}

impl AddAssign for PartialSum {
    #[inline]
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

/// The sum of `bytes`, read as big-endian words; an odd last byte is padded with zero.
pub fn sum(bytes: &[u8]) -> PartialSum {
    // RFC 1071 section 2 (B): the sum may be taken in the machine's byte order and swapped once;
    // and (C): in words of any size. Two sums of 128 bits are two chains of additions with carry.
    let (blocks, rest) = bytes.as_chunks::<32>();
    let (mut even, mut odd) = (0_u128, 0_u128);
    for block in blocks {
        let (words, _) = block.as_chunks::<8>();
        let word = |at: usize| u128::from(u64::from_ne_bytes(words[at]));
        even += word(0) + word(2);
        odd += word(1) + word(3);
    }
    let mut total = halves(even) + halves(odd);
    let (words, rest) = rest.as_chunks::<4>();
    for word in words {
        total += u64::from(u32::from_ne_bytes(*word));
    }
    if !rest.is_empty() {
        let mut tail = [0; 4];
        tail[..rest.len()].copy_from_slice(rest);
        total += u64::from(u32::from_ne_bytes(tail));
    }
    PartialSum(u16::from_be_bytes(reduce(total).to_ne_bytes()))
}

/// The sum of the 32-bit words of a number.
#[inline]
const fn halves(sum: u128) -> u64 {
    let low = (sum as u32 as u64) + ((sum >> 32) as u32 as u64);
    low + ((sum >> 64) as u32 as u64) + ((sum >> 96) as u64)
}

/// The sum of the pseudo-header of IPv4 (RFC 9293 section 3.1) of a protocol's packet of `len` bytes.
pub fn pseudo_v4(source: Ipv4Addr, destination: Ipv4Addr, protocol: u8, len: usize) -> PartialSum {
    let addresses = u64::from(source.to_bits()) + u64::from(destination.to_bits());
    pseudo_sum(addresses, protocol, len)
}

/// The sum of the pseudo-header of IPv6 (RFC 8200 section 8.1).
pub fn pseudo_v6(source: Ipv6Addr, destination: Ipv6Addr, protocol: u8, len: usize) -> PartialSum {
    let addresses = halves(source.to_bits()) + halves(destination.to_bits());
    pseudo_sum(addresses, protocol, len)
}

/// The sum of the pseudo-header of either family; zero when the families differ.
pub fn pseudo(source: IpAddr, destination: IpAddr, protocol: u8, len: usize) -> PartialSum {
    match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            pseudo_v4(source, destination, protocol, len)
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            pseudo_v6(source, destination, protocol, len)
        }
        _ => PartialSum::ZERO,
    }
}

/// The value for the checksum field of a packet whose parts (pseudo-header, header with a zero
/// checksum field, payload) add up to `total`.
#[inline]
pub const fn fold(total: PartialSum) -> u16 {
    !total.0
}

/// Whether the checksum of a protocol's whole packet (header and payload) is right.
pub fn verify(source: IpAddr, destination: IpAddr, protocol: u8, packet: &[u8]) -> bool {
    (pseudo(source, destination, protocol, packet.len()) + sum(packet)).0 == u16::MAX
}

/// `addresses` are summed up as words of 32 bits.
#[inline]
const fn pseudo_sum(addresses: u64, protocol: u8, len: usize) -> PartialSum {
    // A length of 65535 or more can't be in one IP packet; the wrap does no harm.
    PartialSum(reduce(addresses + len as u32 as u64 + protocol as u64))
}

/// Adds the carries back in (RFC 1071 section 1) until 16 bits are left.
#[inline]
const fn reduce(total: u64) -> u16 {
    // At most 2^33, 2^18, 2^16 + 2 and 2^16 - 1: no turn depends on the carry of the one before.
    let total = (total & 0xffff_ffff) + (total >> 32);
    let total = (total & 0xffff) + (total >> 16);
    let total = (total & 0xffff) + (total >> 16);
    ((total & 0xffff) + (total >> 16)) as u16
}
