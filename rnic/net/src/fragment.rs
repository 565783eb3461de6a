//! One packet cut into IP fragments (RFC 791 section 3.2, RFC 8200 section 4.5).
//!
//! Only for a TCP segment or SCTP packet that became too large for its path after it was posted. The packet itself
//! stays as it is: fragments are copies.

use std::hash::Hasher;
use std::net::IpAddr;

use siphasher::sip::SipHasher13;
use userspace_net::checksum;

use super::{
    ETHERNET_HEADER, FRAGMENT_HEADER, FRAGMENT_UNIT, IPV4_HEADER, IPV4_MORE, IPV6_HEADER,
    IPV6_MORE, PROTOCOL_FRAGMENT,
};

#[cfg(test)]
pub(crate) mod tests;

/// The least MTU of an IPv4 link (RFC 791 section 3.2).
const IPV4_MTU_MIN: usize = 68;
/// The least MTU of an IPv6 link (RFC 8200 section 5).
const IPV6_MTU_MIN: usize = 1280;

/// Identifications of packets that are sent in fragments: each pair of addresses has its own
/// sequence, which does not tell where those of others are (RFC 7739 section 5.3).
#[derive(Clone, Debug)]
pub struct Identification {
    key: [u8; 16],
    sent: u32,
}

impl Identification {
    /// `key` is secret and random.
    pub fn new(key: [u8; 16]) -> Self {
        Self { key, sent: 0 }
    }

    /// For the next packet between these addresses. IPv4 has room for the lower 16 bits.
    pub fn next(&mut self, source: IpAddr, destination: IpAddr) -> u32 {
        self.sent = self.sent.wrapping_add(1);
        let mut hasher = SipHasher13::new_with_key(&self.key);
        hasher.write(b"fragments");
        for address in [source, destination] {
            match address {
                IpAddr::V4(address) => hasher.write(&address.octets()),
                IpAddr::V6(address) => hasher.write(&address.octets()),
            }
        }
        (hasher.finish() as u32).wrapping_add(self.sent)
    }
}

/// The fragments of one packet, in their order.
#[derive(Debug)]
pub struct Fragments<'a> {
    link: &'a [u8],
    ip: &'a [u8],
    data: &'a [u8],
    /// Bytes of `data` that were written.
    done: usize,
    /// Bytes of `data` in each fragment but the last; never 0.
    step: usize,
    id: u32,
    v6: bool,
}

impl<'a> Fragments<'a> {
    /// Of the packet in `frame`, whose headers [`super::emit`] wrote,
    /// with the Ethernet header's `link_len` bytes in front; each at most `mtu` bytes of IP. (An
    /// MTU below what any link has, 68 or 1280 bytes, counts as that.)
    ///
    /// None when the packet is not larger than that, or no such packet.
    pub fn new(frame: &'a [u8], link_len: usize, mtu: u32, id: u32) -> Option<Self> {
        let (link, packet) = frame.split_at_checked(link_len)?;
        if link_len < ETHERNET_HEADER {
            return None;
        }
        let v6 = packet.first()? >> 4 == 6;
        let (header, extra, least) = if v6 {
            (IPV6_HEADER, FRAGMENT_HEADER, IPV6_MTU_MIN)
        } else {
            (IPV4_HEADER, 0, IPV4_MTU_MIN)
        };
        let (ip, data) = packet.split_at_checked(header)?;
        let mtu = usize::try_from(mtu).ok()?.max(least);
        if packet.len() <= mtu {
            return None;
        }
        let step = (mtu - header - extra) / FRAGMENT_UNIT * FRAGMENT_UNIT;
        Some(Self {
            link,
            ip,
            data,
            done: 0,
            step,
            id,
            v6,
        })
    }

    /// How many are still to be written.
    pub fn left(&self) -> usize {
        (self.data.len() - self.done).div_ceil(self.step)
    }

    /// Writes the next fragment, a whole Ethernet frame, to the beginning of `out`; returns how many
    /// bytes it has. None after the last one, or when `out` is too short.
    pub fn write_next(&mut self, out: &mut [u8]) -> Option<usize> {
        let rest = self.data.get(self.done..)?;
        let part = rest.get(..self.step).unwrap_or(rest);
        if part.is_empty() {
            return None;
        }
        let more = part.len() < rest.len();
        let mut out = Writer { out, at: 0 };
        out.put(self.link)?;
        if self.v6 {
            let field = self.done as u16 | if more { IPV6_MORE } else { 0 };
            let length = u16::try_from(FRAGMENT_HEADER + part.len()).ok()?;
            out.put(self.ip.get(..4)?)?;
            out.put(&length.to_be_bytes())?;
            out.put(&[PROTOCOL_FRAGMENT])?;
            out.put(self.ip.get(7..)?)?;
            out.put(&[*self.ip.get(6)?, 0])?;
            out.put(&field.to_be_bytes())?;
            out.put(&self.id.to_be_bytes())?;
        } else {
            let field = (self.done / FRAGMENT_UNIT) as u16 | if more { IPV4_MORE } else { 0 };
            let mut ip: [u8; IPV4_HEADER] = self.ip.try_into().ok()?;
            let total = u16::try_from(IPV4_HEADER + part.len()).ok()?;
            ip[2..4].copy_from_slice(&total.to_be_bytes());
            ip[4..6].copy_from_slice(&(self.id as u16).to_be_bytes());
            ip[6..8].copy_from_slice(&field.to_be_bytes());
            ip[10..12].fill(0);
            let sum = checksum::fold(checksum::sum(&ip));
            ip[10..12].copy_from_slice(&sum.to_be_bytes());
            out.put(&ip)?;
        }
        out.put(part)?;
        self.done += part.len();
        Some(out.at)
    }
}

/// Appends to a buffer.
struct Writer<'a> {
    out: &'a mut [u8],
    at: usize,
}

impl Writer<'_> {
    fn put(&mut self, bytes: &[u8]) -> Option<()> {
        let place = self.out.get_mut(self.at..self.at + bytes.len())?;
        place.copy_from_slice(bytes);
        self.at += bytes.len();
        Some(())
    }
}
