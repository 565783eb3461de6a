//! SACK (RFC 9260 section 3.3.4).

use crate::tlv::{NoRoom, Output, u16_at, u32_at};
use crate::tsn::Tsn;

/// Bytes in front of the blocks, without the chunk's head.
const FIXED_LEN: usize = 12;

/// Bytes of a block, and of a duplicate's TSN.
const ENTRY_LEN: usize = 4;

/// TSNs that came, beyond the cumulative one: offsets to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GapBlock {
    /// Of the first.
    pub start: u16,
    /// Of the last.
    pub end: u16,
}

/// What of the data came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sack<'a> {
    /// Every TSN up to this one is here.
    pub cumulative: Tsn,
    /// Room that is left, in bytes.
    pub window: u32,
    blocks: &'a [u8],
    duplicates: &'a [u8],
}

impl<'a> Sack<'a> {
    /// A SACK whose blocks and duplicates are already as on the wire: see [`GapBlock::bytes`].
    /// What is no whole entry of four bytes is left out.
    pub fn new(cumulative: Tsn, window: u32, blocks: &'a [u8], duplicates: &'a [u8]) -> Self {
        let whole = |bytes: &'a [u8]| &bytes[..bytes.len() / ENTRY_LEN * ENTRY_LEN];
        Self {
            cumulative,
            window,
            blocks: whole(blocks),
            duplicates: whole(duplicates),
        }
    }

    pub(super) fn read(value: &'a [u8]) -> Option<Self> {
        let blocks = usize::from(u16_at(value, 8)?) * ENTRY_LEN;
        let duplicates = usize::from(u16_at(value, 10)?) * ENTRY_LEN;
        let (blocks, rest) = value.get(FIXED_LEN..)?.split_at_checked(blocks)?;
        Some(Self {
            cumulative: Tsn(u32_at(value, 0)?),
            window: u32_at(value, 4)?,
            blocks,
            duplicates: rest.get(..duplicates)?,
        })
    }

    /// The blocks as sent: a hostile peer's are in any order, empty or backward.
    pub fn blocks(&self) -> impl Iterator<Item = GapBlock> + Clone + use<'a> {
        entries(self.blocks).map(|[a, b, c, d]| GapBlock {
            start: u16::from_be_bytes([a, b]),
            end: u16::from_be_bytes([c, d]),
        })
    }

    /// TSNs that came again since the last SACK.
    pub fn duplicates(&self) -> impl Iterator<Item = Tsn> + Clone + use<'a> {
        entries(self.duplicates).map(|tsn| Tsn(u32::from_be_bytes(tsn)))
    }

    pub(super) fn write(&self, output: &mut Output<'_>) -> Result<(), NoRoom> {
        output.put(&self.cumulative.0.to_be_bytes())?;
        output.put(&self.window.to_be_bytes())?;
        // A chunk's length bounds both counts.
        output.put(&((self.blocks.len() / ENTRY_LEN) as u16).to_be_bytes())?;
        output.put(&((self.duplicates.len() / ENTRY_LEN) as u16).to_be_bytes())?;
        output.put(self.blocks)?;
        output.put(self.duplicates)
    }
}

impl GapBlock {
    /// As on the wire.
    pub const fn bytes(self) -> [u8; 4] {
        let ([a, b], [c, d]) = (self.start.to_be_bytes(), self.end.to_be_bytes());
        [a, b, c, d]
    }
}

fn entries(bytes: &[u8]) -> impl Iterator<Item = [u8; ENTRY_LEN]> + Clone + use<'_> {
    bytes
        .chunks_exact(ENTRY_LEN)
        .map(|entry| [entry[0], entry[1], entry[2], entry[3]])
}
