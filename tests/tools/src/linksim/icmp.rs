//! The answer to a packet that is larger than the link takes: ICMP "fragmentation needed" (RFC 792,
//! RFC 1191 section 4) or ICMPv6 "packet too big" (RFC 4443 section 3.2).
//!
//! The link has no address of its own, so the answer comes from the address that the packet was
//! sent to, which its sender knows a way from.

use rnic_xsk::Frame;
use userspace_net::checksum::{fold, sum};

use super::buffers::Buffers;
use super::checksum;
use super::packet::{IPV4_HEADER, IPV6_HEADER, Packet, put_u16, put_u32};

const ICMP: u8 = 1;
const ICMPV6: u8 = 58;
/// Type, code, checksum, and four bytes that hold the MTU.
const HEADER: usize = 8;
/// The most bytes of an ICMP error: RFC 1812 section 4.3.2.3.
const IPV4_MOST: usize = 576;
/// And of an ICMPv6 error: the least MTU of IPv6.
const IPV6_MOST: usize = 1280;
/// Destination unreachable, fragmentation needed.
const IPV4_TYPE_CODE: [u8; 2] = [3, 4];
/// Packet too big.
const IPV6_TYPE_CODE: [u8; 2] = [2, 0];
const HOPS: u8 = 64;

/// The answer to `frame`, to be sent back to where it came from. None to what must not be answered
/// (RFC 1122 section 3.2.2, RFC 4443 section 2.4), and none when no frame is free.
pub(super) fn too_big(
    frame: &Frame,
    packet: &Packet,
    mtu: u16,
    buffers: &mut Buffers,
) -> Option<Frame> {
    let original = buffers.bytes(frame);
    if !may_be_answered(original, packet) {
        return None;
    }
    let (header, most) = match packet.version {
        4 => (IPV4_HEADER, IPV4_MOST),
        _ => (IPV6_HEADER, IPV6_MOST),
    };
    let quoted = packet.length.min(most - header - HEADER);
    let mut answer = buffers.alloc(packet.ip + header + HEADER + quoted)?;
    let umem = &buffers.umem;
    let original = umem.bytes(frame);
    let length = answer.len();
    let bytes = &mut umem.bytes_mut(&mut answer)[..length];
    bytes[..packet.ip].copy_from_slice(&original[..packet.ip]);
    bytes[..6].copy_from_slice(&original[6..12]);
    bytes[6..12].copy_from_slice(&original[..6]);
    let quote = &original[packet.ip..packet.ip + quoted];
    bytes[packet.ip + header + HEADER..].copy_from_slice(quote);
    let message = packet.ip + header;
    bytes[message..message + HEADER].fill(0);
    if packet.version == 4 {
        ipv4(bytes, packet, original, mtu);
    } else {
        ipv6(bytes, packet, original, mtu);
    }
    Some(answer)
}

fn ipv4(bytes: &mut [u8], packet: &Packet, original: &[u8], mtu: u16) {
    let (ip, message) = (packet.ip, packet.ip + IPV4_HEADER);
    let length = bytes.len() - ip;
    let header = &mut bytes[ip..message];
    header.fill(0);
    header[0] = 0x45;
    // Precedence 6, internetwork control (RFC 1812 section 4.3.2.5).
    header[1] = 0xc0;
    put_u16(header, 2, length as u16);
    header[8] = HOPS;
    header[9] = ICMP;
    header[12..16].copy_from_slice(&original[ip + 16..ip + 20]);
    header[16..20].copy_from_slice(&original[ip + 12..ip + 16]);
    let header_sum = fold(sum(header));
    put_u16(header, 10, header_sum);
    bytes[message..message + 2].copy_from_slice(&IPV4_TYPE_CODE);
    put_u16(bytes, message + 6, mtu);
    let checksum = fold(sum(&bytes[message..]));
    put_u16(bytes, message + 2, checksum);
}

fn ipv6(bytes: &mut [u8], packet: &Packet, original: &[u8], mtu: u16) {
    let (ip, message) = (packet.ip, packet.ip + IPV6_HEADER);
    let length = bytes.len() - message;
    let header = &mut bytes[ip..message];
    header.fill(0);
    header[0] = 0x60;
    put_u16(header, 4, length as u16);
    header[6] = ICMPV6;
    header[7] = HOPS;
    header[8..24].copy_from_slice(&original[ip + 24..ip + 40]);
    header[24..40].copy_from_slice(&original[ip + 8..ip + 24]);
    bytes[message..message + 2].copy_from_slice(&IPV6_TYPE_CODE);
    put_u32(bytes, message + 4, u32::from(mtu));
    let total = checksum::pseudo(bytes, packet, ICMPV6, length) + sum(&bytes[message..]);
    put_u16(bytes, message + 2, fold(total));
}

fn may_be_answered(frame: &[u8], packet: &Packet) -> bool {
    // Sent to a group of hosts, on the link or by IP.
    if frame[0] & 1 == 1 {
        return false;
    }
    let (at, bytes) = packet.addresses();
    let source = &frame[at..at + bytes];
    let unspecified = source.iter().all(|byte| *byte == 0);
    let group = match packet.version {
        4 => source[0] >= 224,
        _ => source[0] == 0xff,
    };
    // Also no ICMP error about an ICMP error; an echo is the only ICMP as large as this.
    let kind = frame.get(packet.ip + packet.header).copied().unwrap_or(0);
    let error = match packet.protocol {
        ICMP if packet.version == 4 => !matches!(kind, 0 | 8),
        ICMPV6 if packet.version == 6 => kind < 128,
        _ => false,
    };
    let later_fragment = packet.version == 4 && packet.offset > 0;
    !(unspecified || group || error || later_fragment)
}

#[cfg(test)]
mod tests;
