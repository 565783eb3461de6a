//! Whose a frame is, without judging it: for whoever only looks on.

use std::net::IpAddr;

use super::parse::{Ip, Link};
use super::{Protocol, UDP_HEADER};

/// From where to where the TCP segment or SCTP packet in a frame goes, or the fragment of one. Around SCTP there may be
/// UDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// What it carries: TCP or SCTP.
    pub protocol: Protocol,
    pub source: IpAddr,
    pub destination: IpAddr,
    /// The ports of both in the same order; none in fragments behind the first, which have no
    /// header of it.
    pub ports: Option<(u16, u16)>,
    /// It is a fragment of a packet, the first or another.
    pub is_fragment: bool,
}

/// The flow of a frame with TCP or SCTP over IPv4 or IPv6; nothing of others, and of those whose IP header
/// is not sound. The protocol's checksum is not looked at. `frame` is the beginning of a frame of `len` bytes, with
/// all headers.
#[must_use]
pub fn flow(frame: &[u8], len: usize) -> Option<Flow> {
    let link = Link::parse(frame).ok()?;
    let ip = Ip::parse(frame, &link, len).ok()?;
    let has_header = ip.part.is_none_or(|part| part.offset == 0);
    let (protocol, before) = match ip.protocol {
        Protocol::Udp => (Protocol::Sctp, UDP_HEADER),
        protocol => (protocol, 0),
    };
    let there = ip.data.start..ip.data.end.min(frame.len());
    let ports = frame.get(there).and_then(|packet| packet.get(before..));
    let ports = ports.and_then(|packet| packet.first_chunk::<4>());
    let ports = ports.filter(|_| has_header).map(|&[a, b, c, d]| {
        let (source, destination) = ([a, b], [c, d]);
        (u16::from_be_bytes(source), u16::from_be_bytes(destination))
    });
    Some(Flow {
        protocol,
        source: ip.source,
        destination: ip.destination,
        ports,
        is_fragment: ip.part.is_some(),
    })
}

#[cfg(test)]
mod tests;
