//! A received frame, parsed once.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::Range;

use userspace_net::checksum::{self, PartialSum};
use userspace_net::{Ecn, Endpoint, FourTuple, UdpPorts, may_be_a_host};
use userspace_tcp::segment::CHECKSUM_OFFSET;

use super::{
    ETHERNET_HEADER, ETHERTYPE_IPV4, ETHERTYPE_IPV6, ETHERTYPE_VLAN, FRAGMENT_HEADER,
    FRAGMENT_UNIT, IPV4_HEADER, IPV4_MORE, IPV4_OFFSET, IPV6_HEADER, IPV6_MORE, IPV6_OFFSET,
    PROTOCOL_FRAGMENT, Path, PathDefaults, Protocol, UDP_HEADER, VLAN_TAG,
};
use crate::emit::UDP_CHECKSUM_OFFSET;

/// Types of IPv4 options (RFC 791 section 3.1).
const OPTIONS_END: u8 = 0;
const NO_OPTION: u8 = 1;
const LOOSE_ROUTE: u8 = 131;
const STRICT_ROUTE: u8 = 137;

/// What the headers of a whole TCP segment or SCTP packet say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// The way back: the frame's addresses exchanged, its VLAN tag, the MTU that was given.
    pub path: Path,
    /// What it carries: TCP or SCTP.
    pub protocol: Protocol,
    /// The ports of the UDP header in front of an SCTP packet, if there is one.
    pub udp: Option<UdpPorts>,
    /// Where that was sent to, and who sent it.
    pub tuple: FourTuple,
    /// The packet's ECN field.
    pub ecn: Ecn,
    /// Its checksum was [partial](Checksum::VerifyOrPartial).
    pub partial: bool,
    /// The TCP segment or SCTP packet within the frame; without the Ethernet padding behind it.
    pub data: Range<usize>,
}

impl Received {
    /// The TCP segment within the frame, if that is what it carries.
    pub fn tcp(&self) -> Option<Range<usize>> {
        (self.protocol == Protocol::Tcp).then(|| self.data.clone())
    }
}

/// Why a frame is dropped. Each has its counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DropReason {
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
    /// A fragment of a packet with TCP or SCTP.
    #[error("fragment")]
    Fragment,
    /// Neither TCP, SCTP nor UDP, or behind IPv6 extension headers other than Fragment.
    #[error("neither TCP, SCTP nor UDP")]
    OtherProtocol,
    /// Sent to or from an address that no connection can have (RFC 1122 section 4.2.3.10).
    #[error("an address that no host has")]
    GroupAddress,
    /// Its sender chose the way that it goes, by a source route (RFC 791 section 3.1): answers would go by that way too
    /// (RFC 7126 section 4.3).
    #[error("a source route")]
    SourceRoute,
    #[error("bad TCP checksum")]
    TcpChecksum,
    /// The UDP checksum is wrong, or there is none over IPv6 (RFC 8200 section 8.1).
    #[error("bad UDP checksum")]
    UdpChecksum,
}

/// What is done with the checksums of TCP and UDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksum {
    /// What has a wrong one is dropped.
    Verify,
    /// The same, but for a TCP segment whose checksum is partial: the field has the sum of the
    /// pseudo-header alone. A kernel hands a packet with that to a device that computes the rest, and
    /// a device without a wire, such as a veth, passes it on so. Its bytes have not been on a wire. Of a segment
    /// in several slices this is looked at first.
    VerifyOrPartial,
    /// It is not looked at, and of UDP it may be missing: the segment has not left this process's memory, or the host's
    /// kernel has seen that it was right.
    Unnecessary,
}

/// Parses a frame as it came from the link. `defaults` are the interface's: a frame tells neither
/// the MTU of the way back nor how long it is.
///
/// # Errors
/// Why the frame is to be dropped; [`DropReason::Fragment`] is for [`crate::Reassembly`] first.
pub fn parse(frame: &[u8], defaults: &PathDefaults) -> Result<Received, DropReason> {
    parse_parts(frame, std::iter::empty(), defaults, Checksum::Verify)
}

