//! Headers that are known: those of a flow's segments differ in few octets, so that one which is like
//! another that was parsed is recognised by comparing them, and only what differs is read.
//!
//! What [`KnownHeaders::recognise`] says is what [`parse`](crate::parse()) and
//! [`Segment::parse`](userspace_tcp::Segment::parse) would say; where it says nothing, they decide. All
//! checksums are verified.

use std::ops::Range;

use userspace_tcp::checksum::{self, PartialSum};
use userspace_tcp::{Flags, SeqNum};

use super::parse::{Ip, Link, array, sum_parts, within};
use super::{ETHERNET_HEADER, IPV4_HEADER, IPV6_HEADER, TCP_HEADER, VLAN_TAG};

/// The most octets of headers that can be known: Ethernet with a tag, IPv6, TCP with timestamps.
const HEADERS_MAX: usize = 96;
const WORD: usize = 8;
const WORDS: usize = HEADERS_MAX / WORD;

/// Headers that a segment came with.
#[derive(Clone, Debug)]
pub struct KnownHeaders {
    /// The octets as numbers of this machine; those that may differ are zero.
    octets: [u64; WORDS],
    /// Ones where octets must be as they were.
    mask: [u64; WORDS],
    /// The last eight octets of the headers, as above.
    end: (u64, u64),
    /// Where the IP header begins.
    ip: usize,
    /// Where the TCP header begins.
    tcp: usize,
    /// Where the payload begins.
    payload: usize,
    /// What does not differ of the IPv4 header, for its checksum; none of IPv6, which has no checksum.
    ip_sum: Option<PartialSum>,
    /// What does not differ of pseudo-header and TCP header, for TCP's.
    tcp_sum: PartialSum,
}

/// What a segment with known headers says that another one didn't. Nothing of it is to be believed
/// before the checksum is found right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Like {
    /// What it says.
    pub says: Recognised,
    /// TCP's checksum so far: all but the payload.
    sum: PartialSum,
}

impl Like {
    /// Whether TCP's checksum is right when the payload's one's complement sum, as [`rnic_crc::sum`]
    /// gives it, is this.
    #[inline]
    pub fn is_right_with(&self, payload: u16) -> bool {
        self.is_right(PartialSum::from_folded(payload))
    }

    #[inline]
    fn is_right(&self, payload: PartialSum) -> bool {
        (self.sum + payload).folded() == u16::MAX
    }
}

/// What a segment with known headers says that another one didn't.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recognised {
    /// Sequence number.
    pub seq: SeqNum,
    /// Acknowledgment number.
    pub ack: SeqNum,
    /// Window.
    pub window: u16,
    /// Control bits: those that the headers were known with, and PSH or not.
    pub flags: Flags,
    /// Its payload within the frame.
    pub payload: Range<usize>,
}

