//! ICMP and ICMPv6 errors about packets of ours (RFC 792, RFC 1191, RFC 4443, RFC 9293 section
//! 3.9.2.2, RFC 9260 section 10): which connection they quote, and what is wrong.
//!
//! Whoever likes may send one. That it quotes a connection of ours, and what is under way, is for TCP and
//! SCTP to check; what there is to believe of it too.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use userspace_net::{Endpoint, FourTuple, checksum};
use userspace_tcp::{IcmpError, SeqNum};

use super::{
    ETHERNET_HEADER, ETHERTYPE_IPV4, ETHERTYPE_IPV6, FRAGMENT_HEADER, IPV4_HEADER, IPV4_OFFSET,
    IPV6_HEADER, IPV6_OFFSET, PROTOCOL_FRAGMENT, Protocol, SCTP_HEADER, UDP_HEADER,
};

#[cfg(test)]
mod tests;

const PROTOCOL_ICMP: u8 = 1;
const PROTOCOL_ICMPV6: u8 = 58;

/// Bytes before what is quoted, in both versions.
const ICMP_HEADER: usize = 8;

/// Types of ICMP (RFC 792).
const UNREACHABLE: u8 = 3;
const TIME_EXCEEDED: u8 = 11;
const PARAMETER_PROBLEM: u8 = 12;
/// Codes of "destination unreachable" (RFC 792, RFC 1122 section 3.2.2.1, RFC 1812 section
/// 5.2.7.1).
const PROTOCOL_UNREACHABLE: u8 = 2;
const PORT_UNREACHABLE: u8 = 3;
const FRAGMENTATION_NEEDED: u8 = 4;
const NETWORK_PROHIBITED: u8 = 9;
const HOST_PROHIBITED: u8 = 10;
const COMMUNICATION_PROHIBITED: u8 = 13;

/// Types of ICMPv6 (RFC 4443).
const UNREACHABLE_V6: u8 = 1;
const PACKET_TOO_BIG_V6: u8 = 2;
const TIME_EXCEEDED_V6: u8 = 3;
const PARAMETER_PROBLEM_V6: u8 = 4;
/// Codes of "destination unreachable" (RFC 4443 section 3.1).
const PROHIBITED_V6: u8 = 1;
const PORT_UNREACHABLE_V6: u8 = 4;
/// Code of "parameter problem" for an unrecognized next header (RFC 4443 section 3.4).
const UNRECOGNIZED_HEADER_V6: u8 = 1;
/// The type of SCTP's INIT chunk.
const SCTP_INIT: u8 = 1;

/// An error about a TCP segment or an SCTP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IcmpReport {
    /// Its ends; we sent it, if it is true: `local` is its source.
    pub tuple: FourTuple,
    /// What tells whether we did.
    pub quoted: Quoted,
    pub error: IcmpError,
}

/// What an error quotes behind the ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quoted {
    Segment {
        /// Its sequence number.
        seq: SeqNum,
    },
    Packet {
        tag: u32,
        /// The Initiate Tag, if it is quoted and an INIT's.
        init_tag: Option<u32>,
        /// The peer's host does not know SCTP, or nothing there takes it in UDP.
        no_protocol: bool,
    },
}

/// Reads an IPv4 packet with an ICMP message, as a raw socket gives it. None when it is no error
/// about a TCP segment or SCTP packet, is damaged, or was not sent to where that came from.
pub fn parse_icmp(packet: &[u8]) -> Option<IcmpReport> {
    let outer = V4::parse(packet)?;
    let message = packet.get(outer.header..outer.total)?;
    if outer.protocol != PROTOCOL_ICMP || checksum::sum(message).folded() != u16::MAX {
        return None;
    }
    let [kind, code] = array(message, 0)?;
    let error = match (kind, code) {
        (UNREACHABLE, FRAGMENTATION_NEEDED) => IcmpError::PacketTooBig {
            mtu: u16::from_be_bytes(array(message, 6)?).into(),
        },
        (UNREACHABLE, _) => IcmpError::Unreachable {
            hard: matches!(
                code,
                PROTOCOL_UNREACHABLE
                    | PORT_UNREACHABLE
                    | NETWORK_PROHIBITED
                    | HOST_PROHIBITED
                    | COMMUNICATION_PROHIBITED
            ),
        },
        (TIME_EXCEEDED | PARAMETER_PROBLEM, _) => IcmpError::Unreachable { hard: false },
        _ => return None,
    };
    let quoted = message.get(ICMP_HEADER..)?;
    let ip = V4::parse(quoted)?;
    if ip.source != outer.destination || !ip.is_first {
        return None;
    }
    let what = Quote {
        protocol: ip.protocol,
        no_protocol: (kind, code) == (UNREACHABLE, PROTOCOL_UNREACHABLE),
        no_port: (kind, code) == (UNREACHABLE, PORT_UNREACHABLE),
        bytes: quoted.get(ip.header..)?,
    };
    report(ip.source.into(), ip.destination.into(), &what, error)
}

