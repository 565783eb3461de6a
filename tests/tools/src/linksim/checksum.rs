//! Internet checksums of packets (RFC 1071): checked before a packet is rewritten, set after.

use userspace_net::checksum::{PartialSum, fold, sum};

use super::packet::{Packet, Tcp, put_u16};

/// Where the checksum is in an IPv4 header.
const IPV4_AT: usize = 10;
/// Where the checksum is in a TCP header.
const TCP_AT: usize = 16;

/// Whether the segment's checksum is right.
pub(super) fn tcp_is_right(frame: &[u8], packet: &Packet, tcp: &Tcp) -> bool {
    let segment = &frame[tcp.at..packet.end()];
    (pseudo(frame, packet, packet.protocol, segment.len()) + sum(segment)).folded() == u16::MAX
}

/// Writes the checksum of the IPv4 header, if it is one.
pub(super) fn set_ip(frame: &mut [u8], packet: &Packet) {
    if packet.version == 4 {
        let header = &mut frame[packet.ip..packet.ip + packet.header];
        put_u16(header, IPV4_AT, 0);
        let checksum = fold(sum(header));
        put_u16(header, IPV4_AT, checksum);
    }
}

/// Writes the checksum of a TCP segment.
pub(super) fn set_tcp(frame: &mut [u8], packet: &Packet, tcp: &Tcp) {
    let end = packet.end();
    put_u16(frame, tcp.at + TCP_AT, 0);
    let length = end - tcp.at;
    let total = pseudo(frame, packet, packet.protocol, length) + sum(&frame[tcp.at..end]);
    put_u16(frame, tcp.at + TCP_AT, fold(total));
}

/// The sum of the pseudo-header of a packet's addresses (RFC 9293 section 3.1, RFC 8200 section
/// 8.1).
pub(super) fn pseudo(frame: &[u8], packet: &Packet, protocol: u8, length: usize) -> PartialSum {
    let (at, bytes) = packet.addresses();
    // A packet has at most 65535 bytes.
    let rest = [length as u16, u16::from(protocol)].map(PartialSum::from_folded);
    sum(&frame[at..at + 2 * bytes]) + rest[0] + rest[1]
}
