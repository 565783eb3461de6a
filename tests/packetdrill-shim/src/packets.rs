//! IP datagrams, which is what packetdrill's packets are, from and to what `rnic-net` knows, which is
//! Ethernet frames.

use rnic_net::{ETHERNET_HEADER, Fragments, IcmpReport, Identification, Path};
use userspace_tcp::Transmit;

/// Ethernet types of IPv4 and IPv6.
const IPV4: [u8; 2] = [0x08, 0x00];
const IPV6: [u8; 2] = [0x86, 0xdd];
/// Bytes of an IPv6 header, and its next header for ICMPv6 (RFC 4443).
const IPV6_HEADER: usize = 40;
const ICMPV6: u8 = 58;

/// The datagram in a frame that `path` could have brought.
pub(crate) fn frame(path: &Path, datagram: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(ETHERNET_HEADER + datagram.len());
    frame.extend_from_slice(&path.src_mac);
    frame.extend_from_slice(&path.dst_mac);
    frame.extend_from_slice(if is_v6(datagram) { &IPV6 } else { &IPV4 });
    frame.extend_from_slice(datagram);
    frame
}

/// An ICMP error about a segment of ours, when that is what it is.
pub(crate) fn icmp(datagram: &[u8]) -> Option<IcmpReport> {
    if !is_v6(datagram) {
        return rnic_net::parse_icmp(datagram);
    }
    let (header, message) = datagram.split_at_checked(IPV6_HEADER)?;
    (header[6] == ICMPV6).then(|| rnic_net::parse_icmpv6(message))?
}

/// The segment as one datagram, or as its fragments.
pub(crate) fn datagrams(
    path: &Path,
    identification: &mut Identification,
    segment: &Transmit<Vec<u8>>,
) -> Vec<Vec<u8>> {
    let tuple = &segment.tuple;
    let bytes = match &segment.payload {
        Some(payload) => &payload.buf[..payload.len as usize],
        None => &[],
    };
    let place = rnic_net::Payload {
        len: bytes.len(),
        sum: segment.payload.as_ref().map(|p| p.sum).unwrap_or_default(),
    };
    let headers = path.headers_len(tuple.remote.addr) + segment.header.header_len();
    let mut frame = vec![0; headers + bytes.len()];
    frame[headers..].copy_from_slice(bytes);
    let header = &segment.header;
    if rnic_net::write_segment(path, tuple, segment.ecn, header, place, &mut frame).is_none() {
        // The stack makes no segment that is longer than a datagram.
        return Vec::new();
    }
    let mut out = Vec::new();
    if let Some(mtu) = segment.fragment_to {
        let id = identification.next(tuple.local.addr, tuple.remote.addr);
        if let Some(mut parts) = Fragments::new(&frame, ETHERNET_HEADER, mtu, id) {
            let mut part = vec![0; frame.len()];
            while let Some(len) = parts.write_next(&mut part) {
                out.push(part[ETHERNET_HEADER..len].to_vec());
            }
            return out;
        }
    }
    frame.drain(..ETHERNET_HEADER);
    out.push(frame);
    out
}

fn is_v6(datagram: &[u8]) -> bool {
    datagram.first().is_some_and(|byte| byte >> 4 == 6)
}
