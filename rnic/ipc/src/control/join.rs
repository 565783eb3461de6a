//! Queue pairs that are joined by number: each side names the other's address and queue pair, and both are
//! connected, whichever side asks first.

use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};

use super::MpaOptions;
use crate::id::QpNum;

/// The first of the ports at which RNICs take requests to join.
pub const JOIN_PORT: u16 = 30720;

/// As many ports there are: an RNIC has one of them, and its number is in the upper bits of the numbers of its queue
/// pairs.
pub const JOIN_SLOTS: u8 = 16;

/// Bits of a queue pair's number without those of its RNIC.
const NUMBER_BITS: u32 = 20;
const HALF_BITS: u32 = NUMBER_BITS / 2;
const HALF_MASK: u32 = (1 << HALF_BITS) - 1;
/// 0 and 1 are InfiniBand's own, for its management.
const FIRST_NUMBER: u32 = 2;
const ROUNDS: u32 = 4;

/// A queue pair of another RNIC, or of this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct JoinEnd {
    pub address: IpAddr,
    /// Its number, of 24 bits.
    pub number: u32,
}

impl JoinEnd {
    /// Where its RNIC takes requests to join.
    pub fn port(&self) -> SocketAddr {
        let slot = (self.number >> NUMBER_BITS) as u16 % u16::from(JOIN_SLOTS);
        SocketAddr::new(self.address, JOIN_PORT + slot)
    }

    /// The address as a GID has it: an IPv4 address is mapped into IPv6.
    pub fn gid(&self) -> [u8; 16] {
        match self.address {
            IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
            IpAddr::V6(address) => address.octets(),
        }
    }
}

/// What a queue pair is to be joined to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinSpec {
    /// The address by which the peer names this queue pair.
    pub local: IpAddr,
    /// The peer's queue pair.
    pub remote: JoinEnd,
    /// As in a connection that is accepted or asked for.
    pub mpa: MpaOptions,
}

/// How the numbers by which peers name queue pairs follow from those that an RNIC gives out: by a permutation with a
/// key that each RNIC draws when it starts. So peers can't guess them, and those of an RNIC that was started again are
/// others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinNumbers {
    /// Which of the [`JOIN_SLOTS`] ports is this RNIC's.
    pub slot: u8,
    pub key: u64,
}

impl JoinNumbers {
    /// The number by which a peer names a queue pair, of 24 bits. None: its own is too large.
    pub fn number(&self, qp: QpNum) -> Option<u32> {
        let mut number = qp.0.checked_add(FIRST_NUMBER - 1)?;
        if !(FIRST_NUMBER..1 << NUMBER_BITS).contains(&number) {
            return None;
        }
        // What a permutation of all numbers makes of one, again and again, comes back to a number of this range.
        loop {
            number = self.permute(number);
            if number >= FIRST_NUMBER {
                return Some(u32::from(self.slot % JOIN_SLOTS) << NUMBER_BITS | number);
            }
        }
    }

    /// A Feistel network over both halves of a number.
    fn permute(&self, number: u32) -> u32 {
        let (mut left, mut right) = (number >> HALF_BITS, number & HALF_MASK);
        for round in 0..ROUNDS {
            (left, right) = (right, left ^ self.mix(round, right));
        }
        left << HALF_BITS | right
    }

    fn mix(&self, round: u32, half: u32) -> u32 {
        let word = self.key.rotate_left(round * 16) ^ u64::from(half << 2 | round);
        // The finalizer of SplitMix64.
        let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (word ^ (word >> 31)) as u32 & HALF_MASK
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn each_queue_pair_has_a_number_of_its_own() {
        for key in [0, 1, u64::MAX, 0x0123_4567_89ab_cdef] {
            let numbers = JoinNumbers { slot: 3, key };
            let last = (1 << NUMBER_BITS) - FIRST_NUMBER;
            let all: HashSet<u32> = (1..=last)
                .filter_map(|qp| numbers.number(QpNum(qp)))
                .collect();
            assert_eq!(all.len(), last as usize);
            let in_range = |number: &u32| {
                number >> NUMBER_BITS == 3 && number & ((1 << NUMBER_BITS) - 1) >= FIRST_NUMBER
            };
            assert!(all.iter().all(in_range));
            assert_eq!(numbers.number(QpNum(last + 1)), None);
            assert_eq!(numbers.number(QpNum(0)), None);
        }
    }

    #[test]
    fn another_key_gives_other_numbers() {
        let numbers = |key| {
            let numbers = JoinNumbers { slot: 0, key };
            (1..=1000).filter_map(move |qp| numbers.number(QpNum(qp)))
        };
        let same = numbers(7).zip(numbers(8)).filter(|(a, b)| a == b);
        assert!(same.count() < 10);
        let neighbours: Vec<u32> = numbers(7).collect();
        let in_a_row = neighbours.windows(2).filter(|pair| pair[0] + 1 == pair[1]);
        assert!(in_a_row.count() < 10);
    }

    #[test]
    fn the_port_follows_from_the_number() {
        let address = "198.18.0.1".parse().unwrap();
        let port = |number| JoinEnd { address, number }.port().port();
        assert_eq!(port(0x00_1234), JOIN_PORT);
        assert_eq!(port(0xf0_1234), JOIN_PORT + 15);
        assert_eq!(port(u32::MAX), JOIN_PORT + 15);
    }
}
