//! Several TCP segments in one packet: the kernel, or the device, cuts it where they were (TSO).
//!
//! Which frames may be such a packet is judged here by their headers alone. They are segments of one flow. Each
//! begins where the one before ends, and is as long as the first; the last may be shorter. They say the same otherwise.
//! What the kernel makes of the packet again are these very segments, but for PSH, which is on the last one then,
//! and the identification of IPv4 packets, which may not be fragmented.

/// The most bytes of an IP packet.
const IP_MAX: usize = 65_535;
/// The most segments of a packet.
pub(super) const SEGMENTS_MAX: usize = 48;

const ETHERNET: usize = 14;
const ETHERTYPE_IPV4: [u8; 2] = [0x08, 0x00];
const ETHERTYPE_IPV6: [u8; 2] = [0x86, 0xdd];
/// IEEE 802.1Q.
const ETHERTYPE_VLAN: [u8; 2] = [0x81, 0x00];
const VLAN_TAG: usize = 4;
const IPV4: usize = 20;
const IPV6: usize = 40;
const TCP: usize = 20;
const PROTOCOL_TCP: u8 = 6;
const ACK: u8 = 0x10;
const PSH: u8 = 0x08;
/// The peer's packets had a CE mark (RFC 3168 section 6.1.3): the device puts it into each segment.
const ECE: u8 = 0x40;
/// In a TCP header.
const CHECKSUM_AT: usize = 16;
/// The most bytes of the headers.
pub(super) const HEADERS_MAX: usize = ETHERNET + VLAN_TAG + IPV6 + 60;

/// `struct virtio_net_hdr` of linux/virtio_net.h.
pub(super) const VNET_HEADER: usize = 10;
const NEEDS_CSUM: u8 = 1;
const GSO_TCPV4: u8 = 1;
const GSO_TCPV6: u8 = 4;

/// A segment that may be one of several in a packet.
#[derive(Clone, Copy, Debug)]
struct Segment<'a> {
    frame: &'a [u8],
    at: Offsets,
}

/// Where the headers of a frame begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Offsets {
    ip: usize,
    tcp: usize,
    payload: usize,
}

impl Offsets {
    fn is_v4(&self) -> bool {
        self.tcp - self.ip == IPV4
    }
}

impl<'a> Segment<'a> {
    /// The segment of a frame that says nothing but bytes, an acknowledgment and maybe ECE. It may have a VLAN tag, and
    /// has neither IPv4 options nor IPv6 extension headers. Over IPv4 it may not be fragmented.
    fn of(frame: &'a [u8]) -> Option<Self> {
        let (ip_at, ethertype) = match frame.get(12..14)? {
            tag if tag == ETHERTYPE_VLAN => (ETHERNET + VLAN_TAG, frame.get(16..18)?),
            ethertype => (ETHERNET, ethertype),
        };
        let ip = frame.get(ip_at..)?;
        let (header, len) = if ethertype == ETHERTYPE_IPV4 {
            let fixed = ip.first_chunk::<IPV4>()?;
            // The flag is Don't Fragment, and there is nothing else.
            if fixed[0] != 0x45 || fixed[6..8] != [0x40, 0] || fixed[9] != PROTOCOL_TCP {
                return None;
            }
            (IPV4, word(fixed, 2))
        } else if ethertype == ETHERTYPE_IPV6 {
            let fixed = ip.first_chunk::<IPV6>()?;
            if fixed[0] >> 4 != 6 || fixed[6] != PROTOCOL_TCP {
                return None;
            }
            (IPV6, IPV6 + word(fixed, 4))
        } else {
            return None;
        };
        let tcp = ip.get(header..)?.first_chunk::<TCP>()?;
        let at = Offsets {
            ip: ip_at,
            tcp: ip_at + header,
            payload: ip_at + header + usize::from(tcp[12] >> 4) * 4,
        };
        let plain = tcp[12] & 0x0f == 0 && tcp[13] & !(PSH | ECE) == ACK;
        let sound = at.payload >= at.tcp + TCP && ip_at + len == frame.len();
        (plain && sound && at.payload < frame.len()).then_some(Self { frame, at })
    }

