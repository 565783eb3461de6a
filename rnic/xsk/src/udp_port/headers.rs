//! The headers in front of what a UDP socket carries: read from frames that are sent, written into those that are
//! received. Errors that the kernel reports become packets of ICMP (RFC 792, RFC 4443), as routers send them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::Range;

use super::sys::Route;

const ETHERNET: usize = 14;
const IPV4: usize = 20;
const IPV6: usize = 40;
const UDP: usize = 8;
const ICMP: usize = 8;
/// The most bytes in front of a datagram's payload.
pub(super) const HEADERS_MAX: usize = ETHERNET + IPV6 + UDP;
/// The fewest.
pub(super) const HEADERS_MIN: usize = ETHERNET + IPV4 + UDP;
/// Bytes of a datagram's payload that an error quotes: SCTP's header and the beginning of its first chunk.
pub(super) const QUOTED: usize = 20;
/// The most bytes of a packet with an error.
pub(super) const ERROR_MAX: usize = ETHERNET + IPV6 + ICMP + IPV6 + UDP + QUOTED;

const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_IPV6: u16 = 0x86dd;
const PROTOCOL_ICMP: u8 = 1;
const PROTOCOL_UDP: u8 = 17;
const PROTOCOL_FRAGMENT: u8 = 44;
const PROTOCOL_ICMPV6: u8 = 58;
const FRAGMENT: usize = 8;
const IPV4_MORE: u16 = 0x2000;
const IPV4_OFFSET: u16 = 0x1fff;
const IPV6_MORE: u16 = 0x0001;
const IPV6_OFFSET: u16 = 0xfff8;
const HOP_LIMIT: u8 = 64;
/// Types and codes of ICMP (RFC 792) and ICMPv6 (RFC 4443).
const TOO_LARGE: (u8, u8) = (3, 4);
const TOO_LARGE_V6: (u8, u8) = (2, 0);

/// What the headers of a frame that is to be sent say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Outgoing {
    pub(super) local: IpAddr,
    pub(super) remote: IpAddr,
    pub(super) class: u8,
    /// What is behind the IP header: of all but later fragments a UDP header first.
    pub(super) data: Range<usize>,
    /// The first byte of it in its packet, and whether there are more behind, if it is a fragment.
    pub(super) part: Option<(u16, bool)>,
}

impl Outgoing {
    /// Of a frame as this process makes them: without VLAN tags, options and extension headers other than Fragment.
    pub(super) fn of(frame: &[u8]) -> Option<Self> {
        let ip = frame.get(ETHERNET..)?;
        let outgoing = match word(frame, ETHERNET - 2)? {
            ETHERTYPE_IPV4 => {
                let field = word(ip, 6)?;
                let part = field & (IPV4_MORE | IPV4_OFFSET);
                let offset = (part & IPV4_OFFSET) * 8;
                Self {
                    local: Ipv4Addr::from(array::<4>(ip, 12)?).into(),
                    remote: Ipv4Addr::from(array::<4>(ip, 16)?).into(),
                    class: *ip.get(1)?,
                    data: ETHERNET + IPV4..ETHERNET + usize::from(word(ip, 2)?),
                    part: (part != 0).then_some((offset, field & IPV4_MORE != 0)),
                }
                .if_udp(*ip.get(9)?)
            }
            ETHERTYPE_IPV6 => {
                let (mut protocol, mut header, mut part) = (*ip.get(6)?, IPV6, None);
                if protocol == PROTOCOL_FRAGMENT {
                    protocol = *ip.get(IPV6)?;
                    let field = word(ip, IPV6 + 2)?;
                    part = Some((field & IPV6_OFFSET, field & IPV6_MORE != 0));
                    header += FRAGMENT;
                }
                Self {
                    local: Ipv6Addr::from(array::<16>(ip, 8)?).into(),
                    remote: Ipv6Addr::from(array::<16>(ip, 24)?).into(),
                    class: (word(ip, 0)? >> 4) as u8,
                    data: ETHERNET + header..ETHERNET + IPV6 + usize::from(word(ip, 4)?),
                    part,
                }
                .if_udp(protocol)
            }
            _ => None,
        }?;
        let is_first = outgoing.part.is_none_or(|(offset, _)| offset == 0);
        let least = if is_first { UDP } else { 1 };
        let fits = outgoing.data.end <= frame.len() && outgoing.data.len() >= least;
        fits.then_some(outgoing)
    }

    fn if_udp(self, protocol: u8) -> Option<Self> {
        (protocol == PROTOCOL_UDP).then_some(self)
    }

    /// Where the datagram that begins in the frame goes.
    pub(super) fn route(&self, frame: &[u8]) -> Route {
        let port = word(frame, self.data.start + 2).unwrap_or(0);
        Route {
            local: self.local,
            remote: SocketAddr::new(self.remote, port),
            class: self.class,
        }
    }

    /// Where the datagram's payload lies, or the fragment's part of it.
    pub(super) fn payload(&self) -> Range<usize> {
        match self.part {
            Some((offset, _)) if offset > 0 => self.data.clone(),
            _ => self.data.start + UDP..self.data.end,
        }
    }
}

/// Bytes of the headers in front of a datagram's payload.
pub(super) fn headers_len(local: IpAddr) -> usize {
    ETHERNET + ip_len(local) + UDP
}

