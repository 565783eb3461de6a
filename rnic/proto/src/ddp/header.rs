//! DDP Segment headers (RFC 5041 sections 4.1 to 4.3), codec only: versions and fields are read as
//! they are and judged by the stream.
//!
//! ```text
//! tagged    | control 1 | RsvdULP 1 | STag 4 | TO 8 |
//! untagged  | control 1 | RsvdULP 5 | QN 4 | MSN 4 | MO 4 |
//! control   | T | L | Rsvd 4 bits | DV 2 bits |
//! ```

#[cfg(test)]
mod tests;

use crate::bytes::{long, word};
use crate::{Bytes, MessageOffset, Msn, Qn, Stag, TaggedOffset};

/// The DDP version that this crate speaks.
pub const VERSION: u8 = 1;
/// Bytes of a tagged header.
pub const TAGGED_LEN: usize = 14;
/// Bytes of an untagged header.
pub const UNTAGGED_LEN: usize = 18;

const TAGGED: u8 = 0x80;
const LAST: u8 = 0x40;
const VERSION_MASK: u8 = 0x03;

/// The DDP Control Field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Control {
    /// T: tagged or untagged buffer model.
    pub tagged: bool,
    /// L: the last segment of its message.
    pub last: bool,
    /// DV, two bits.
    pub version: u8,
}

impl Control {
    /// The field from its byte; reserved bits are not looked at.
    #[inline]
    pub const fn from_byte(byte: u8) -> Self {
        Self {
            tagged: byte & TAGGED != 0,
            last: byte & LAST != 0,
            version: byte & VERSION_MASK,
        }
    }

    /// The field as its byte, reserved bits zero.
    pub const fn byte(self) -> u8 {
        (if self.tagged { TAGGED } else { 0 })
            | (if self.last { LAST } else { 0 })
            | (self.version & VERSION_MASK)
    }
}

/// A tagged header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tagged {
    /// L: the last segment of its message.
    pub last: bool,
    /// DV.
    pub version: u8,
    /// RsvdULP: RDMAP's control field.
    pub ulp: u8,
    /// The memory.
    pub stag: Stag,
    /// The payload's first byte in it.
    pub to: TaggedOffset,
}

/// An untagged header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Untagged {
    /// L: the last segment of its message.
    pub last: bool,
    /// DV.
    pub version: u8,
    /// The first byte of RsvdULP: RDMAP's control field.
    pub ulp: u8,
    /// The other four bytes of RsvdULP: RDMAP's Invalidate STag.
    pub ulp_word: u32,
    /// The queue.
    pub qn: Qn,
    /// The message in the queue.
    pub msn: Msn,
    /// The payload's first byte in the message.
    pub mo: MessageOffset,
}

/// A DDP Segment's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Header {
    /// T is 1.
    Tagged(Tagged),
    /// T is 0.
    Untagged(Untagged),
}

impl Header {
    /// The header at the front of a segment; none when the segment is too short for it.
    #[inline]
    pub fn parse<'a>(segment: &impl Bytes<'a>) -> Option<Self> {
        let [byte] = segment.array(0)?;
        let control = Control::from_byte(byte);
        Some(if control.tagged {
            Self::Tagged(Tagged::from_bytes(segment.array(0)?))
        } else {
            Self::Untagged(Untagged::from_bytes(segment.array(0)?))
        })
    }

    /// Where the payload begins in the segment: the header's bytes.
    pub const fn payload_offset(&self) -> usize {
        match self {
            Self::Tagged(_) => TAGGED_LEN,
            Self::Untagged(_) => UNTAGGED_LEN,
        }
    }

    /// The first byte of RsvdULP.
    pub const fn ulp(&self) -> u8 {
        match self {
            Self::Tagged(header) => header.ulp,
            Self::Untagged(header) => header.ulp,
        }
    }
}

impl Tagged {
    #[inline]
    fn from_bytes(bytes: [u8; TAGGED_LEN]) -> Self {
        let control = Control::from_byte(bytes[0]);
        Self {
            last: control.last,
            version: control.version,
            ulp: bytes[1],
            stag: Stag(word(&bytes, 2)),
            to: TaggedOffset(long(&bytes, 6)),
        }
    }

    /// The header on the wire.
    pub fn to_bytes(&self) -> [u8; TAGGED_LEN] {
        bytes_of(self.to_words())
    }

    /// The header on the wire, as the words that it makes together with two bytes before it, which
    /// are zero here: MPA's ULPDU_Length.
    #[inline]
    pub fn to_words(&self) -> [u32; words_for(TAGGED_LEN)] {
        let control = Control {
            tagged: true,
            last: self.last,
            version: self.version,
        };
        let first = u32::from(control.byte()) << 8 | u32::from(self.ulp);
        let (high, low) = ((self.to.0 >> 32) as u32, self.to.0 as u32);
        [first, self.stag.0, high, low]
    }
}

impl Untagged {
    #[inline]
    fn from_bytes(bytes: [u8; UNTAGGED_LEN]) -> Self {
        let control = Control::from_byte(bytes[0]);
        Self {
            last: control.last,
            version: control.version,
            ulp: bytes[1],
            ulp_word: word(&bytes, 2),
            qn: Qn(word(&bytes, 6)),
            msn: Msn(word(&bytes, 10)),
            mo: MessageOffset(word(&bytes, 14)),
        }
    }

    /// The header on the wire.
    pub fn to_bytes(&self) -> [u8; UNTAGGED_LEN] {
        bytes_of(self.to_words())
    }

    /// The header on the wire, as the words that it makes together with two bytes before it, which
    /// are zero here: MPA's ULPDU_Length.
    #[inline]
    pub fn to_words(&self) -> [u32; words_for(UNTAGGED_LEN)] {
        let control = Control {
            tagged: false,
            last: self.last,
            version: self.version,
        };
        let first = u32::from(control.byte()) << 8 | u32::from(self.ulp);
        [first, self.ulp_word, self.qn.0, self.msn.0, self.mo.0]
    }
}

/// Words of a header of so many bytes and the two before it.
const fn words_for(bytes: usize) -> usize {
    (2 + bytes) / 4
}

/// The bytes of words, but for the first two.
fn bytes_of<const WORDS: usize, const BYTES: usize>(words: [u32; WORDS]) -> [u8; BYTES] {
    const { assert!(4 * WORDS == 2 + BYTES) };
    let mut out = [0; BYTES];
    out.copy_from_slice(&words.map(u32::to_be_bytes).as_flattened()[2..]);
    out
}
