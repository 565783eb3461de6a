//! Maps from the numbers that the Privileged Resource Manager gives out.
//!
//! The keys are chosen by us, never by a client or a peer. A fast hash without a secret is therefore enough:
//! an outsider can ask for any key, but can't insert one.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A map keyed by an object's number.
pub type IdMap<K, V> = HashMap<K, V, BuildHasherDefault<IdHasher>>;

/// A number is its own hash, except for the top bits, by which the map tells numbers of one bucket apart:
/// those are a Fibonacci hash. Numbers are given out in sequence, so objects that are made and used in
/// sequence are neighbours in the map. No two share a bucket while the map has as many buckets as there are
/// numbers.
#[derive(Debug, Default)]
pub struct IdHasher(u32);

/// 2^64 divided by the golden ratio, made odd.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        let number = u64::from(self.0);
        // The map takes its bucket from the low bits and its tag from the high ones.
        (number.wrapping_mul(GOLDEN) & !u64::from(u32::MAX)) | number
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u32(self.0.rotate_left(8) ^ u32::from(*byte));
        }
    }

    fn write_u32(&mut self, value: u32) {
        self.0 = value;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::hash::BuildHasher;

    use super::IdMap;

    #[test]
    fn numbers_in_a_row_have_places_in_a_row_and_tags_of_their_own() {
        let map = IdMap::<u32, ()>::default();
        let hashes: Vec<u64> = (1..=64_u32)
            .map(|number| map.hasher().hash_one(number))
            .collect();
        for pair in hashes.windows(2) {
            assert_eq!(pair[0] as u32 + 1, pair[1] as u32);
        }
        // As many bits as the map takes from the top.
        let tags: HashSet<u64> = hashes.iter().map(|hash| hash >> 57).collect();
        assert!(tags.len() > 32, "{} tags of 64 numbers", tags.len());
    }
}
