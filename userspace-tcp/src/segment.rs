//! The TCP header (RFC 9293 section 3.1): bytes to a typed value once, and back.
//!
//! A [`Segment`] that exists has a sound header; nothing behind this module checks a length again.
//! The checksum is not looked at here (see [`userspace_net::checksum`]): a link may have done it.

#[cfg(test)]
mod tests;

use std::fmt;
use std::ops::{BitOr, BitOrAssign};

use userspace_net::{Ecn, checksum::PartialSum};

use crate::interface::SegmentRun;
use crate::options::Options;
use crate::seq::SeqNum;

/// TCP in the protocol field of an IP header, and in the pseudo-header of its checksum.
pub const PROTOCOL_TCP: u8 = 6;

/// Bytes of a header without options.
pub const HEADER_MIN: usize = 20;

/// Bytes of a header with the most options.
pub const HEADER_MAX: usize = 60;

/// Where the checksum stands in a header.
pub const CHECKSUM_OFFSET: usize = 16;

/// The control bits (RFC 9293 section 3.1); CWR and ECE (RFC 3168) are carried along.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Flags(pub u8);

impl Flags {
    /// No more data from the sender.
    pub const FIN: Self = Self(0x01);
    /// Synchronize sequence numbers.
    pub const SYN: Self = Self(0x02);
    /// Reset the connection.
    pub const RST: Self = Self(0x04);
    /// Push function.
    pub const PSH: Self = Self(0x08);
    /// The acknowledgment number counts.
    pub const ACK: Self = Self(0x10);
    /// The urgent pointer counts.
    pub const URG: Self = Self(0x20);
    /// ECN echo.
    pub const ECE: Self = Self(0x40);
    /// Congestion window reduced.
    pub const CWR: Self = Self(0x80);

    /// Whether all bits of `other` are set.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// FIN is set.
    pub const fn fin(self) -> bool {
        self.contains(Self::FIN)
    }

    /// SYN is set.
    pub const fn syn(self) -> bool {
        self.contains(Self::SYN)
    }

    /// RST is set.
    pub const fn rst(self) -> bool {
        self.contains(Self::RST)
    }

    /// ACK is set.
    pub const fn ack(self) -> bool {
        self.contains(Self::ACK)
    }
}

impl BitOr for Flags {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOrAssign for Flags {
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

impl fmt::Debug for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NAMES: [&str; 8] = ["FIN", "SYN", "RST", "PSH", "ACK", "URG", "ECE", "CWR"];
        let set = NAMES
            .iter()
            .enumerate()
            .filter(|(bit, _)| self.0 >> bit & 1 == 1);
        f.debug_list().entries(set.map(|(_, name)| name)).finish()
    }
}

/// A TCP header as a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TcpHeader {
    /// Port of the sender.
    pub source_port: u16,
    /// Port of the receiver.
    pub destination_port: u16,
    /// Sequence number of the first byte (of the SYN, if it is set).
    pub seq: SeqNum,
    /// The next sequence number that is expected; counts when ACK is set.
    pub ack: SeqNum,
    /// Control bits.
    pub flags: Flags,
    /// Window as on the wire, before scaling.
    pub window: u16,
    /// Urgent pointer: counts when URG is set, from `seq` (RFC 9293 section 3.8.5).
    pub urgent: u16,
    /// Options.
    pub options: Options,
}

impl TcpHeader {
    /// Whether a segment with this header that begins at `seq`, right behind one with the header
    /// `first`, has nothing to say but its bytes.
    #[inline]
    pub fn only_continues(&self, first: &Self, seq: SeqNum) -> bool {
        self.seq == seq
            && first.is_only_continued(self.ack, self.window, self.flags)
            && self.options == first.options
    }

    /// Whether the next segment of the same flow, which has the same options and these fields, has
    /// nothing to say but its bytes.
    #[inline]
    pub fn is_only_continued(&self, ack: SeqNum, window: u16, flags: Flags) -> bool {
        let plain = |flags: Flags| flags | Flags::PSH == Flags::ACK | Flags::PSH;
        (ack, window) == (self.ack, self.window)
            && plain(flags)
            && plain(self.flags)
            && self.options.sack.is_empty()
    }

    /// Bytes that [`TcpHeader::emit`] writes: 20 to 60.
    #[inline]
    pub fn header_len(&self) -> usize {
        HEADER_MIN + self.options.len()
    }

    /// Writes the header to the start of `out`, with zero in the checksum field, and returns its
    /// length.
    ///
    /// # Panics
    /// When `out` is shorter than [`TcpHeader::header_len`].
    pub fn emit(&self, out: &mut [u8]) -> usize {
        self.emit_summed(out).0
    }