/// Reads an ICMPv6 message, as a raw socket gives it, which has checked the checksum. None when it
/// is no error about a TCP segment or SCTP packet.
pub fn parse_icmpv6(message: &[u8]) -> Option<IcmpReport> {
    let [kind, code] = array(message, 0)?;
    let error = match kind {
        PACKET_TOO_BIG_V6 => IcmpError::PacketTooBig {
            mtu: u32::from_be_bytes(array(message, 4)?),
        },
        UNREACHABLE_V6 => IcmpError::Unreachable {
            hard: matches!(code, PROHIBITED_V6 | PORT_UNREACHABLE_V6),
        },
        TIME_EXCEEDED_V6 | PARAMETER_PROBLEM_V6 => IcmpError::Unreachable { hard: false },
        _ => return None,
    };
    let quoted = message.get(ICMP_HEADER..)?;
    let [version] = array(quoted, 0)?;
    let [mut protocol] = array(quoted, 6)?;
    let mut header = IPV6_HEADER;
    if protocol == PROTOCOL_FRAGMENT {
        [protocol] = array(quoted, IPV6_HEADER)?;
        let field = u16::from_be_bytes(array(quoted, IPV6_HEADER + 2)?);
        if field & IPV6_OFFSET != 0 {
            return None;
        }
        header += FRAGMENT_HEADER;
    }
    if version >> 4 != 6 {
        return None;
    }
    let source = Ipv6Addr::from(array::<16>(quoted, 8)?);
    let destination = Ipv6Addr::from(array::<16>(quoted, 24)?);
    let what = Quote {
        protocol,
        no_protocol: (kind, code) == (PARAMETER_PROBLEM_V6, UNRECOGNIZED_HEADER_V6),
        no_port: (kind, code) == (UNREACHABLE_V6, PORT_UNREACHABLE_V6),
        bytes: quoted.get(header..)?,
    };
    report(source.into(), destination.into(), &what, error)
}

/// Reads a frame with an error, of a link that brings none but those that it was told of by the host's kernel. None as
/// in [`parse_icmp`], and when the frame has something else.
pub fn parse_icmp_frame(frame: &[u8]) -> Option<IcmpReport> {
    let (link, packet) = frame.split_at_checked(ETHERNET_HEADER)?;
    match u16::from_be_bytes(array(link, ETHERNET_HEADER - 2)?) {
        ETHERTYPE_IPV4 => parse_icmp(packet),
        ETHERTYPE_IPV6 if array(packet, 6)? == [PROTOCOL_ICMPV6] => {
            parse_icmpv6(packet.get(IPV6_HEADER..)?)
        }
        _ => None,
    }
}

/// A packet's first bytes behind the IP header, eight at least (RFC 792).
struct Quote<'a> {
    protocol: u8,
    /// The error says that its protocol is not known.
    no_protocol: bool,
    /// The error says that nobody has its port.
    no_port: bool,
    bytes: &'a [u8],
}

fn report(
    local: IpAddr,
    remote: IpAddr,
    quote: &Quote<'_>,
    error: IcmpError,
) -> Option<IcmpReport> {
    let protocol = Protocol::of_number(quote.protocol)?;
    let (bytes, no_protocol) = match protocol {
        Protocol::Udp => (quote.bytes.get(UDP_HEADER..)?, quote.no_port),
        Protocol::Tcp | Protocol::Sctp => (quote.bytes, quote.no_protocol),
    };
    let local = Endpoint::new(local, u16::from_be_bytes(array(bytes, 0)?));
    let remote = Endpoint::new(remote, u16::from_be_bytes(array(bytes, 2)?));
    let word = u32::from_be_bytes(array(bytes, 4)?);
    let quoted = match protocol {
        Protocol::Tcp => Quoted::Segment { seq: SeqNum(word) },
        Protocol::Sctp | Protocol::Udp => Quoted::Packet {
            tag: word,
            init_tag: init_tag(bytes),
            no_protocol,
        },
    };
    Some(IcmpReport {
        tuple: FourTuple { local, remote },
        quoted,
        error,
    })
}

/// The Initiate Tag of a packet that begins with an INIT.
fn init_tag(packet: &[u8]) -> Option<u32> {
    let [kind] = array(packet, SCTP_HEADER)?;
    let tag = array(packet, SCTP_HEADER + 4)?;
    (kind == SCTP_INIT).then(|| u32::from_be_bytes(tag))
}

/// What an IPv4 header tells, whether or not all of its packet is there.
struct V4 {
    header: usize,
    total: usize,
    protocol: u8,
    /// Not a later fragment: ports are behind the header.
    is_first: bool,
    source: Ipv4Addr,
    destination: Ipv4Addr,
}

impl V4 {
    fn parse(packet: &[u8]) -> Option<Self> {
        let [version_length] = array(packet, 0)?;
        let header = usize::from(version_length & 0x0f) * 4;
        if version_length >> 4 != 4 || header < IPV4_HEADER {
            return None;
        }
        let [protocol] = array(packet, 9)?;
        Some(Self {
            header,
            total: u16::from_be_bytes(array(packet, 2)?).into(),
            protocol,
            is_first: u16::from_be_bytes(array(packet, 6)?) & IPV4_OFFSET == 0,
            source: array::<4>(packet, 12)?.into(),
            destination: array::<4>(packet, 16)?.into(),
        })
    }
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk::<N>().copied()
}