/// Writes them to the end of `out`, in front of `len` bytes that came by `route` to a port. There is no UDP checksum:
/// the kernel has seen that it was right.
pub(super) fn write(route: &Route, port: u16, len: usize, out: &mut [u8]) -> Option<()> {
    let at = out.len().checked_sub(headers_len(route.local))?;
    let out = out.get_mut(at..)?;
    let (source, destination) = (route.remote.ip(), route.local);
    let udp_len = u16::try_from(UDP + len).ok()?;
    let before = write_ip(
        (source, destination),
        route.class,
        (PROTOCOL_UDP, udp_len),
        out,
    )?;
    let udp = out.get_mut(before..)?;
    put(udp, 0, &route.remote.port().to_be_bytes())?;
    put(udp, 2, &port.to_be_bytes())?;
    put(udp, 4, &udp_len.to_be_bytes())?;
    put(udp, 6, &[0; 2])
}

/// What is wrong with a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// It is larger than packets of so many bytes may be.
    TooLarge(u32),
    /// By an ICMP message of this type and code.
    Told(u8, u8),
}

/// Writes a packet with an error about a datagram that was sent by `route` from a port, of which `quoted` is the beginning;
/// its length.
pub(super) fn write_error(
    route: &Route,
    port: u16,
    fault: Fault,
    quoted: &[u8],
    out: &mut [u8],
) -> Option<usize> {
    let (local, remote) = (route.local, route.remote);
    let (kind, code) = match (fault, local) {
        (Fault::TooLarge(_), IpAddr::V4(_)) => TOO_LARGE,
        (Fault::TooLarge(_), IpAddr::V6(_)) => TOO_LARGE_V6,
        (Fault::Told(kind, code), _) => (kind, code),
    };
    let protocol = match local {
        IpAddr::V4(_) => PROTOCOL_ICMP,
        IpAddr::V6(_) => PROTOCOL_ICMPV6,
    };
    let quoted = quoted.get(..quoted.len().min(QUOTED))?;
    let len = ICMP + ip_len(local) + UDP + quoted.len();
    // Whoever sent it, it is about a packet that went to this peer.
    let at = write_ip(
        (remote.ip(), local),
        0,
        (protocol, u16::try_from(len).ok()?),
        out,
    )?;
    let icmp = out.get_mut(at..at + len)?;
    icmp.fill(0);
    put(icmp, 0, &[kind, code])?;
    if let Fault::TooLarge(mtu) = fault {
        match local {
            IpAddr::V4(_) => put(
                icmp,
                6,
                &u16::try_from(mtu).unwrap_or(u16::MAX).to_be_bytes(),
            )?,
            IpAddr::V6(_) => put(icmp, 4, &mtu.to_be_bytes())?,
        }
    }
    let inner = icmp.get_mut(ICMP..)?;
    let udp_len = (UDP + quoted.len()) as u16;
    let before = write_ip_alone((local, remote.ip()), 0, (PROTOCOL_UDP, udp_len), inner)?;
    put(inner, before, &port.to_be_bytes())?;
    put(inner, before + 2, &remote.port().to_be_bytes())?;
    put(inner, before + 4, &udp_len.to_be_bytes())?;
    put(inner, before + UDP, quoted)?;
    if local.is_ipv4() {
        let sum = checksum(icmp);
        put(icmp, 2, &sum.to_be_bytes())?;
    }
    Some(at + len)
}

fn ip_len(address: IpAddr) -> usize {
    match address {
        IpAddr::V4(_) => IPV4,
        IpAddr::V6(_) => IPV6,
    }
}

/// Writes an Ethernet header, of link addresses that no interface has, and an IP header; their length.
fn write_ip(
    ends: (IpAddr, IpAddr),
    class: u8,
    (protocol, len): (u8, u16),
    out: &mut [u8],
) -> Option<usize> {
    put(out, 0, &super::LINK_ADDRESS)?;
    put(out, 6, &super::LINK_ADDRESS)?;
    let ethertype = match ends.0 {
        IpAddr::V4(_) => ETHERTYPE_IPV4,
        IpAddr::V6(_) => ETHERTYPE_IPV6,
    };
    put(out, ETHERNET - 2, &ethertype.to_be_bytes())?;
    let ip = write_ip_alone(ends, class, (protocol, len), out.get_mut(ETHERNET..)?)?;
    Some(ETHERNET + ip)
}

fn write_ip_alone(
    ends: (IpAddr, IpAddr),
    class: u8,
    (protocol, len): (u8, u16),
    ip: &mut [u8],
) -> Option<usize> {
    match ends {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let ip = ip.get_mut(..IPV4)?;
            ip.fill(0);
            put(ip, 0, &[0x45, class])?;
            put(ip, 2, &len.checked_add(IPV4 as u16)?.to_be_bytes())?;
            put(ip, 8, &[HOP_LIMIT, protocol])?;
            put(ip, 12, &source.octets())?;
            put(ip, 16, &destination.octets())?;
            let sum = checksum(ip);
            put(ip, 10, &sum.to_be_bytes())?;
            Some(IPV4)
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            put(ip, 0, &[0x60 | class >> 4, class << 4, 0, 0])?;
            put(ip, 4, &len.to_be_bytes())?;
            put(ip, 6, &[protocol, HOP_LIMIT])?;
            put(ip, 8, &source.octets())?;
            put(ip, 24, &destination.octets())?;
            Some(IPV6)
        }
        _ => None,
    }
}

/// The Internet checksum (RFC 1071) of a few bytes.
fn checksum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|pair| match *pair {
        [high, low] => u32::from(u16::from_be_bytes([high, low])),
        [high] => u32::from(high) << 8,
        _ => 0,
    });
    let mut sum: u32 = words.sum();
    while sum > u32::from(u16::MAX) {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    !(sum as u16)
}

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    array(bytes, at).map(u16::from_be_bytes)
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk::<N>().copied()
}

fn put(out: &mut [u8], at: usize, bytes: &[u8]) -> Option<()> {
    out.get_mut(at..at + bytes.len())?.copy_from_slice(bytes);
    Some(())
}
