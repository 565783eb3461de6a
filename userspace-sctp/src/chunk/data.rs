//! DATA (RFC 9260 section 3.3.1).

use crate::tlv::{NoRoom, Output, u16_at, u32_at};
use crate::tsn::Tsn;

/// Bytes in front of the user data, the chunk's head included.
pub const DATA_HEADER_LEN: usize = 16;

/// What is in front of the user data, without the chunk's head.
const FIXED_LEN: usize = 12;

const END: u8 = 1;
const BEGIN: u8 = 1 << 1;
const UNORDERED: u8 = 1 << 2;
const IMMEDIATE: u8 = 1 << 3;

/// A user message, or a fragment of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Data<'a> {
    pub tsn: Tsn,
    pub stream: u16,
    /// The Stream Sequence Number: of no meaning when `unordered`.
    pub sequence: u16,
    /// The Payload Protocol Identifier, as a number.
    pub protocol: u32,
    /// The U bit: it has no place in an order.
    pub unordered: bool,
    /// The B bit: a message begins here.
    pub begin: bool,
    /// The E bit: a message ends here.
    pub end: bool,
    /// The I bit: the sender would like a SACK at once.
    pub immediate: bool,
    /// User data; none is an error of the sender's (section 6.2), told by [`Cause::NoUserData`].
    ///
    /// [`Cause::NoUserData`]: crate::cause::Cause::NoUserData
    pub payload: &'a [u8],
}

impl<'a> Data<'a> {
    pub(super) fn read(flags: u8, value: &'a [u8]) -> Option<Self> {
        Some(Self {
            tsn: Tsn(u32_at(value, 0)?),
            stream: u16_at(value, 4)?,
            sequence: u16_at(value, 6)?,
            protocol: u32_at(value, 8)?,
            unordered: flags & UNORDERED != 0,
            begin: flags & BEGIN != 0,
            end: flags & END != 0,
            immediate: flags & IMMEDIATE != 0,
            payload: value.get(FIXED_LEN..)?,
        })
    }

    pub(super) fn flags(&self) -> u8 {
        let bit = |set: bool, flag: u8| if set { flag } else { 0 };
        bit(self.end, END)
            | bit(self.begin, BEGIN)
            | bit(self.unordered, UNORDERED)
            | bit(self.immediate, IMMEDIATE)
    }

    pub(super) fn write(&self, output: &mut Output<'_>) -> Result<(), NoRoom> {
        output.put(&self.tsn.0.to_be_bytes())?;
        output.put(&self.stream.to_be_bytes())?;
        output.put(&self.sequence.to_be_bytes())?;
        output.put(&self.protocol.to_be_bytes())?;
        output.put(self.payload)
    }
}