/// The same for a frame that begins in `first` and goes on in the slices of `rest`. All headers must
/// lie in `first`; places are counted from its beginning.
///
/// # Errors
/// As [`parse`].
pub fn parse_parts<'a>(
    first: &[u8],
    rest: impl Iterator<Item = &'a [u8]> + Clone,
    defaults: &PathDefaults,
    checksum: Checksum,
) -> Result<Received, DropReason> {
    let len = first.len() + rest.clone().map(<[u8]>::len).sum::<usize>();
    let link = Link::parse(first)?;
    let ip = Ip::parse(first, &link, len)?;
    if ip.part.is_some() {
        return Err(DropReason::Fragment);
    }
    let end = ip.data.end.min(first.len());
    let segment = first.get(ip.data.start..end).ok_or(DropReason::Truncated)?;
    if segment.len() < ip.protocol.header_min() {
        return Err(DropReason::Truncated);
    }
    let several = ip.data.end > end;
    let rest = within(rest, ip.data.end - end);
    let udp = match ip.protocol {
        Protocol::Udp => Some(Udp::parse(segment, &ip, checksum)?),
        Protocol::Tcp | Protocol::Sctp => None,
    };
    let unverified = match ip.protocol {
        Protocol::Tcp => Some(DropReason::TcpChecksum),
        Protocol::Udp if udp.is_some_and(|udp| udp.has_checksum) => Some(DropReason::UdpChecksum),
        Protocol::Sctp | Protocol::Udp => None,
    };
    let number = ip.protocol.number();
    let pseudo = || checksum::pseudo(ip.source, ip.destination, number, ip.data.len());
    let is_right = || (pseudo() + sum_parts(segment, rest, rnic_crc::sum)).folded() == u16::MAX;
    let is_partial = || {
        let field = array(segment, CHECKSUM_OFFSET).map(u16::from_be_bytes);
        checksum == Checksum::VerifyOrPartial
            && ip.protocol == Protocol::Tcp
            && field == Ok(pseudo().folded())
    };
    let mut partial = false;
    if let Some(reason) = unverified
        && checksum != Checksum::Unnecessary
    {
        partial = several && is_partial();
        if !partial && !is_right() {
            partial = is_partial();
            if !partial {
                return Err(reason);
            }
        }
    }
    let (protocol, before) = match udp {
        Some(_) => (Protocol::Sctp, UDP_HEADER),
        None => (ip.protocol, 0),
    };
    let source_port = u16::from_be_bytes(array(segment, before)?);
    let destination_port = u16::from_be_bytes(array(segment, before + 2)?);
    Ok(Received {
        protocol,
        udp: udp.map(|udp| udp.ports),
        path: Path {
            src_mac: link.destination,
            dst_mac: link.source,
            vlan: link.vlan,
            mtu: defaults.mtu,
            hop_limit: defaults.hop_limit(ip.source),
        },
        tuple: FourTuple {
            local: Endpoint::new(ip.destination, destination_port),
            remote: Endpoint::new(ip.source, source_port),
        },
        ecn: ip.ecn,
        partial,
        data: ip.data.start + before..ip.data.end,
    })
}

/// What a UDP header tells.
#[derive(Clone, Copy)]
struct Udp {
    ports: UdpPorts,
    /// IPv4 may go without.
    has_checksum: bool,
}

impl Udp {
    fn parse(packet: &[u8], ip: &Ip, checksum: Checksum) -> Result<Self, DropReason> {
        let word = |at| array(packet, at).map(u16::from_be_bytes);
        // Nobody has bytes behind an SCTP packet that are not its.
        if usize::from(word(4)?) != ip.data.len() {
            return Err(DropReason::Truncated);
        }
        let has_checksum = word(UDP_CHECKSUM_OFFSET)? != 0;
        if !has_checksum && ip.source.is_ipv6() && checksum != Checksum::Unnecessary {
            return Err(DropReason::UdpChecksum);
        }
        Ok(Self {
            ports: UdpPorts {
                source: word(0)?,
                destination: word(2)?,
            },
            has_checksum,
        })
    }
}

