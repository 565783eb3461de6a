//! To which hosts large packets came through lately, whichever connection sent them. Where those of
//! others pass, what times out again and again is lost to congestion, and not to its size (RFC 4821
//! section 7.6.2 has path information shared between flows).

#[cfg(test)]
mod tests;

use std::net::IpAddr;

use crate::Instant;

/// Hosts that are remembered. Two that meet at a place forget each other, which does no more than
/// make the path doubted as if there were no others.
const PLACES: usize = 256;

/// The latest packet that arrived, by host.
#[derive(Debug)]
pub struct MtuEvidence(Box<[Option<Packet>]>);

#[derive(Debug, Clone, Copy)]
struct Packet {
    host: IpAddr,
    /// Bytes of the IP packet.
    size: u32,
    /// When its acknowledgment came.
    at: Instant,
}

impl Default for MtuEvidence {
    /// Nothing is known.
    fn default() -> Self {
        Self(vec![None; PLACES].into_boxed_slice())
    }
}

impl MtuEvidence {
    /// A packet of `size` bytes, in one piece, was acknowledged by `host`.
    pub fn note(&mut self, host: IpAddr, size: u32, at: Instant) {
        if let Some(place) = self.0.get_mut(place_of(host)) {
            *place = Some(Packet { host, size, at });
        }
    }

    /// Whether the latest was acknowledged at `since` or later, and had `size` bytes at least.
    pub fn since(&self, host: IpAddr, size: u32, since: Instant) -> bool {
        let packet = self.0.get(place_of(host)).copied().flatten();
        packet
            .is_some_and(|packet| packet.host == host && packet.size >= size && packet.at >= since)
    }
}

fn place_of(host: IpAddr) -> usize {
    let bytes = match host {
        IpAddr::V4(host) => host.to_bits(),
        IpAddr::V6(host) => {
            let bits = host.to_bits();
            (bits ^ (bits >> 64)) as u32 ^ (bits >> 32) as u32
        }
    };
    (bytes ^ (bytes >> 8) ^ (bytes >> 16) ^ (bytes >> 24)) as usize % PLACES
}
