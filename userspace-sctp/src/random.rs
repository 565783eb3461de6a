//! Numbers that nobody else can foresee: tags, initial TSNs, tie tags, nonces, keys (RFC 9260 section 5.3.1). They are
//! a keyed hash of a counter, so that the same secret gives the same numbers in a simulation.

use std::hash::{BuildHasher, Hasher};
use std::num::NonZeroU64;

use siphasher::sip::{SipHasher13, SipHasher24};

use crate::tsn::Tsn;

/// The source of one stack.
#[derive(Debug)]
pub(crate) struct Random {
    key: [u8; 16],
    drawn: u64,
}

impl Random {
    pub(crate) const fn new(secret: [u8; 16]) -> Self {
        Self {
            key: secret,
            drawn: 0,
        }
    }

    pub(crate) fn number(&mut self) -> u64 {
        let mut hasher = SipHasher24::new_with_key(&self.key);
        hasher.write_u64(self.drawn);
        self.drawn += 1;
        hasher.finish()
    }

    pub(crate) fn tag(&mut self) -> u32 {
        loop {
            // Truncated on purpose.
            let tag = self.number() as u32;
            if tag != 0 {
                return tag;
            }
        }
    }

    pub(crate) fn tsn(&mut self) -> Tsn {
        Tsn(self.number() as u32)
    }

    pub(crate) fn tie(&mut self) -> NonZeroU64 {
        NonZeroU64::new(self.number()).unwrap_or(NonZeroU64::MIN)
    }

    /// A key of its own, for the State Cookie or a table.
    pub(crate) fn key(&mut self) -> [u8; 16] {
        let [first, second] = [self.number(), self.number()];
        (u128::from(first) << 64 | u128::from(second)).to_be_bytes()
    }
}

/// Makes tables whose collisions a peer can't choose.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Keyed(SipHasher13);

impl Keyed {
    pub(crate) fn new(key: [u8; 16]) -> Self {
        Self(SipHasher13::new_with_key(&key))
    }
}

impl BuildHasher for Keyed {
    type Hasher = SipHasher13;

    fn build_hasher(&self) -> SipHasher13 {
        self.0
    }
}
