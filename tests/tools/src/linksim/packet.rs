//! Where things are in a frame: parsed once, then known by offsets.
//!
//! Anything that is not whole is not there: a frame cut short has no IP packet, and a TCP header
//! that does not fit is no TCP.

/// Where the type is in a frame without tags.
const TYPE: usize = 12;
const VLAN_TAG: usize = 4;
/// Tags that are looked behind.
const TAGS_MAX: usize = 2;
pub(super) const IPV4_HEADER: usize = 20;
pub(super) const IPV6_HEADER: usize = 40;
const TCP_HEADER: usize = 20;
pub(super) const TCP: u8 = 6;
/// More-fragments bit and fragment offset of IPv4.
const FRAGMENT: u16 = 0x3fff;
const OFFSET: u16 = 0x1fff;
const DONT_FRAGMENT: u16 = 0x4000;

/// The IP packet of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Packet {
    /// Where it begins.
    pub ip: usize,
    /// Bytes of it; behind it there may be padding.
    pub length: usize,
    /// 4 or 6.
    pub version: u8,
    /// Bytes of the IP header.
    pub header: usize,
    /// What follows the IP header: TCP, ICMP, or an IPv6 extension header.
    pub protocol: u8,
    /// May not be fragmented on its way.
    pub whole: bool,
    /// Is a fragment of a packet, or its beginning.
    pub fragment: bool,
    /// Where in that packet it belongs, in units of eight bytes.
    pub offset: u16,
}

/// The TCP segment of an unfragmented packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tcp {
    /// Where it begins in the frame.
    pub at: usize,
    /// Bytes of its header.
    pub header: usize,
    /// Bytes of its payload.
    pub payload: usize,
}

impl Packet {
    /// The IP packet behind at most two VLAN tags.
    pub fn parse(frame: &[u8]) -> Option<Self> {
        let mut at = TYPE;
        for _ in 0..TAGS_MAX {
            if !matches!(u16_at(frame, at)?, 0x8100 | 0x88a8) {
                break;
            }
            at += VLAN_TAG;
        }
        let kind = u16_at(frame, at)?;
        let ip = at + 2;
        let bytes = frame.get(ip..)?;
        let version = bytes.first()? >> 4;
        match (kind, version) {
            (0x0800, 4) => Self::ipv4(ip, bytes),
            (0x86dd, 6) => Self::ipv6(ip, bytes),
            _ => None,
        }
    }

    fn ipv4(ip: usize, bytes: &[u8]) -> Option<Self> {
        let header = usize::from(bytes[0] & 0xf) * 4;
        let length = usize::from(u16_at(bytes, 2)?);
        let flags = u16_at(bytes, 6)?;
        if header < IPV4_HEADER || length < header || length > bytes.len() {
            return None;
        }
        Some(Self {
            ip,
            length,
            version: 4,
            header,
            protocol: bytes[9],
            whole: flags & DONT_FRAGMENT != 0,
            fragment: flags & FRAGMENT != 0,
            offset: flags & OFFSET,
        })
    }

    fn ipv6(ip: usize, bytes: &[u8]) -> Option<Self> {
        let length = IPV6_HEADER + usize::from(u16_at(bytes, 4)?);
        if length > bytes.len() {
            return None;
        }
        Some(Self {
            ip,
            length,
            version: 6,
            header: IPV6_HEADER,
            protocol: bytes[6],
            whole: true,
            fragment: false,
            offset: 0,
        })
    }

    /// Where the packet ends in the frame.
    pub fn end(&self) -> usize {
        self.ip + self.length
    }

    /// The TCP segment, if it is one and all of it is here.
    pub fn tcp(&self, frame: &[u8]) -> Option<Tcp> {
        if self.protocol != TCP || self.fragment {
            return None;
        }
        let at = self.ip + self.header;
        let bytes = frame.get(at..self.end())?;
        if bytes.len() < TCP_HEADER {
            return None;
        }
        let header = usize::from(bytes[12] >> 4) * 4;
        if header < TCP_HEADER || header > bytes.len() {
            return None;
        }
        Some(Tcp {
            at,
            header,
            payload: bytes.len() - header,
        })
    }

    /// Where source and destination address are, and the bytes of each.
    pub fn addresses(&self) -> (usize, usize) {
        if self.version == 4 {
            (self.ip + 12, 4)
        } else {
            (self.ip + 8, 16)
        }
    }
}

/// A big-endian number of two bytes.
pub(super) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    let two = bytes.get(at..)?.first_chunk::<2>()?;
    Some(u16::from_be_bytes(*two))
}

/// A big-endian number of four bytes.
pub(super) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let four = bytes.get(at..)?.first_chunk::<4>()?;
    Some(u32::from_be_bytes(*four))
}

/// Writes a big-endian number of two bytes.
pub(super) fn put_u16(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

/// Writes a big-endian number of four bytes.
pub(super) fn put_u32(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_be_bytes());
}
