//! The headers of a connection's segments, once for all of them: what differs from one to the next is
//! put in, and each checksum made of the sum of what does not.
//!
//! It writes what [`write_segment`] would write.

use userspace_net::checksum::{self, PartialSum};
use userspace_net::{Ecn, FourTuple};
use userspace_tcp::{Flags, Options, SeqNum, TcpHeader, Timestamps};

use super::{HEADERS_MAX, IPV4_HEADER, Path, Payload, Protocol, TCP_HEADER, write_segment};

/// Half of it: two stretches of this length, from both ends, are all of any headers.
const HALF: usize = HEADERS_MAX / 2;

/// Headers of segments that have no other options than timestamps, or none, and are not urgent.
#[derive(Clone, Debug)]
pub struct HeaderTemplate {
    /// The first bytes, and the last: they overlap.
    first: [u8; HALF],
    last: [u8; HALF],
    /// Bytes of all headers.
    len: usize,
    /// Where the IP header begins.
    ip: usize,
    /// Where the TCP header begins.
    tcp: usize,
    /// The sum of what does not differ of the IPv4 header; none of IPv6, which has no checksum.
    ip_sum: Option<PartialSum>,
    /// The sum of what does not differ of pseudo-header and TCP header, but for the ports.
    tcp_sum: PartialSum,
    /// Both ports, as they are in the header.
    ports: u32,
    timestamps: bool,
    alike: Alike,
}

/// What segments say that others of their connection may not, but for their sequence numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VariableFields {
    /// Acknowledgment number.
    pub ack: SeqNum,
    /// Control bits.
    pub flags: Flags,
    /// Window as on the wire.
    pub window: u16,
    pub timestamps: Option<Timestamps>,
    /// The ECN field of the IP header.
    pub ecn: Ecn,
}

/// What segments of a connection have alike ([`HeaderTemplate::set`]).
#[derive(Clone, Debug)]
struct Alike {
    ip: AlikeIp,
    ack: u32,
    /// Data offset, control bits and window, as they are in the header.
    control: u32,
    /// The values of the timestamps option.
    stamps: u64,
    /// The sum of pseudo-header and TCP header, not folded.
    tcp_sum: u64,
}

