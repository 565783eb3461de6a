//! Ethernet, one VLAN tag, IPv4 and IPv6 around a TCP segment or an SCTP packet (RFC 791, RFC 8200, IEEE 802.1Q). An
//! SCTP packet may be in UDP (RFC 6951).
//!
//! A received frame becomes a [`Received`] once, with its IP and TCP checksums verified over the
//! whole segment; after that no length is checked again. SCTP's checksum is the SCTP stack's to verify. [`write_segment`] puts all headers in front
//! of a payload that lies where they end, a [`HeaderTemplate`] does so for one connection's segment after
//! segment.
//! [`Fragments`] and [`Reassembly`] are for paths that are narrower than a segment, [`parse_icmp`] for
//! what routers say of them, [`flow()`] for who only looks on. [`Vlans`] says which local addresses are
//! on which VLAN, [`PeerRules`] with which peers connections are allowed, [`IpsecPolicies`] what the
//! host lets nobody send in clear, and [`RejectedPaths`] where its routes let nothing go.
//!
//! Nothing here does I/O, allocates after it was made, or answers anything: ARP, ND and ICMP are the
//! kernel's.
//!
//! ```
//! use rnic_net::Path;
//!
//! // What fits a segment over a link with an MTU of 1500.
//! let path = Path::loopback(1500);
//! assert_eq!(path.mss([198, 18, 0, 1].into()), 1460);
//! assert_eq!(path.mss("2001:db8::1".parse::<std::net::IpAddr>().unwrap()), 1440);
//! ```
#![forbid(unsafe_code)]

mod emit;
mod flow;
mod fragment;
mod icmp;
mod ipsec;
mod parse;
mod peers;
mod prediction;
mod protocol;
mod reassembly;
mod rejected;
mod template;
#[cfg(test)]
mod tests;
mod vlan;

use std::fmt;
use std::net::IpAddr;

pub use emit::{Payload, emit, write_segment, write_udp};
pub use flow::{Flow, flow};
pub use fragment::{Fragments, Identification};
pub use icmp::{IcmpReport, Quoted, parse_icmp, parse_icmp_frame, parse_icmpv6};
pub use ipsec::{IpsecAction, IpsecDirection, IpsecPolicies, IpsecPolicy, PortSelector};
pub use parse::{Checksum, DropReason, Received, parse, parse_parts};
pub use peers::{AllowList, ListOwner, PeerRules};
pub use prediction::{HeaderPrediction, Match, PredictedFields};
pub use protocol::Protocol;
pub use reassembly::{FRAGMENT_LIFETIME, Reassembly, ReassemblyCounters};
pub use rejected::RejectedPaths;
pub use template::{HeaderTemplate, VariableFields};
pub use vlan::{ParsePrefixError, Prefix, VlanId, Vlans};

/// Bytes of an Ethernet header without a VLAN tag.
pub const ETHERNET_HEADER: usize = 14;
/// Bytes that a VLAN tag adds.
pub const VLAN_TAG: usize = 4;
/// Bytes of an IPv4 header without options.
pub const IPV4_HEADER: usize = 20;
/// Bytes of an IPv6 header without extension headers.
pub const IPV6_HEADER: usize = 40;
/// Bytes of a TCP header without options.
pub const TCP_HEADER: usize = 20;
/// Bytes of a UDP header.
pub const UDP_HEADER: usize = 8;
/// Bytes of an SCTP packet's common header.
pub const SCTP_HEADER: usize = 12;
/// The most bytes of headers that are kept: Ethernet with a tag, IPv6, TCP with timestamps.
const HEADERS_MAX: usize = 96;

