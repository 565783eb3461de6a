//! What a secret key is for: initial sequence numbers (RFC 6528), timestamp offsets (RFC 7323
//! section 5.4) and a hash table whose collisions a peer can't choose.

#[cfg(test)]
mod tests;

use std::hash::{BuildHasher, Hasher};

use siphasher::sip::{SipHasher13, SipHasher24};

use crate::seq::SeqNum;
use crate::time::Instant;
use crate::tuple::FourTuple;

/// One tick of the clock M of RFC 6528 section 3.
const ISN_TICK_NANOS: u64 = 4_000;

/// The secret of one stack.
#[derive(Debug, Clone)]
pub(crate) struct Secret([u8; 16]);

impl Secret {
    pub(crate) const fn new(secret: [u8; 16]) -> Self {
        Self(secret)
    }

    /// RFC 6528 section 3: ISN = M + F(localip, localport, remoteip, remoteport, secretkey).
    pub(crate) fn initial_sequence(&self, tuple: &FourTuple, now: Instant) -> SeqNum {
        // Truncated on purpose: the clock wraps with the sequence space.
        let clock = (now.as_nanos() / ISN_TICK_NANOS) as u32;
        SeqNum(self.hash(tuple, b"isn") as u32).add(clock)
    }

    /// What is added to the clock in timestamps to this peer.
    pub(crate) fn timestamp_offset(&self, tuple: &FourTuple) -> u32 {
        self.hash(tuple, b"tso") as u32
    }

    fn hash(&self, tuple: &FourTuple, purpose: &[u8; 3]) -> u64 {
        let (octets, len) = tuple.octets();
        let mut hasher = SipHasher24::new_with_key(&self.0);
        hasher.write(purpose);
        hasher.write(&octets[..len]);
        hasher.finish()
    }
}

impl BuildHasher for Secret {
    type Hasher = SipHasher13;

    fn build_hasher(&self) -> SipHasher13 {
        SipHasher13::new_with_key(&self.0)
    }
}