/// Of the IP header.
#[derive(Clone, Debug)]
enum AlikeIp {
    /// The first word, and the checksum.
    V4(u32, u16),
    /// The second byte, and the length.
    V6(u8, u16),
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
        let mut bytes = [0; HEADERS_MAX];
        let payload = Payload::default();
        let len = write_segment(path, tuple, Ecn::NotEct, &header, payload, &mut bytes)?;
        let (ip, tcp) = (path.link_len(), path.headers_len(tuple.remote.addr));
        let v4 = tuple.remote.addr.is_ipv4();
        // What is zero adds nothing: the lengths, and the checksums themselves.
        let mut summed = bytes;
        if v4 {
            summed.get_mut(ip + 2..ip + 4)?.fill(0);
            summed.get_mut(ip + 10..ip + 12)?.fill(0);
        }
        summed.get_mut(tcp..tcp + 4)?.fill(0);
        summed.get_mut(tcp + 12..tcp + 14)?.fill(0);
        summed.get_mut(tcp + 16..tcp + 18)?.fill(0);
        let pseudo = checksum::pseudo(
            tuple.local.addr,
            tuple.remote.addr,
            Protocol::Tcp.number(),
            0,
        );
        let written = bytes.get(..len)?;
        let mut template = Self {
            first: *written.first_chunk()?,
            last: *written.last_chunk()?,
            len,
            ip,
            tcp,
            ip_sum: v4.then(|| checksum::sum(&summed[ip..tcp])),
            tcp_sum: pseudo + checksum::sum(&summed[tcp..len]),
            ports: ports(tuple),
            timestamps,
            alike: Alike {
                ip: AlikeIp::V6(0, 0),
                ack: 0,
                control: 0,
                stamps: 0,
                tcp_sum: 0,
            },
        };
        let says = VariableFields {
            timestamps: timestamps.then(Timestamps::default),
            ..VariableFields::default()
        };
        template.set(&says, 0)?;
        Some(template)
    }

    /// For another connection between the same two addresses, by the same path. Before segments of it are
    /// written, they are to be [set](Self::set).
    #[inline]
    pub fn set_ports(&mut self, tuple: &FourTuple) {
        self.ports = ports(tuple);
    }

    /// Bytes of all headers.
    #[inline]
    pub fn headers_len(&self) -> usize {
        self.len
    }

    /// Puts in what segments have alike that have so many bytes of payload. None when they would be
    /// longer than an IP packet can be, or have timestamps and the template has not, or the other way
    /// round: then nothing is to be written before they are others.
    #[inline]
    pub fn set(&mut self, says: &VariableFields, len: usize) -> Option<()> {
        if says.timestamps.is_some() != self.timestamps {
            return None;
        }
        let tcp_len = self.len - self.tcp;
        let segment_len = tcp_len + len;
        self.alike.ip = match self.ip_sum {
            Some(same) => {
                let total = u16::try_from(IPV4_HEADER + segment_len).ok()?;
                let differ = u32::from(says.ecn.bits()) << 16 | u32::from(total);
                let sum = same + PartialSum::of_words(u64::from(differ));
                AlikeIp::V4(0x4500_0000 | differ, checksum::fold(sum))
            }
            None => AlikeIp::V6(says.ecn.bits() << 4, u16::try_from(segment_len).ok()?),
        };
        // At most 32 bytes: the data offset fits its four bits.
        let offset = (tcp_len as u32 / 4) << 28;
        let control = offset | u32::from(says.flags.0) << 16 | u32::from(says.window);
        let mut sum = u64::from(self.tcp_sum.folded()) + u64::from(self.ports);
        sum += u64::from(says.ack.0) + u64::from(control) + segment_len as u64;
        if let Some(timestamps) = says.timestamps {
            let (value, echo) = (u64::from(timestamps.value), u64::from(timestamps.echo));
            sum += value + echo;
            self.alike.stamps = value << 32 | echo;
        }
        self.alike.ack = says.ack.0;
        self.alike.control = control;
        self.alike.tcp_sum = sum;
        Some(())
    }

    /// Writes the headers of one of the segments that were last [set](Self::set) to the beginning of `out`.
    /// Sequence number and payload sum are those given; the payload itself is not read. Returns the length of
    /// the headers, or `None` when `out` is too short: then what it holds may not be sent.
    #[inline]
    pub fn write(&self, seq: SeqNum, sum: PartialSum, out: &mut [u8]) -> Option<usize> {
        let out = out.get_mut(..self.len)?;
        *out.first_chunk_mut()? = self.first;
        *out.last_chunk_mut()? = self.last;
        let ip: &mut [u8; IPV4_HEADER] = out.get_mut(self.ip..)?.first_chunk_mut()?;
        match self.alike.ip {
            AlikeIp::V4(word, checksum) => {
                put(ip, 0, word.to_be_bytes());
                put(ip, 10, checksum.to_be_bytes());
            }
            AlikeIp::V6(class, len) => {
                put(ip, 1, [class]);
                put(ip, 4, len.to_be_bytes());
            }
        }
        if self.timestamps {
            *out.last_chunk_mut()? = self.alike.stamps.to_be_bytes();
        }
        let tcp: &mut [u8; TCP_HEADER] = out.get_mut(self.tcp..)?.first_chunk_mut()?;
        put(tcp, 0, self.ports.to_be_bytes());
        let numbers = u64::from(seq.0) << 32 | u64::from(self.alike.ack);
        put(tcp, 4, numbers.to_be_bytes());
        let words = self.alike.tcp_sum + u64::from(seq.0) + u64::from(sum.folded());
        let sum = checksum::fold(PartialSum::of_words(words));
        // Behind the checksum the urgent pointer, which is zero.
        let rest = u64::from(self.alike.control) << 32 | u64::from(sum) << 16;
        put(tcp, 12, rest.to_be_bytes());
        Some(self.len)
    }
}

fn ports(tuple: &FourTuple) -> u32 {
    u32::from(tuple.local.port) << 16 | u32::from(tuple.remote.port)
}

/// Bytes at a place where they fit.
#[inline(always)]
fn put<const N: usize>(out: &mut [u8], at: usize, bytes: [u8; N]) {
    out[at..at + N].copy_from_slice(&bytes);
}

#[cfg(test)]
mod tests;
