//! Headers before a TCP segment.

use std::net::IpAddr;

use userspace_tcp::checksum;

use super::{
    ETHERNET_HEADER, ETHERTYPE_IPV4, ETHERTYPE_IPV6, ETHERTYPE_VLAN, HOP_LIMIT, IPV4_HEADER,
    IPV6_HEADER, PROTOCOL_TCP, Path, VLAN_TAG,
};

/// Octets of the Ethernet and IP headers in front of a TCP segment on this way.
pub fn headers_len(path: &Path, remote: IpAddr) -> usize {
    let link = ETHERNET_HEADER + if path.vlan.is_some() { VLAN_TAG } else { 0 };
    link + if remote.is_ipv4() {
        IPV4_HEADER
    } else {
        IPV6_HEADER
    }
}

/// Writes the Ethernet and IP headers in front of a TCP segment of `segment_len` octets (header
/// and payload) to the beginning of `out`; returns how many octets they are, [`headers_len`].
///
/// IPv4 goes with Don't Fragment and identification 0 (RFC 6864 section 4.1). None when `out` is
/// too short, the segment is longer than an IP packet can be, or the two addresses are of
/// different families: nothing was written that may be sent.
pub fn emit(
    path: &Path,
    local: IpAddr,
    remote: IpAddr,
    segment_len: usize,
    out: &mut [u8],
) -> Option<usize> {
    let len = headers_len(path, remote);
    let out = out.get_mut(..len)?;
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
            let total = u16::try_from(IPV4_HEADER + segment_len).ok()?;
            put(ip, 0, &[0x45, 0])?;
            put(ip, 2, &total.to_be_bytes())?;
            // Identification 0, Don't Fragment, offset 0.
            put(ip, 4, &[0, 0, 0x40, 0])?;
            put(ip, 8, &[HOP_LIMIT, PROTOCOL_TCP, 0, 0])?;
            put(ip, 12, &source.octets())?;
            put(ip, 16, &destination.octets())?;
            let sum = checksum::fold(checksum::sum(ip));
            put(ip, 10, &sum.to_be_bytes())?;
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let payload = u16::try_from(segment_len).ok()?;
            put(ip, 0, &[0x60, 0, 0, 0])?;
            put(ip, 4, &payload.to_be_bytes())?;
            put(ip, 6, &[PROTOCOL_TCP, HOP_LIMIT])?;
            put(ip, 8, &source.octets())?;
            put(ip, 24, &destination.octets())?;
        }
        _ => return None,
    }
    Some(len)
}

fn put(out: &mut [u8], at: usize, octets: &[u8]) -> Option<()> {
    out.get_mut(at..at + octets.len())?.copy_from_slice(octets);
    Some(())
}