impl KnownHeaders {
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
        let mut octets = [0; HEADERS_MAX];
        let headers = octets.get_mut(..payload)?;
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
        for (octet, mask) in octets.iter_mut().zip(mask) {
            *octet &= mask;
        }
        // The flags are summed as they come, with the header's length.
        let mut summed = octets;
        summed.get_mut(tcp + 12..tcp + 14)?.fill(0);
        let pseudo = checksum::pseudo(found.source, found.destination, 0);
        Some(Self {
            octets: words(&octets),
            mask: words(&mask),
            end: (
                last_word(octets.get(..payload)?)?,
                last_word(mask.get(..payload)?)?,
            ),
            ip,
            tcp,
            payload,
            ip_sum: v4.then(|| checksum::sum(&summed[ip..tcp])),
            tcp_sum: pseudo + checksum::sum(&summed[tcp..payload]),
        })
    }

    /// What a frame says that has these headers, if its checksums are right. `sum` gives the one's
    /// complement sum of its payload, as [`rnic_crc::sum`] does.
    #[inline]
    pub fn recognise(&self, frame: &[u8], sum: impl FnOnce(&[u8]) -> u16) -> Option<Recognised> {
        let of = |payload: Range<usize>| {
            let payload = frame.get(payload)?;
            Some(PartialSum::from_folded(sum(payload)))
        };
        self.recognise_by(frame, of)
    }

    /// The same of a frame that begins in `first` and goes on in the slices of `rest`: `sum` is asked for
    /// each part of its payload in turn, and places are counted from the frame's beginning.
    #[inline]
    pub fn recognise_parts(
        &self,
        first: &[u8],
        rest: &[&[u8]],
        sum: impl FnMut(&[u8]) -> u16,
    ) -> Option<Recognised> {
        let of = |payload: Range<usize>| {
            let beyond = payload.end.checked_sub(first.len())?;
            if beyond > rest.iter().map(|part| part.len()).sum() {
                return None;
            }
            let part = first.get(payload.start..)?;
            Some(sum_parts(part, within(rest, beyond), sum))
        };
        self.recognise_by(first, of)
    }

    /// As above, of a frame with these octets at its beginning; `sum` says where its payload is to be,
    /// and gives none when it isn't.
    #[inline(always)]
    fn recognise_by(
        &self,
        frame: &[u8],
        sum: impl FnOnce(Range<usize>) -> Option<PartialSum>,
    ) -> Option<Recognised> {
        let like = self.compare(frame)?;
        let payload = sum(like.says.payload.clone())?;
        like.is_right(payload).then_some(like.says)
    }

    /// What a frame says that begins with these headers, before its payload is looked at, which may not
    /// be there: all but TCP's checksum is right.
    // What it says is taken apart in registers, for each of thousands of segments.
    #[inline(always)]
    pub fn compare(&self, frame: &[u8]) -> Option<Like> {
        let headers = frame.get(..self.payload)?;
        let (whole, _) = headers.as_chunks::<WORD>();
        let known = self.octets.iter().zip(&self.mask);
        let differs = whole.iter().zip(known).fold(0, |differs, (word, known)| {
            differs | ((u64::from_ne_bytes(*word) & known.1) ^ known.0)
        });
        if differs | ((last_word(headers)? & self.end.1) ^ self.end.0) != 0 {
            return None;
        }
        let end = match self.ip_sum {
            Some(same) => {
                let ip: &[u8; IPV4_HEADER] = frame.get(self.ip..)?.first_chunk()?;
                let total = u16::from_be_bytes([ip[2], ip[3]]);
                let id = u16::from_be_bytes([ip[4], ip[5]]);
                let checksum = u16::from_be_bytes([ip[10], ip[11]]);
                let words = u64::from(total) + u64::from(id) + u64::from(checksum);
                if (same + PartialSum::of_words(words)).folded() != u16::MAX {
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
        // The last two octets are the urgent pointer, which does not differ.
        let differ = [
            seq,
            ack,
            control,
            sum & 0xffff_0000,
            (end - self.tcp) as u32,
        ];
        let differ = differ.iter().map(|word| u64::from(*word)).sum();
        let says = Recognised {
            seq: SeqNum(seq),
            ack: SeqNum(ack),
            window: control as u16,
            flags: Flags((control >> 16) as u8),
            payload: self.payload..end,
        };
        let sum = self.tcp_sum + PartialSum::of_words(differ);
        Some(Like { says, sum })
    }
}

fn words(octets: &[u8; HEADERS_MAX]) -> [u64; WORDS] {
    let (words, _) = octets.as_chunks::<WORD>();
    let mut out = [0; WORDS];
    for (out, word) in out.iter_mut().zip(words) {
        *out = u64::from_ne_bytes(*word);
    }
    out
}

fn last_word(octets: &[u8]) -> Option<u64> {
    octets.last_chunk().map(|word| u64::from_ne_bytes(*word))
}

#[cfg(test)]
mod tests;
