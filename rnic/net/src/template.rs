//! The headers of a connection's segments, once for all of them: what differs from one to the next is
//! put in, and each checksum made of the sum of what does not.
//!
//! It writes what [`write_segment`] would write.

use userspace_tcp::checksum::{self, PartialSum};
use userspace_tcp::{Ecn, Flags, FourTuple, Options, SeqNum, TcpHeader, Timestamps};

use super::{IPV4_HEADER, IPV6_HEADER, Path, Payload, TCP_HEADER, write_segment};

/// The most octets of headers: Ethernet with a tag, IPv6, TCP with timestamps.
const HEADERS_MAX: usize = 96;
/// Half of it: two stretches of this length, from both ends, are all of any headers.
const HALF: usize = HEADERS_MAX / 2;

/// Headers of segments that have no other options than timestamps, or none, and are not urgent.
#[derive(Clone, Debug)]
pub struct HeaderTemplate {
    /// The first octets, and the last: they overlap.
    first: [u8; HALF],
    last: [u8; HALF],
    /// Octets of all headers.
    len: usize,
    /// Where the IP header begins.
    ip: usize,
    /// Where the TCP header begins.
    tcp: usize,
    /// The sum of what does not differ of the IPv4 header; none of IPv6, which has no checksum.
    ip_sum: Option<PartialSum>,
    /// The sum of what does not differ of pseudo-header and TCP header.
    tcp_sum: PartialSum,
    timestamps: bool,
}

/// What a segment says that another one of its connection may not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Differing {
    /// Sequence number.
    pub seq: SeqNum,
    /// Acknowledgment number.
    pub ack: SeqNum,
    /// Control bits.
    pub flags: Flags,
    /// Window as on the wire.
    pub window: u16,
    /// The timestamps option.
    pub timestamps: Option<Timestamps>,
    /// The ECN field of the IP header.
    pub ecn: Ecn,
}

impl HeaderTemplate {
    /// For segments from one end to the other, with the timestamps option or without. None when the two
    /// addresses are of different families.
    pub fn new(path: &Path, tuple: &FourTuple, timestamps: bool) -> Option<Self> {
        let header = TcpHeader {
            source_port: tuple.local.port,
            destination_port: tuple.remote.port,
            options: Options {
                timestamps: timestamps.then(Timestamps::default),
                ..Options::default()
            },
            ..TcpHeader::default()
        };
        let mut octets = [0; HEADERS_MAX];
        let payload = Payload::default();
        let len = write_segment(path, tuple, Ecn::NotEct, &header, payload, &mut octets)?;
        let (ip, tcp) = (path.link_len(), path.headers_len(tuple.remote.addr));
        let v4 = tuple.remote.addr.is_ipv4();
        // What is zero adds nothing: the lengths, and the checksums themselves.
        let mut summed = octets;
        if v4 {
            summed.get_mut(ip + 2..ip + 4)?.fill(0);
            summed.get_mut(ip + 10..ip + 12)?.fill(0);
        }
        summed.get_mut(tcp + 12..tcp + 14)?.fill(0);
        summed.get_mut(tcp + 16..tcp + 18)?.fill(0);
        let pseudo = checksum::pseudo(tuple.local.addr, tuple.remote.addr, 0);
        let written = octets.get(..len)?;
        Some(Self {
            first: *written.first_chunk()?,
            last: *written.last_chunk()?,
            len,
            ip,
            tcp,
            ip_sum: v4.then(|| checksum::sum(&summed[ip..tcp])),
            tcp_sum: pseudo + checksum::sum(&summed[tcp..len]),
            timestamps,
        })
    }

    /// Octets of all headers.
    #[inline]
    pub fn headers_len(&self) -> usize {
        self.len
    }

    /// Writes the headers of a segment to the beginning of `out`; returns how many octets they are. The
    /// payload itself is not looked at. None when `out` is too short, the segment is longer than an IP
    /// packet can be, or it has timestamps and the template has not, or the other way round: then
    /// nothing was written that may be sent.
    #[inline]
    pub fn write(&self, says: &Differing, payload: Payload, out: &mut [u8]) -> Option<usize> {
        if says.timestamps.is_some() != self.timestamps {
            return None;
        }
        let out = out.get_mut(..self.len)?;
        *out.first_chunk_mut()? = self.first;
        *out.last_chunk_mut()? = self.last;
        let (link_and_ip, tcp) = out.split_at_mut_checked(self.tcp)?;
        let ip = link_and_ip.get_mut(self.ip..)?;
        let segment_len = tcp.len() + payload.len;
        match self.ip_sum {
            Some(same) => {
                let ip: &mut [u8; IPV4_HEADER] = ip.first_chunk_mut()?;
                let total = u16::try_from(IPV4_HEADER + segment_len).ok()?;
                let differ = u32::from(says.ecn.bits()) << 16 | u32::from(total);
                let sum = same + PartialSum::of_words(u64::from(differ));
                put(ip, 0, (0x4500_0000 | differ).to_be_bytes());
                put(ip, 10, checksum::fold(sum).to_be_bytes());
            }
            None => {
                let ip: &mut [u8; IPV6_HEADER] = ip.first_chunk_mut()?;
                put(ip, 1, [says.ecn.bits() << 4]);
                put(ip, 4, u16::try_from(segment_len).ok()?.to_be_bytes());
            }
        }
        // At most 32 octets: the data offset fits its four bits.
        let offset = (tcp.len() as u32 / 4) << 28;
        let control = offset | u32::from(says.flags.0) << 16 | u32::from(says.window);
        let mut words = [says.seq.0, says.ack.0, control, 0, 0, segment_len as u32];
        if let Some(timestamps) = says.timestamps {
            let place = tcp.last_chunk_mut::<8>()?;
            let (value, echo) = (timestamps.value, timestamps.echo);
            *place = (u64::from(value) << 32 | u64::from(echo)).to_be_bytes();
            (words[3], words[4]) = (value, echo);
        }
        let sum = PartialSum::of_words(words.map(u64::from).iter().sum());
        let sum = checksum::fold(self.tcp_sum + sum + payload.sum);
        let tcp: &mut [u8; TCP_HEADER] = tcp.first_chunk_mut()?;
        let numbers = u64::from(says.seq.0) << 32 | u64::from(says.ack.0);
        put(tcp, 4, numbers.to_be_bytes());
        // Behind the checksum the urgent pointer, which is zero.
        let rest = u64::from(control) << 32 | u64::from(sum) << 16;
        put(tcp, 12, rest.to_be_bytes());
        Some(self.len)
    }
}

/// Octets at a place where they fit.
#[inline(always)]
fn put<const N: usize>(out: &mut [u8], at: usize, octets: [u8; N]) {
    out[at..at + N].copy_from_slice(&octets);
}

#[cfg(test)]
mod tests;
