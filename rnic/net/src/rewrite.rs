//! Headers of an earlier transmission made those of the next one (RFC 1624).
//!
//! A segment that is sent again differs from its last transmission in a few fields. They are changed
//! where they lie, and each checksum by what changed under it (RFC 1624 section 3, equation 3).
//! Nothing is changed unless the headers that are there are this very segment's.

use std::net::IpAddr;

use userspace_tcp::checksum::{self, PartialSum};
use userspace_tcp::segment::CHECKSUM_OFFSET;
use userspace_tcp::{Ecn, FourTuple, Options, TIMESTAMPS_LEN, TcpHeader};

use super::{
    ETHERTYPE_IPV4, ETHERTYPE_IPV6, ETHERTYPE_VLAN, IPV4_HEADER, IPV6_HEADER, PROTOCOL_TCP, Path,
    TCP_HEADER,
};

/// Two NOPs, the kind and the length of the timestamps option (RFC 7323 appendix A).
const TIMESTAMPS_HEAD: [u8; 4] = [1, 1, 8, 10];

/// Makes the headers at the beginning of `out`, which [`super::write_segment`] or this function put
/// there for an earlier transmission of the segment, what `write_segment` would write; returns how
/// many octets they are.
///
/// None, and nothing is changed, when they are not: another connection's or segment's, another
/// length of the payload, options other than timestamps, another VLAN tagging or hop limit. Then `write_segment`
/// is the way.
pub fn rewrite_segment(
    path: &Path,
    tuple: &FourTuple,
    ecn: Ecn,
    header: &TcpHeader,
    payload_len: usize,
    out: &mut [u8],
) -> Option<usize> {
    let timestamps = header.options.timestamps;
    let tcp_len = TCP_HEADER + timestamps.map_or(0, |_| TIMESTAMPS_LEN);
    let only_timestamps = Options {
        timestamps,
        ..Options::default()
    };
    if header.options != only_timestamps {
        return None;
    }
    let len = path.headers_len(tuple.remote.addr) + tcp_len;
    let out = out.get_mut(..len)?;
    let (link, packet) = out.split_at_mut_checked(path.link_len())?;
    let (ip, tcp) = packet.split_at_mut_checked(packet.len().checked_sub(tcp_len)?)?;
    let same = is_link(link, path, tuple)
        && is_ip(ip, path, tuple, tcp_len + payload_len)?
        && is_tcp(tcp, header, tcp_len);
    if !same {
        return None;
    }

    link.get_mut(..6)?.copy_from_slice(&path.dst_mac);
    link.get_mut(6..12)?.copy_from_slice(&path.src_mac);
    if tuple.remote.addr.is_ipv4() {
        let mut ip = Summed { octets: ip, at: 10 };
        ip.set(0, u16::from_be_bytes([0x45, ecn.bits()]))?;
    } else {
        *ip.get_mut(1)? = ecn.bits() << 4;
    }
    let mut tcp = Summed {
        octets: tcp,
        at: CHECKSUM_OFFSET,
    };
    tcp.set_long(8, header.ack.0)?;
    tcp.set(
        12,
        u16::from_be_bytes([offset_octet(tcp_len), header.flags.0]),
    )?;
    tcp.set(14, header.window)?;
    tcp.set(18, header.urgent)?;
    if let Some(timestamps) = timestamps {
        tcp.set_long(24, timestamps.value)?;
        tcp.set_long(28, timestamps.echo)?;
    }
    Some(len)
}

/// Whether a link header has this path's tagging. The addresses are covered by no checksum.
fn is_link(link: &[u8], path: &Path, tuple: &FourTuple) -> bool {
    let ethertype = if tuple.remote.addr.is_ipv4() {
        ETHERTYPE_IPV4
    } else {
        ETHERTYPE_IPV6
    };
    match path.vlan {
        Some(tci) => {
            link.get(12..14) == Some(&ETHERTYPE_VLAN.to_be_bytes())
                && link.get(14..16) == Some(&tci.to_be_bytes())
                && link.get(16..) == Some(&ethertype.to_be_bytes())
        }
        None => link.get(12..) == Some(&ethertype.to_be_bytes()),
    }
}

/// Whether an IP header is one that [`super::emit`] wrote for this connection, hop limit and length. None when
/// the addresses are of different families or the length is too much.
fn is_ip(ip: &[u8], path: &Path, tuple: &FourTuple, segment_len: usize) -> Option<bool> {
    let (local, remote) = (tuple.local.addr, tuple.remote.addr);
    Some(match (local, remote) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let total = u16::try_from(IPV4_HEADER + segment_len).ok()?;
            ip.first() == Some(&0x45)
                && ip.get(2..4) == Some(&total.to_be_bytes())
                && ip.get(4..10) == Some(&[0, 0, 0x40, 0, path.hop_limit, PROTOCOL_TCP])
                && ip.get(12..16) == Some(&source.octets())
                && ip.get(16..) == Some(&destination.octets())
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let payload = u16::try_from(segment_len).ok()?;
            ip.first() == Some(&0x60)
                && ip.get(2..4) == Some(&[0, 0])
                && ip.get(4..6) == Some(&payload.to_be_bytes())
                && ip.get(6..8) == Some(&[PROTOCOL_TCP, path.hop_limit])
                && ip.get(8..24) == Some(&source.octets())
                && ip.get(24..IPV6_HEADER) == Some(&destination.octets())
        }
        _ => return None,
    })
}

/// Whether a TCP header is of this segment and has the same options.
fn is_tcp(tcp: &[u8], header: &TcpHeader, tcp_len: usize) -> bool {
    tcp.get(0..2) == Some(&header.source_port.to_be_bytes())
        && tcp.get(2..4) == Some(&header.destination_port.to_be_bytes())
        && tcp.get(4..8) == Some(&header.seq.0.to_be_bytes())
        && tcp.get(12) == Some(&offset_octet(tcp_len))
        && (tcp_len == TCP_HEADER || tcp.get(20..24) == Some(&TIMESTAMPS_HEAD))
}

/// The octet of the data offset: at most 32 octets here.
fn offset_octet(tcp_len: usize) -> u8 {
    ((tcp_len / 4) << 4) as u8
}

/// A header with its checksum, which follows each change.
struct Summed<'a> {
    octets: &'a mut [u8],
    /// Where the checksum is.
    at: usize,
}

impl Summed<'_> {
    /// Puts a word at an even place.
    fn set(&mut self, at: usize, new: u16) -> Option<()> {
        let place = self.octets.get_mut(at..)?.first_chunk_mut::<2>()?;
        let old = u16::from_be_bytes(*place);
        if old == new {
            return Some(());
        }
        *place = new.to_be_bytes();
        let place = self.octets.get_mut(self.at..)?.first_chunk_mut::<2>()?;
        *place = update(u16::from_be_bytes(*place), old, new).to_be_bytes();
        Some(())
    }

    /// Puts two words at an even place.
    fn set_long(&mut self, at: usize, new: u32) -> Option<()> {
        self.set(at, (new >> 16) as u16)?;
        self.set(at + 2, new as u16)
    }
}

/// The checksum after a word under it changed: HC' = ~(~HC + ~m + m') (RFC 1624 section 3,
/// equation 3).
pub(crate) fn update(checksum: u16, old: u16, new: u16) -> u16 {
    let sum = PartialSum::from_folded(!checksum)
        + PartialSum::from_folded(!old)
        + PartialSum::from_folded(new);
    checksum::fold(sum)
}

#[cfg(test)]
mod tests;
