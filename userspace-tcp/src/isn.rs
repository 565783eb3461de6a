//! Where the numbers of a connection begin: sequence numbers (RFC 6528) and timestamps (RFC 7323 section 5.4).

#[cfg(test)]
mod tests;

use std::hash::Hasher;

use userspace_net::keyed::Secret;
use userspace_net::{FourTuple, Instant};

use crate::seq::SeqNum;

/// One tick of the clock M of RFC 6528 section 3.
const TICK_NANOS: u64 = 4_000;

/// RFC 6528 section 3: ISN = M + F(localip, localport, remoteip, remoteport, secretkey).
pub(crate) fn initial_sequence(secret: &Secret, tuple: &FourTuple, now: Instant) -> SeqNum {
    // Truncated on purpose: the clock wraps with the sequence space.
    let clock = (now.as_nanos() / TICK_NANOS) as u32;
    SeqNum(secret.hasher(b"isn", tuple).finish() as u32).add(clock)
}

/// What is added to the clock in timestamps to this peer.
pub(crate) fn timestamp_offset(secret: &Secret, tuple: &FourTuple) -> u32 {
    secret.hasher(b"tso", tuple).finish() as u32
}
