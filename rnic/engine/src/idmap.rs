//! Maps from the numbers that the Privileged Resource Manager gives out.
//!
//! The keys are chosen by us, never by a client or a peer, so a fast hash without a secret is
//! enough: an outsider can ask for any key, but can't put one in.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A map keyed by an object's number.
pub type IdMap<K, V> = HashMap<K, V, BuildHasherDefault<IdHasher>>;

/// Fibonacci hashing of one 32-bit number.
#[derive(Debug, Default)]
pub struct IdHasher(u64);

/// 2^64 divided by the golden ratio, made odd.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        // The map takes its bucket from the low bits and its tag from the high ones.
        self.0 ^ (self.0 >> 32)
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u32(u32::from(*byte));
        }
    }

    fn write_u32(&mut self, value: u32) {
        self.0 = (self.0 ^ u64::from(value)).wrapping_mul(GOLDEN);
    }
}
