//! What a secret key is for: tables of flows whose collisions a peer can't choose, and numbers that only this stack
//! can tell of a flow.

#[cfg(test)]
mod tests;

use std::hash::Hasher;
use std::net::IpAddr;

use siphasher::sip::{SipHasher13, SipHasher24};

use crate::{Endpoint, FourTuple};

use crate::flow_table::FlowHash;

/// The secret of one stack.
#[derive(Debug)]
pub struct Secret {
    key: [u8; 16],
    /// Keyed.
    flows: SipHasher13,
}

impl Secret {
    /// `key` must be random and stay secret.
    pub fn new(key: [u8; 16]) -> Self {
        Self {
            key,
            flows: SipHasher13::new_with_key(&key),
        }
    }

    /// Where a flow stands in the flow table. It is on the path of every segment: whole words, and
    /// the quicker SipHash-1-3.
    pub fn flow(&self, tuple: &FourTuple) -> FlowHash {
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
    pub fn end(&self, end: Endpoint) -> FlowHash {
        let mut hasher = self.flows;
        write_address(&mut hasher, end.addr);
        hasher.write_u16(end.port);
        FlowHash(hasher.finish())
    }

    /// For whatever else is to be known of a flow by this stack alone, to which the caller adds what it likes.
    /// Another `purpose` gives other numbers.
    pub fn hasher(&self, purpose: &[u8; 3], tuple: &FourTuple) -> impl Hasher {
        let (bytes, len) = tuple.bytes();
        let mut hasher = SipHasher24::new_with_key(&self.key);
        hasher.write(purpose);
        hasher.write(&bytes[..len]);
        hasher
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
