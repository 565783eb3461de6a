//! Headers that are known: those of a flow's segments differ in few bytes, so that one which is like
//! another that was parsed is recognised by comparing them, and only what differs is read.
//!
//! What [`HeaderPrediction::compare`] and then [`Match::verified`] say is what [`parse`](crate::parse()) and
//! [`Segment::parse`](userspace_tcp::Segment::parse) would say; where it says nothing, they decide. All
//! checksums are verified.

use std::ops::Range;

use userspace_net::checksum::{self, PartialSum};
use userspace_tcp::segment::CHECKSUM_OFFSET;
use userspace_tcp::{Flags, SeqNum};

use super::parse::{Ip, Link, array, sum_parts, within};
use super::{
    ETHERNET_HEADER, HEADERS_MAX, IPV4_HEADER, IPV6_HEADER, Protocol, TCP_HEADER, VLAN_TAG,
};

/// Headers that a segment came with.
#[derive(Clone, Debug)]
pub struct HeaderPrediction {
    /// The bytes; those that may differ, and those behind the headers, are zero.
    bytes: [u8; HEADERS_MAX],
    /// Ones where bytes must be as they were.
    mask: [u8; HEADERS_MAX],
    /// Where the IP header begins.
    ip: usize,
    /// Where the TCP header begins.
    tcp: usize,
    /// Where the payload begins.
    payload: usize,
    /// What does not differ of the IPv4 header, for its checksum; none of IPv6, which has no checksum.
    ip_sum: Option<u16>,
    /// What does not differ of pseudo-header and TCP header, for TCP's.
    tcp_sum: u16,
    /// The pseudo-header's part of that.
    pseudo: PartialSum,
}

/// What a segment with known headers says that another one didn't. Nothing of it is to be believed
/// before the checksum is found right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Match {
    pub says: PredictedFields,
    /// TCP's checksum so far, as a sum of words: all but the payload.
    sum: u64,
}

impl Match {
    /// What it says, if the checksum is right. The frame begins in `first`, with all headers, and goes on in
    /// the slices of `rest`; places are counted from its beginning. `sum` gives the one's
    /// complement sum of each part of its payload, in turn, as [`rnic_crc::sum`] does.
    #[inline]
    pub fn verified<'a>(
        self,
        first: &[u8],
        rest: impl Iterator<Item = &'a [u8]> + Clone,
        mut sum: impl FnMut(&[u8]) -> u16,
    ) -> Option<PredictedFields> {
        let Range { start, end } = self.says.payload;
        let payload = match first.get(start..end) {
            Some(payload) => sum(payload),
            None => {
                let part = first.get(start..)?;
                let beyond = end - first.len();
                if beyond > rest.clone().map(<[u8]>::len).sum() {
                    return None;
                }
                sum_parts(part, within(rest, beyond), sum).folded()
            }
        };
        self.is_right_with(payload).then_some(self.says)
    }

    /// Whether TCP's checksum is right when the payload's one's complement sum, as [`rnic_crc::sum`]
    /// gives it, is this.
    #[inline]
    pub fn is_right_with(&self, payload: u16) -> bool {
        is_right(self.sum + u64::from(payload))
    }
}

/// Whether words that are not all zero have such a sum that their checksum is right: the one's
/// complement sum of them is all ones, which stands for zero.
#[inline]
fn is_right(sum: u64) -> bool {
    sum.is_multiple_of(u64::from(u16::MAX))
}

/// What a segment with known headers says that another one didn't.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PredictedFields {
    /// Sequence number.
    pub seq: SeqNum,
    /// Acknowledgment number.
    pub ack: SeqNum,
    pub window: u16,
    /// Control bits: those that the headers were known with, and PSH or not.
    pub flags: Flags,
    /// Its payload within the frame.
    pub payload: Range<usize>,
}

