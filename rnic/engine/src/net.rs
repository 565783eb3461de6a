//! Ethernet, one VLAN tag, IPv4 and IPv6 around a TCP segment (RFC 791, RFC 8200, IEEE 802.1Q).
//!
//! A received frame becomes a [`Received`] once, with its IP and TCP checksums verified over the
//! whole segment; after that no length is checked again. Nothing here answers anything: ARP, ND,
//! ICMP and fragments are the kernel's, and never get here unless steering fails.

mod emit;
mod parse;
#[cfg(test)]
mod tests;

pub use emit::{emit, headers_len};
pub use parse::{Received, Unusable, parse};

/// Octets of an Ethernet header without a VLAN tag.
pub const ETHERNET_HEADER: usize = 14;
/// Octets that a VLAN tag adds.
pub const VLAN_TAG: usize = 4;
/// Octets of an IPv4 header without options.
pub const IPV4_HEADER: usize = 20;
/// Octets of an IPv6 header without extension headers.
pub const IPV6_HEADER: usize = 40;

const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_IPV6: u16 = 0x86dd;
const ETHERTYPE_VLAN: u16 = 0x8100;
const PROTOCOL_TCP: u8 = 6;
/// The hop limit of what we send (RFC 1700's recommended default).
const HOP_LIMIT: u8 = 64;

/// How frames get to a peer: the link-layer addresses of the next hop, and the MTU of the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    /// Our interface's address.
    pub src_mac: [u8; 6],
    /// The next hop's address.
    pub dst_mac: [u8; 6],
    /// The Tag Control Information of the one VLAN tag, when there is one.
    pub vlan: Option<u16>,
    /// Largest IP packet, in octets.
    pub mtu: u32,
}