    fn tcp_header(&self) -> &'a [u8] {
        &self.frame[self.at.tcp..self.at.payload]
    }

    fn seq(&self) -> u32 {
        let tcp = self.tcp_header();
        u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]])
    }

    fn flags(&self) -> u8 {
        self.tcp_header()[13]
    }

    fn len(&self) -> usize {
        self.frame.len() - self.at.payload
    }

    /// Whether another one says the same but for its place and its bytes.
    fn is_like(&self, other: &Segment<'_>) -> bool {
        let (a, b) = (self.frame, other.frame);
        let same = |range: std::ops::Range<usize>| a[range.clone()] == b[range];
        let Offsets { ip, tcp, payload } = self.at;
        if other.at != self.at {
            return false;
        }
        let same_ip = match self.at.is_v4() {
            // All but length, identification and checksum.
            true => same(0..ip + 2) && same(ip + 6..ip + 10) && same(ip + 12..tcp),
            false => same(0..ip + 4) && same(ip + 6..tcp),
        };
        // All but the sequence number, PSH and the checksum.
        same_ip
            && same(tcp..tcp + 4)
            && same(tcp + 8..tcp + 13)
            && self.flags() | PSH == other.flags() | PSH
            && same(tcp + 14..tcp + CHECKSUM_AT)
            && same(tcp + CHECKSUM_AT + 2..payload)
    }
}

/// Segments at the front of some frames that may leave as one packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    /// Where the headers of each frame begin.
    at: Offsets,
    /// Bytes of payload of each but the last.
    size: usize,
    /// How many there are: one at least.
    pub(super) count: usize,
    /// Bytes of payload in all.
    payload: usize,
    /// One has PSH.
    push: bool,
}

impl Run {
    /// The longest at the front of these frames; none when the first is nothing that may be in one.
    pub(super) fn at_front<'a>(mut frames: impl Iterator<Item = &'a [u8]>) -> Option<Self> {
        let first = Segment::of(frames.next()?)?;
        let size = first.len();
        let mut run = Self {
            at: first.at,
            size,
            count: 1,
            payload: size,
            push: first.flags() & PSH != 0,
        };
        let headers = first.at.payload - first.at.ip;
        for frame in frames.take(SEGMENTS_MAX - 1) {
            let Some(next) = Segment::of(frame) else {
                break;
            };
            let seq = first.seq().wrapping_add(run.payload as u32);
            if !first.is_like(&next)
                || next.seq() != seq
                || next.len() > size
                || headers + run.payload + next.len() > IP_MAX
            {
                break;
            }
            run.count += 1;
            run.payload += next.len();
            run.push |= next.flags() & PSH != 0;
            if next.len() < size {
                break;
            }
        }
        Some(run)
    }

    /// Where each frame's payload begins.
    pub(super) fn payload_at(&self) -> usize {
        self.at.payload
    }

    /// Writes the packet's headers and what the kernel is to know of it, by the first of its frames.
    pub(super) fn write(
        &self,
        frame: &[u8],
        vnet: &mut [u8; VNET_HEADER],
        out: &mut [u8; HEADERS_MAX],
    ) {
        let Offsets { ip, tcp, payload } = self.at;
        out[..payload].copy_from_slice(&frame[..payload]);
        let tcp_len = payload - tcp + self.payload;
        let (addresses, gso) = match self.at.is_v4() {
            true => {
                let total = (IPV4 + tcp_len) as u16;
                out[ip + 2..ip + 4].copy_from_slice(&total.to_be_bytes());
                out[ip + 10..ip + 12].fill(0);
                let checksum = !folded(sum(&out[ip..tcp]));
                out[ip + 10..ip + 12].copy_from_slice(&checksum.to_be_bytes());
                (&frame[ip + 12..tcp], GSO_TCPV4)
            }
            false => {
                out[ip + 4..ip + 6].copy_from_slice(&(tcp_len as u16).to_be_bytes());
                (&frame[ip + 8..tcp], GSO_TCPV6)
            }
        };
        if self.push {
            out[tcp + 13] |= PSH;
        }
        // The kernel, or the device, adds the rest.
        let pseudo = folded(sum(addresses) + u64::from(PROTOCOL_TCP) + tcp_len as u64);
        out[tcp + CHECKSUM_AT..tcp + CHECKSUM_AT + 2].copy_from_slice(&pseudo.to_be_bytes());
        vnet[..2].copy_from_slice(&[NEEDS_CSUM, gso]);
        let numbers = [payload, self.size, tcp, CHECKSUM_AT];
        for (place, number) in vnet[2..].chunks_exact_mut(2).zip(numbers) {
            place.copy_from_slice(&(number as u16).to_ne_bytes());
        }
    }
}

fn word(bytes: &[u8], at: usize) -> usize {
    usize::from(u16::from_be_bytes([bytes[at], bytes[at + 1]]))
}

/// The sum of the words of an even number of bytes.
fn sum(bytes: &[u8]) -> u64 {
    let words = bytes.chunks_exact(2);
    words
        .map(|word| u64::from(u16::from_be_bytes([word[0], word[1]])))
        .sum()
}

/// The one's complement sum in 16 bits.
fn folded(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

#[cfg(test)]
mod tests;