const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_IPV6: u16 = 0x86dd;
const ETHERTYPE_VLAN: u16 = 0x8100;
/// The next header of IPv6 that says: a Fragment header follows (RFC 8200 section 4.5).
const PROTOCOL_FRAGMENT: u8 = 44;
/// Bytes of IPv6's Fragment header.
const FRAGMENT_HEADER: usize = 8;
/// Bytes that fragment offsets count, and that all fragments but the last have a multiple of.
const FRAGMENT_UNIT: usize = 8;
/// The hop limit of hosts that don't say (RFC 1700's recommended default).
const HOP_LIMIT: u8 = 64;
/// More Fragments and Fragment Offset in the word of the IPv4 header (RFC 791 section 3.1).
const IPV4_MORE: u16 = 0x2000;
const IPV4_OFFSET: u16 = 0x1fff;
/// The same in IPv6's Fragment header.
const IPV6_MORE: u16 = 0x0001;
const IPV6_OFFSET: u16 = 0xfff8;

/// How frames get to a peer: the link-layer addresses of the next hop, the MTU of the way, and how
/// many routers may be on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    /// Our interface's address.
    pub src_mac: [u8; 6],
    /// The next hop's address.
    pub dst_mac: [u8; 6],
    /// The Tag Control Information of the one VLAN tag, when there is one.
    pub vlan: Option<u16>,
    /// Largest IP packet, in bytes.
    pub mtu: u32,
    /// The Time to Live or Hop Limit that packets leave with (RFC 9293 section 3.9.2, MUST-49).
    pub hop_limit: u8,
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.dst_mac;
        write!(f, "by {a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")?;
        write!(f, ", MTU {}, hop limit {}", self.mtu, self.hop_limit)
    }
}

/// What a path has when nobody asked the routes about it: the interface's settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathDefaults {
    /// Largest IP packet, in bytes.
    pub mtu: u32,
    /// The Time to Live of IPv4 packets.
    pub hop_limit_v4: u8,
    /// The Hop Limit of IPv6 packets.
    pub hop_limit_v6: u8,
}

impl PathDefaults {
    /// An MTU, and the hop limits that hosts commonly have (RFC 1700), 64.
    #[must_use]
    pub const fn new(mtu: u32) -> Self {
        Self {
            mtu,
            hop_limit_v4: HOP_LIMIT,
            hop_limit_v6: HOP_LIMIT,
        }
    }

    /// The hop limit of packets to `remote`.
    #[must_use]
    pub const fn hop_limit(&self, remote: IpAddr) -> u8 {
        match remote {
            IpAddr::V4(_) => self.hop_limit_v4,
            IpAddr::V6(_) => self.hop_limit_v6,
        }
    }
}

impl Path {
    /// The way to the host itself: like those of the kernel's loopback interface its link addresses are
    /// all zero, which no other interface's are.
    #[must_use]
    pub const fn loopback(mtu: u32) -> Self {
        Self {
            src_mac: [0; 6],
            dst_mac: [0; 6],
            vlan: None,
            mtu,
            hop_limit: HOP_LIMIT,
        }
    }

    /// Whether it is a [`Self::loopback`].
    #[inline]
    #[must_use]
    pub fn is_loopback(&self) -> bool {
        (self.src_mac, self.dst_mac) == ([0; 6], [0; 6])
    }

    /// Bytes of the Ethernet and IP headers in front of a TCP segment to `remote`.
    #[inline]
    pub fn headers_len(&self, remote: IpAddr) -> usize {
        self.link_len() + ip_header_len(remote)
    }

    /// Bytes of the Ethernet header, VLAN tag included.
    #[inline]
    pub fn link_len(&self) -> usize {
        ETHERNET_HEADER + if self.vlan.is_some() { VLAN_TAG } else { 0 }
    }

    /// The most TCP payload and options of one segment to `remote`, in bytes: the MTU less IP and
    /// TCP headers (RFC 9293 section 3.7.1, RFC 6691).
    pub fn mss(&self, remote: IpAddr) -> u16 {
        let bytes = (self.mtu as usize).saturating_sub(ip_header_len(remote) + TCP_HEADER);
        u16::try_from(bytes).unwrap_or(u16::MAX)
    }
}

/// Bytes of the IP header that we send to this address.
pub fn ip_header_len(remote: IpAddr) -> usize {
    if remote.is_ipv4() {
        IPV4_HEADER
    } else {
        IPV6_HEADER
    }
}