/// The one's complement sum of bytes in several slices, of which `sum` gives each one's, in turn.
#[inline]
pub(crate) fn sum_parts<'a>(
    first: &[u8],
    rest: impl Iterator<Item = &'a [u8]>,
    mut sum: impl FnMut(&[u8]) -> u16,
) -> PartialSum {
    let mut all = PartialSum::from_folded(sum(first));
    let mut odd = first.len() % 2 == 1;
    for part in rest {
        let of_part = PartialSum::from_folded(sum(part));
        all += if odd { of_part.behind_odd() } else { of_part };
        odd ^= part.len() % 2 == 1;
    }
    all
}

/// The first `len` bytes of several slices.
pub(crate) fn within<'a>(
    parts: impl Iterator<Item = &'a [u8]>,
    len: usize,
) -> impl Iterator<Item = &'a [u8]> {
    parts.scan(len, |left, part| {
        let (of_it, _) = part.split_at((*left).min(part.len()));
        *left -= of_it.len();
        Some(of_it)
    })
}

/// What an Ethernet header tells.
pub(crate) struct Link {
    pub(crate) source: [u8; 6],
    pub(crate) destination: [u8; 6],
    pub(crate) vlan: Option<u16>,
    ethertype: u16,
    len: usize,
}

impl Link {
    pub(crate) fn parse(frame: &[u8]) -> Result<Self, DropReason> {
        let mut link = Self {
            destination: array(frame, 0)?,
            source: array(frame, 6)?,
            vlan: None,
            ethertype: u16::from_be_bytes(array(frame, 12)?),
            len: ETHERNET_HEADER,
        };
        if link.destination[0] & 1 == 1 || link.source[0] & 1 == 1 {
            return Err(DropReason::GroupAddress);
        }
        if link.ethertype == ETHERTYPE_VLAN {
            link.vlan = Some(u16::from_be_bytes(array(frame, 14)?));
            link.ethertype = u16::from_be_bytes(array(frame, 16)?);
            link.len += VLAN_TAG;
        }
        Ok(link)
    }
}

/// What the IP headers before TCP or SCTP tell.
pub(crate) struct Ip {
    pub(crate) protocol: Protocol,
    pub(crate) source: IpAddr,
    pub(crate) destination: IpAddr,
    pub(crate) ecn: Ecn,
    /// The place of what is behind the headers in the frame: it is as long.
    pub(crate) data: Range<usize>,
    /// Which part of a packet it is, when it is not all of it.
    pub(crate) part: Option<Part>,
}

/// A fragment's place in its packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) id: u32,
    /// Where it begins in what is behind the packet's headers, in bytes.
    pub(crate) offset: usize,
    /// It is not the last one.
    pub(crate) more: bool,
}

impl Ip {
    /// `frame` is the beginning of a frame of `len` bytes, with all headers.
    pub(crate) fn parse(frame: &[u8], link: &Link, len: usize) -> Result<Self, DropReason> {
        let packet = frame.get(link.len..).ok_or(DropReason::Truncated)?;
        let left = len.saturating_sub(link.len);
        let mut ip = match link.ethertype {
            ETHERTYPE_IPV4 => Self::v4(packet, left)?,
            ETHERTYPE_IPV6 => Self::v6(packet, left)?,
            _ => return Err(DropReason::NotIp),
        };
        if !may_be_a_host(ip.source) || !may_be_a_host(ip.destination) {
            return Err(DropReason::GroupAddress);
        }
        ip.data = link.len + ip.data.start..link.len + ip.data.end;
        Ok(ip)
    }

