//! A received frame, parsed once.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::Range;

use userspace_tcp::{Ecn, Endpoint, FourTuple, checksum};

use super::{
    ETHERNET_HEADER, ETHERTYPE_IPV4, ETHERTYPE_IPV6, ETHERTYPE_VLAN, IPV4_HEADER, IPV6_HEADER,
    PROTOCOL_TCP, Path, TCP_HEADER, VLAN_TAG,
};

/// What a frame with a whole TCP segment told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// The way back: the frame's addresses exchanged, its VLAN tag, the MTU that was given.
    pub path: Path,
    /// Where the segment was sent to, and who sent it.
    pub tuple: FourTuple,
    /// The packet's ECN field.
    pub ecn: Ecn,
    /// The TCP segment within the frame; without the Ethernet padding behind it.
    pub tcp: Range<usize>,
}

/// Why a frame is dropped. Each has its counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    /// The frame ends before its headers do, or before its IP length says.
    #[error("truncated")]
    Truncated,
    /// Not IPv4 or IPv6 under at most one VLAN tag.
    #[error("neither IPv4 nor IPv6")]
    NotIp,
    /// The IP header contradicts itself: version, header length, total length.
    #[error("bad IP header")]
    IpHeader,
    /// The IPv4 header checksum is wrong.
    #[error("bad IPv4 header checksum")]
    IpChecksum,
    /// A fragment: the kernel reassembles, we don't.
    #[error("fragment")]
    Fragment,
    /// Another protocol than TCP, or one behind IPv6 extension headers.
    #[error("not TCP")]
    NotTcp,
    /// Sent to or from an address that no TCP connection can have (RFC 1122 section 4.2.3.10).
    #[error("group address")]
    GroupAddress,
    /// The TCP checksum is wrong.
    #[error("bad TCP checksum")]
    TcpChecksum,
}

/// Parses a frame as it came from the link. `mtu` is that of the interface.
pub fn parse(frame: &[u8], mtu: u32) -> Result<Received, Unusable> {
    let destination = array::<6>(frame, 0)?;
    let source = array::<6>(frame, 6)?;
    if destination[0] & 1 == 1 || source[0] & 1 == 1 {
        return Err(Unusable::GroupAddress);
    }
    let mut ethertype = u16::from_be_bytes(array(frame, 12)?);
    let mut at = ETHERNET_HEADER;
    let mut vlan = None;
    if ethertype == ETHERTYPE_VLAN {
        vlan = Some(u16::from_be_bytes(array(frame, 14)?));
        ethertype = u16::from_be_bytes(array(frame, 16)?);
        at += VLAN_TAG;
    }
    let packet = frame.get(at..).ok_or(Unusable::Truncated)?;
    let IpFields {
        source: source_ip,
        destination: destination_ip,
        ecn,
        tcp,
    } = match ethertype {
        ETHERTYPE_IPV4 => ipv4(packet)?,
        ETHERTYPE_IPV6 => ipv6(packet)?,
        _ => return Err(Unusable::NotIp),
    };
    if is_group(source_ip) || is_group(destination_ip) {
        return Err(Unusable::GroupAddress);
    }
    let tcp = at + tcp.start..at + tcp.end;
    let segment = frame.get(tcp.clone()).ok_or(Unusable::Truncated)?;
    if segment.len() < TCP_HEADER {
        return Err(Unusable::Truncated);
    }
    if !checksum::verify(source_ip, destination_ip, segment) {
        return Err(Unusable::TcpChecksum);
    }
    let source_port = u16::from_be_bytes(array(segment, 0)?);
    let destination_port = u16::from_be_bytes(array(segment, 2)?);
    Ok(Received {
        path: Path {
            src_mac: destination,
            dst_mac: source,
            vlan,
            mtu,
        },
        tuple: FourTuple {
            local: Endpoint::new(destination_ip, destination_port),
            remote: Endpoint::new(source_ip, source_port),
        },
        ecn,
        tcp,
    })
}

/// What an IP header tells of a TCP segment.
struct IpFields {
    source: IpAddr,
    destination: IpAddr,
    ecn: Ecn,
    /// The segment's place in the packet.
    tcp: Range<usize>,
}

fn ipv4(packet: &[u8]) -> Result<IpFields, Unusable> {
    let version_length = array::<1>(packet, 0)?[0];
    let header = usize::from(version_length & 0x0f) * 4;
    let total = usize::from(u16::from_be_bytes(array(packet, 2)?));
    if version_length >> 4 != 4 || header < IPV4_HEADER || total < header {
        return Err(Unusable::IpHeader);
    }
    let header_octets = packet.get(..header).ok_or(Unusable::Truncated)?;
    if checksum::sum(header_octets).folded() != u16::MAX {
        return Err(Unusable::IpChecksum);
    }
    if total > packet.len() {
        return Err(Unusable::Truncated);
    }
    // More-fragments bit or a fragment offset.
    if u16::from_be_bytes(array(packet, 6)?) & 0x3fff != 0 {
        return Err(Unusable::Fragment);
    }
    if array::<1>(packet, 9)?[0] != PROTOCOL_TCP {
        return Err(Unusable::NotTcp);
    }
    let source = Ipv4Addr::from(array::<4>(packet, 12)?);
    let destination = Ipv4Addr::from(array::<4>(packet, 16)?);
    Ok(IpFields {
        source: source.into(),
        destination: destination.into(),
        ecn: Ecn::from_bits(array::<1>(packet, 1)?[0]),
        tcp: header..total,
    })
}

fn ipv6(packet: &[u8]) -> Result<IpFields, Unusable> {
    if array::<1>(packet, 0)?[0] >> 4 != 6 {
        return Err(Unusable::IpHeader);
    }
    let total = IPV6_HEADER + usize::from(u16::from_be_bytes(array(packet, 4)?));
    if total > packet.len() {
        return Err(Unusable::Truncated);
    }
    if array::<1>(packet, 6)?[0] != PROTOCOL_TCP {
        return Err(Unusable::NotTcp);
    }
    let source = Ipv6Addr::from(array::<16>(packet, 8)?);
    let destination = Ipv6Addr::from(array::<16>(packet, 24)?);
    Ok(IpFields {
        source: source.into(),
        destination: destination.into(),
        ecn: Ecn::from_bits(array::<1>(packet, 1)?[0] >> 4),
        tcp: IPV6_HEADER..total,
    })
}

/// Whether no TCP endpoint can have this address.
fn is_group(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_multicast() || v4.is_broadcast() || v4.is_unspecified(),
        IpAddr::V6(v6) => v6.is_multicast() || v6.is_unspecified(),
    }
}

fn array<const N: usize>(octets: &[u8], at: usize) -> Result<[u8; N], Unusable> {
    octets
        .get(at..)
        .and_then(|rest| rest.first_chunk::<N>())
        .copied()
        .ok_or(Unusable::Truncated)
}
