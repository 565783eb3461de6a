//! Headers of a TCP segment, and those before it or before an SCTP packet, which may be in UDP.

use std::net::IpAddr;

use userspace_net::checksum::{self, PartialSum};
use userspace_net::{Ecn, FourTuple, UdpPorts};
use userspace_tcp::TcpHeader;
use userspace_tcp::segment::CHECKSUM_OFFSET;

use super::{
    ETHERNET_HEADER, ETHERTYPE_IPV4, ETHERTYPE_IPV6, ETHERTYPE_VLAN, IPV4_HEADER, Path, Protocol,
    VLAN_TAG,
};

/// Where UDP's header has its checksum.
pub(crate) const UDP_CHECKSUM_OFFSET: usize = 6;

/// The payload of a segment whose headers are to be written: it lies behind them already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Payload {
    /// Bytes.
    pub len: usize,
    /// The checksum's partial sum over them.
    pub sum: PartialSum,
}

/// Writes all headers of a segment, checksums included, to the beginning of `out`; returns how many
/// bytes they are: [`Path::headers_len`] and [`TcpHeader::header_len`]. The payload itself is not
/// looked at. None as in [`emit`].
pub fn write_segment(
    path: &Path,
    tuple: &FourTuple,
    ecn: Ecn,
    header: &TcpHeader,
    payload: Payload,
    out: &mut [u8],
) -> Option<usize> {
    let (source, destination) = (tuple.local.addr, tuple.remote.addr);
    let tcp_len = header.header_len();
    let segment_len = tcp_len + payload.len;
    let protocol = Protocol::Tcp;
    let before = emit(
        path,
        (source, destination),
        (protocol, segment_len),
        ecn,
        out,
    )?;
    let tcp = out.get_mut(before..before + tcp_len)?;
    let (_, header_sum) = header.emit_summed(tcp);
    let sum = checksum::pseudo(source, destination, protocol.number(), segment_len)
        + header_sum
        + payload.sum;
    put(tcp, CHECKSUM_OFFSET, &checksum::fold(sum).to_be_bytes())?;
    Some(before + tcp_len)
}

/// Writes a UDP header, checksum included, to the beginning of `out`, in front of the SCTP packet that is all the rest
/// of it (RFC 6951 section 5.3). None when the two are more than UDP can have.
pub fn write_udp((local, remote): (IpAddr, IpAddr), ports: UdpPorts, out: &mut [u8]) -> Option<()> {
    let len = u16::try_from(out.len()).ok()?;
    put(out, 0, &ports.source.to_be_bytes())?;
    put(out, 2, &ports.destination.to_be_bytes())?;
    put(out, 4, &len.to_be_bytes())?;
    put(out, UDP_CHECKSUM_OFFSET, &[0; 2])?;
    let sum = checksum::pseudo(local, remote, Protocol::Udp.number(), out.len())
        + PartialSum::from_folded(rnic_crc::sum(out));
    // A sum of zero is sent as all ones: zero says that there is none (RFC 768).
    let checksum = match checksum::fold(sum) {
        0 => u16::MAX,
        sum => sum,
    };
    put(out, UDP_CHECKSUM_OFFSET, &checksum.to_be_bytes())
}

/// Writes the Ethernet and IP headers to the beginning of `out`, in front of a TCP segment, an SCTP packet or a UDP
/// packet of `len` bytes, header and payload. Returns how many bytes they are, [`Path::headers_len`].
///
/// IPv4 goes with Don't Fragment and identification 0 (RFC 6864 section 4.1). None when `out` is
/// too short, `len` is more than an IP packet can have, or the two addresses are of
/// different families: nothing was written that may be sent.
pub fn emit(
    path: &Path,
    (local, remote): (IpAddr, IpAddr),
    (protocol, len): (Protocol, usize),
    ecn: Ecn,
    out: &mut [u8],
) -> Option<usize> {
    let headers = path.headers_len(remote);
    let out = out.get_mut(..headers)?;
    let (link, ip) = match path.vlan {
        Some(tci) => {
            let (link, ip) = out.split_at_mut_checked(ETHERNET_HEADER + VLAN_TAG)?;
            put(link, 12, &ETHERTYPE_VLAN.to_be_bytes())?;
            put(link, 14, &tci.to_be_bytes())?;
            (link, ip)
        }
        None => out.split_at_mut_checked(ETHERNET_HEADER)?,
    };
    put(link, 0, &path.dst_mac)?;
    put(link, 6, &path.src_mac)?;
    let ethertype = if remote.is_ipv4() {
        ETHERTYPE_IPV4
    } else {
        ETHERTYPE_IPV6
    };
    let at = link.len() - 2;
    put(link, at, &ethertype.to_be_bytes())?;
    match (local, remote) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let total = u16::try_from(IPV4_HEADER + len).ok()?;
            let ip: &mut [u8; IPV4_HEADER] = ip.try_into().ok()?;
            let mut words = [
                0x4500_0000 | u32::from(ecn.bits()) << 16 | u32::from(total),
                // Identification 0, Don't Fragment, offset 0.
                0x0000_4000,
                u32::from(path.hop_limit) << 24 | u32::from(protocol.number()) << 16,
                source.to_bits(),
                destination.to_bits(),
            ];
            let sum = PartialSum::of_words(words.map(u64::from).iter().sum());
            words[2] |= u32::from(checksum::fold(sum));
            for (place, word) in ip.as_chunks_mut::<4>().0.iter_mut().zip(words) {
                *place = word.to_be_bytes();
            }
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let payload = u16::try_from(len).ok()?;
            put(ip, 0, &[0x60, ecn.bits() << 4, 0, 0])?;
            put(ip, 4, &payload.to_be_bytes())?;
            put(ip, 6, &[protocol.number(), path.hop_limit])?;
            put(ip, 8, &source.octets())?;
            put(ip, 24, &destination.octets())?;
        }
        _ => return None,
    }
    Some(headers)
}

fn put(out: &mut [u8], at: usize, bytes: &[u8]) -> Option<()> {
    out.get_mut(at..at + bytes.len())?.copy_from_slice(bytes);
    Some(())
}