    fn v4(packet: &[u8], left: usize) -> Result<Self, DropReason> {
        let fixed = packet
            .first_chunk::<IPV4_HEADER>()
            .ok_or(DropReason::Truncated)?;
        let &[
            version_length,
            class,
            t0,
            t1,
            i0,
            i1,
            f0,
            f1,
            _,
            protocol,
            _,
            _,
            s0,
            s1,
            s2,
            s3,
            d0,
            d1,
            d2,
            d3,
        ] = fixed;
        let header = usize::from(version_length & 0x0f) * 4;
        let total = usize::from(u16::from_be_bytes([t0, t1]));
        if version_length >> 4 != 4 || header < IPV4_HEADER || total < header {
            return Err(DropReason::IpHeader);
        }
        let header_bytes = packet.get(..header).ok_or(DropReason::Truncated)?;
        if checksum::sum(header_bytes).folded() != u16::MAX {
            return Err(DropReason::IpChecksum);
        }
        if total > left {
            return Err(DropReason::Truncated);
        }
        if has_source_route(&header_bytes[IPV4_HEADER..]) {
            return Err(DropReason::SourceRoute);
        }
        let protocol = Protocol::of_number(protocol).ok_or(DropReason::OtherProtocol)?;
        let field = u16::from_be_bytes([f0, f1]) & (IPV4_MORE | IPV4_OFFSET);
        let part = Part {
            id: u16::from_be_bytes([i0, i1]).into(),
            offset: usize::from(field & IPV4_OFFSET) * FRAGMENT_UNIT,
            more: field & IPV4_MORE != 0,
        };
        Ok(Self {
            protocol,
            source: Ipv4Addr::new(s0, s1, s2, s3).into(),
            destination: Ipv4Addr::new(d0, d1, d2, d3).into(),
            ecn: Ecn::from_bits(class),
            data: header..total,
            part: (field != 0).then_some(part),
        })
    }

    fn v6(packet: &[u8], left: usize) -> Result<Self, DropReason> {
        if array::<1>(packet, 0)?[0] >> 4 != 6 {
            return Err(DropReason::IpHeader);
        }
        let total = IPV6_HEADER + usize::from(u16::from_be_bytes(array(packet, 4)?));
        if total > left {
            return Err(DropReason::Truncated);
        }
        let (mut protocol, mut header) = (array::<1>(packet, 6)?[0], IPV6_HEADER);
        let mut part = None;
        if protocol == PROTOCOL_FRAGMENT {
            header += FRAGMENT_HEADER;
            if header > total {
                return Err(DropReason::IpHeader);
            }
            protocol = array::<1>(packet, IPV6_HEADER)?[0];
            let field = u16::from_be_bytes(array(packet, IPV6_HEADER + 2)?);
            let id = u32::from_be_bytes(array(packet, IPV6_HEADER + 4)?);
            // The offset in units of eight bytes is three bits up: it is one in bytes.
            let (offset, more) = (usize::from(field & IPV6_OFFSET), field & IPV6_MORE != 0);
            // One that is all of its packet stands for itself (RFC 6946).
            part = (offset > 0 || more).then_some(Part { id, offset, more });
        }
        let protocol = Protocol::of_number(protocol).ok_or(DropReason::OtherProtocol)?;
        Ok(Self {
            protocol,
            source: Ipv6Addr::from(array::<16>(packet, 8)?).into(),
            destination: Ipv6Addr::from(array::<16>(packet, 24)?).into(),
            ecn: Ecn::from_bits(array::<1>(packet, 1)?[0] >> 4),
            data: header..total,
            part,
        })
    }
}

/// Whether one of these options of IPv4 is a source route, loose or strict.
fn has_source_route(mut options: &[u8]) -> bool {
    loop {
        options = match options {
            [] | [OPTIONS_END, ..] => return false,
            [NO_OPTION, rest @ ..] => rest,
            [LOOSE_ROUTE | STRICT_ROUTE, ..] => return true,
            [_, len @ 2..=u8::MAX, ..] => options.get(usize::from(*len)..).unwrap_or(&[]),
            // No option has that length, so no other follows.
            _ => return false,
        };
    }
}

#[inline]
pub(crate) fn array<const N: usize>(bytes: &[u8], at: usize) -> Result<[u8; N], DropReason> {
    bytes
        .get(at..)
        .and_then(|rest| rest.first_chunk::<N>())
        .copied()
        .ok_or(DropReason::Truncated)
}
