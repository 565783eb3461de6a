//! What a secret key is for: initial sequence numbers (RFC 6528), timestamp offsets (RFC 7323
//! section 5.4), SYN cookies (RFC 4987 section 3.6) and a flow table whose collisions a peer can't
//! choose.

#[cfg(test)]
mod tests;

use std::hash::Hasher;
use std::net::IpAddr;

use siphasher::sip::{SipHasher13, SipHasher24};

use userspace_net::{Endpoint, FourTuple, Instant};

use crate::flow_table::FlowHash;
use crate::seq::SeqNum;

/// One tick of the clock M of RFC 6528 section 3.
const ISN_TICK_NANOS: u64 = 4_000;

/// The secret of one stack.
#[derive(Debug)]
pub(crate) struct Secret {
    key: [u8; 16],
    /// Keyed.
    flows: SipHasher13,
}

impl Secret {
    pub(crate) fn new(key: [u8; 16]) -> Self {
        Self {
            key,
            flows: SipHasher13::new_with_key(&key),
        }
    }

    /// Where a flow stands in the flow table. It is on the path of every segment: whole words, and
    /// the quicker SipHash-1-3.
    pub(crate) fn flow(&self, tuple: &FourTuple) -> FlowHash {
        let FourTuple { local, remote } = tuple;
        let mut hasher = self.flows;
        if let (IpAddr::V4(local), IpAddr::V4(remote)) = (local.addr, remote.addr) {
            hasher.write_u64(u64::from(local.to_bits()) << 32 | u64::from(remote.to_bits()));
        } else {
            for end in [local, remote] {
                write_address(&mut hasher, end.addr);
            }
        }
        hasher.write_u32(u32::from(local.port) << 16 | u32::from(remote.port));
        FlowHash(hasher.finish())
    }

    /// Where an address and port stands in a table.
    pub(crate) fn end(&self, end: Endpoint) -> FlowHash {
        let mut hasher = self.flows;
        write_address(&mut hasher, end.addr);
        hasher.write_u16(end.port);
        FlowHash(hasher.finish())
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

    /// What makes a SYN cookie ours (RFC 4987 section 3.6).
    pub(crate) fn cookie(
        &self,
        tuple: &FourTuple,
        irs: SeqNum,
        period: u64,
        mss: u8,
        bits: Option<u8>,
    ) -> u64 {
        let (bytes, len) = tuple.bytes();
        let mut hasher = SipHasher24::new_with_key(&self.key);
        hasher.write(b"syn");
        hasher.write(&bytes[..len]);
        hasher.write_u32(irs.0);
        hasher.write_u64(period);
        hasher.write_u8(mss);
        hasher.write_u8(bits.unwrap_or(u8::MAX));
        hasher.finish()
    }

    fn hash(&self, tuple: &FourTuple, purpose: &[u8; 3]) -> u64 {
        let (bytes, len) = tuple.bytes();
        let mut hasher = SipHasher24::new_with_key(&self.key);
        hasher.write(purpose);
        hasher.write(&bytes[..len]);
        hasher.finish()
    }
}

fn write_address(hasher: &mut SipHasher13, addr: IpAddr) {
    let bits = match addr {
        IpAddr::V4(addr) => addr.to_ipv6_mapped().to_bits(),
        IpAddr::V6(addr) => addr.to_bits(),
    };
    hasher.write_u64((bits >> 64) as u64);
    hasher.write_u64(bits as u64);
}