impl HeaderPrediction {
    /// The headers of a frame that was parsed, and its payload found to begin at `payload`; it may go on
    /// elsewhere behind them. None when they are too long, or IPv6's with extensions.
    pub fn of(frame: &[u8], payload: usize) -> Option<Self> {
        let link = Link::parse(frame).ok()?;
        let ip = match link.vlan {
            None => ETHERNET_HEADER,
            Some(_) => ETHERNET_HEADER + VLAN_TAG,
        };
        // How long all of it is was looked at when it was parsed.
        let found = Ip::parse(frame, &link, usize::MAX).ok()?;
        let (tcp, v4) = (found.data.start, found.source.is_ipv4());
        let sound = found.part.is_none() && tcp + TCP_HEADER <= payload;
        if !sound || !v4 && tcp - ip != IPV6_HEADER {
            return None;
        }
        let mut bytes = [0; HEADERS_MAX];
        let headers = bytes.get_mut(..payload)?;
        headers.copy_from_slice(frame.get(..payload)?);
        let mut mask = [0; HEADERS_MAX];
        mask.get_mut(..payload)?.fill(0xff);
        // Length, identification and checksum; or the length.
        let differ = match v4 {
            true => [ip + 2..ip + 6, ip + 10..ip + 12],
            false => [ip + 4..ip + 6, 0..0],
        };
        // Sequence and acknowledgment number, window and checksum.
        let differ = differ
            .into_iter()
            .chain([tcp + 4..tcp + 12, tcp + 14..tcp + 18]);
        for range in differ {
            mask.get_mut(range)?.fill(0);
        }
        *mask.get_mut(tcp + 13)? = !Flags::PSH.0;
        for (byte, mask) in bytes.iter_mut().zip(mask) {
            *byte &= mask;
        }
        // The flags are summed as they come, with the header's length.
        let mut summed = bytes;
        summed.get_mut(tcp + 12..tcp + 14)?.fill(0);
        let pseudo = checksum::pseudo(found.source, found.destination, Protocol::Tcp.number(), 0);
        Some(Self {
            bytes,
            mask,
            ip,
            tcp,
            payload,
            ip_sum: v4.then(|| checksum::sum(&summed[ip..tcp]).folded()),
            tcp_sum: (pseudo + checksum::sum(&summed[tcp..payload])).folded(),
            pseudo,
        })
    }

    /// What a frame says that begins with these headers, before its payload is looked at, which may not
    /// be there: all but TCP's checksum is right.
    // What it says is taken apart in registers, for each of thousands of segments.
    #[inline(always)]
    pub fn compare(&self, frame: &[u8]) -> Option<Match> {
        // All but acknowledgments and the shortest messages are so long.
        let differs = match frame.first_chunk() {
            Some(bytes) => self.differ_from(bytes),
            None => self.differ_from_short(frame),
        };
        if differs {
            return None;
        }
        let end = match self.ip_sum {
            Some(same) => {
                let ip: &[u8; IPV4_HEADER] = frame.get(self.ip..)?.first_chunk()?;
                let total = u16::from_be_bytes([ip[2], ip[3]]);
                let id = u16::from_be_bytes([ip[4], ip[5]]);
                let checksum = u16::from_be_bytes([ip[10], ip[11]]);
                let words = [same, total, id, checksum];
                if !is_right(words.into_iter().map(u64::from).sum()) {
                    return None;
                }
                self.ip + usize::from(total)
            }
            None => {
                self.ip
                    + IPV6_HEADER
                    + usize::from(array(frame, self.ip + 4).map(u16::from_be_bytes).ok()?)
            }
        };
        if end < self.payload {
            return None;
        }
        let tcp: &[u8; TCP_HEADER] = frame.get(self.tcp..)?.first_chunk()?;
        let word = |at: usize| u32::from_be_bytes([tcp[at], tcp[at + 1], tcp[at + 2], tcp[at + 3]]);
        let (seq, ack, control, sum) = (word(4), word(8), word(12), word(16));
        // The last two bytes are the urgent pointer, which does not differ.
        let differ = [
            seq,
            ack,
            control,
            sum & 0xffff_0000,
            (end - self.tcp) as u32,
        ];
        let differ: u64 = differ.iter().map(|word| u64::from(*word)).sum();
        let says = PredictedFields {
            seq: SeqNum(seq),
            ack: SeqNum(ack),
            window: control as u16,
            flags: Flags((control >> 16) as u8),
            payload: self.payload..end,
        };
        let sum = u64::from(self.tcp_sum) + differ;
        Some(Match { says, sum })
    }

    /// Whether the checksum of a frame that begins so, and [has these headers](Self::compare), is partial:
    /// see [`Checksum::VerifyOrPartial`](crate::Checksum::VerifyOrPartial).
    pub fn has_partial_checksum(&self, frame: &[u8], says: &PredictedFields) -> bool {
        let field = array(frame, self.tcp + CHECKSUM_OFFSET).map(u16::from_be_bytes);
        let len = says.payload.end - self.tcp;
        field == Ok((self.pseudo + PartialSum::from_folded(len as u16)).folded())
    }

    /// Whether a frame that begins with these bytes has other headers. As many are compared whatever
    /// the headers' length, so that it is done in a few vectors and no loop.
    #[inline(always)]
    fn differ_from(&self, bytes: &[u8; HEADERS_MAX]) -> bool {
        let known = self.bytes.iter().zip(&self.mask);
        let differs = bytes.iter().zip(known).fold(0, |differs, (byte, known)| {
            differs | ((byte & known.1) ^ known.0)
        });
        differs != 0
    }

    /// The same of a frame with fewer bytes.
    #[inline(never)]
    fn differ_from_short(&self, frame: &[u8]) -> bool {
        let mut bytes = [0; HEADERS_MAX];
        match bytes.get_mut(..frame.len()) {
            Some(place) if frame.len() >= self.payload => place.copy_from_slice(frame),
            _ => return true,
        }
        self.differ_from(&bytes)
    }
}

#[cfg(test)]
mod tests;