    /// As [`TcpHeader::emit`]; returns the header's length and its sum as well, taken of the fields.
    /// Bytes that were just written, and in other sizes, take the processor longer to read again
    /// than all the rest takes.
    ///
    /// # Panics
    /// When `out` is shorter than [`TcpHeader::header_len`].
    #[inline]
    pub fn emit_summed(&self, out: &mut [u8]) -> (usize, PartialSum) {
        let (fixed, rest) = out
            .split_first_chunk_mut::<HEADER_MIN>()
            .expect("the caller has room for the header");
        let (options_len, options_sum) = self.options.emit_summed(rest);
        let len = HEADER_MIN + options_len;
        let ports = u32::from(self.source_port) << 16 | u32::from(self.destination_port);
        // The length is a multiple of four and at most 60: the data offset fits its four bits.
        let offset = (len as u32 / 4) << 28;
        let control = offset | u32::from(self.flags.0) << 16 | u32::from(self.window);
        // Behind the checksum, which is zero.
        let urgent = u32::from(self.urgent);
        let words = [ports, self.seq.0, self.ack.0, control, urgent];
        for (place, word) in fixed.as_chunks_mut::<4>().0.iter_mut().zip(words) {
            *place = word.to_be_bytes();
        }
        let sum = PartialSum::of_words(words.map(u64::from).iter().sum());
        (len, sum + options_sum)
    }
}

/// A received segment: its header and its payload, and what IP said about congestion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment<'a> {
    /// The header.
    pub header: TcpHeader,
    /// The bytes behind the header.
    pub payload: &'a [u8],
    /// The ECN field of the packet that brought it.
    pub ecn: Ecn,
    /// What is taken together with it.
    pub following: CoalescedInfo,
}

/// Segments that follow another one without a gap, and of which each [`TcpHeader::only_continues`] it:
/// TCP takes all of them as one. And what of the first one's bytes lies elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CoalescedInfo {
    /// How many they are.
    pub segments: u32,
    /// Bytes of their payloads, and of the first one's what is not in [`Segment::payload`].
    pub bytes: u32,
    /// Bytes of the longest of all, the first among them. What [`Segment::payload`] shows of that one
    /// may be left out of the comparison.
    pub longest: u32,
}

impl<'a> Segment<'a> {
    /// Reads a segment from the payload of an IP packet, which must end where the packet ends.
    ///
    /// # Errors
    /// The header is not sound; the sender is at fault.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ParseError> {
        let Some((fixed, _)) = bytes.split_first_chunk::<HEADER_MIN>() else {
            return Err(ParseError::TooShort { len: bytes.len() });
        };
        let &[
            s0,
            s1,
            d0,
            d1,
            q0,
            q1,
            q2,
            q3,
            a0,
            a1,
            a2,
            a3,
            offset,
            flags,
            w0,
            w1,
            _,
            _,
            u0,
            u1,
        ] = fixed;
        let data_offset = usize::from(offset >> 4) * 4;
        if data_offset < HEADER_MIN || data_offset > bytes.len() {
            return Err(ParseError::DataOffset {
                offset: data_offset,
                len: bytes.len(),
            });
        }
        let (head, payload) = bytes.split_at(data_offset);
        let options = Options::parse(&head[HEADER_MIN..]).ok_or(ParseError::Options)?;
        let header = TcpHeader {
            source_port: u16::from_be_bytes([s0, s1]),
            destination_port: u16::from_be_bytes([d0, d1]),
            seq: SeqNum(u32::from_be_bytes([q0, q1, q2, q3])),
            ack: SeqNum(u32::from_be_bytes([a0, a1, a2, a3])),
            flags: Flags(flags),
            window: u16::from_be_bytes([w0, w1]),
            urgent: u16::from_be_bytes([u0, u1]),
            options,
        };
        Ok(Self::new(header, payload))
    }

    /// A segment in a packet that is not ECN-capable.
    pub const fn new(header: TcpHeader, payload: &'a [u8]) -> Self {
        Self {
            header,
            payload,
            ecn: Ecn::NotEct,
            following: CoalescedInfo {
                segments: 0,
                bytes: 0,
                longest: 0,
            },
        }
    }

    /// The same in a packet with this ECN field.
    pub const fn with_ecn(self, ecn: Ecn) -> Self {
        Self { ecn, ..self }
    }

    /// The same with those that follow it, which TCP must be willing to take so
    /// ([`crate::Stack::takes_together`]).
    pub const fn with_coalesced(self, following: CoalescedInfo) -> Self {
        Self { following, ..self }
    }

    /// Bytes of payload, of those that follow too.
    pub(crate) fn text_len(&self) -> u32 {
        // Of one IP packet, and of some more.
        self.payload.len() as u32 + self.following.bytes
    }

    /// The segments that it stands for.
    pub fn run(&self) -> SegmentRun {
        SegmentRun {
            bytes: self.text_len(),
            segments: 1 + self.following.segments,
            // Of what is shown, one IP packet's worth at most.
            longest: self.following.longest.max(self.payload.len() as u32),
        }
    }

    /// Sequence numbers it takes: payload, SYN and FIN.
    pub fn sequence_len(&self) -> u64 {
        let flags = self.header.flags;
        u64::from(self.text_len()) + u64::from(flags.syn()) + u64::from(flags.fin())
    }
}

/// Why bytes are not a TCP segment. The sender's fault, always.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// Shorter than a header.
    #[error("{len} bytes are too few for a TCP header; it has at least {HEADER_MIN}")]
    TooShort {
        /// How many there are.
        len: usize,
    },
    /// The header ends before its own minimum or behind the segment.
    #[error("data offset of {offset} bytes in a segment of {len} bytes")]
    DataOffset {
        /// The header length that the segment claims.
        offset: usize,
        /// Bytes of the segment.
        len: usize,
    },
    /// An option with an illegal length.
    #[error("an option has an illegal length")]
    Options,
}
