//! TCP options: MSS (RFC 9293), window scale and timestamps (RFC 7323), SACK (RFC 2018).
//!
//! What is emitted is padded with NOPs in front of each option so that 32-bit values are aligned,
//! and so that an option list of one kind always has the same length.

use userspace_net::checksum::{self, PartialSum};

use crate::seq::SeqNum;

/// Most SACK blocks that fit the 40 option bytes (RFC 2018 section 3).
pub const SACK_BLOCKS_MAX: usize = 4;

/// Bytes of option space in a TCP header.
pub const OPTIONS_MAX: usize = 40;

/// Bytes that the timestamps option takes in every segment, with padding.
pub const TIMESTAMPS_LEN: usize = 12;

const END: u8 = 0;
const NOP: u8 = 1;
const MSS: u8 = 2;
const WINDOW_SCALE: u8 = 3;
const SACK_PERMITTED: u8 = 4;
const SACK: u8 = 5;
const TIMESTAMPS: u8 = 8;
/// Two NOPs, the kind and the length of the timestamps option (RFC 7323 appendix A).
const TIMESTAMPS_HEAD: u32 = u32::from_be_bytes([NOP, NOP, TIMESTAMPS, 10]);

/// The timestamps option (RFC 7323 section 3.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Timestamps {
    /// TSval: the sender's clock.
    pub value: u32,
    /// TSecr: the echo of the other side's clock.
    pub echo: u32,
}

/// One SACK block: bytes from `left` up to, not including, `right` were received.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SackBlock {
    /// First sequence number of the block.
    pub left: SeqNum,
    /// The sequence number after the block.
    pub right: SeqNum,
}

/// Up to [`SACK_BLOCKS_MAX`] SACK blocks, in the order of the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SackBlocks {
    blocks: [SackBlock; SACK_BLOCKS_MAX],
    count: u8,
}

impl SackBlocks {
    /// Appends a block; one too many is left out.
    pub fn push(&mut self, block: SackBlock) {
        if let Some(place) = self.blocks.get_mut(usize::from(self.count)) {
            *place = block;
            self.count += 1;
        }
    }

    /// The blocks.
    pub fn as_slice(&self) -> &[SackBlock] {
        &self.blocks[..usize::from(self.count)]
    }

    /// Whether there is none.
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }
}

/// The options of one segment that this stack knows; others are skipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Options {
    /// Maximum segment size, in bytes.
    pub mss: Option<u16>,
    /// Window scale shift count, as sent (a value over 14 is used as 14).
    pub window_scale: Option<u8>,
    /// SACK permitted.
    pub sack_permitted: bool,
    /// Timestamps.
    pub timestamps: Option<Timestamps>,
    /// SACK blocks.
    pub sack: SackBlocks,
}

impl Options {
    /// Reads the option bytes of a header. `None`: an option's length is illegal.
    pub(crate) fn parse(mut bytes: &[u8]) -> Option<Self> {
        let mut options = Self::default();
        while let Some((&kind, rest)) = bytes.split_first() {
            match kind {
                END => break,
                NOP => {
                    bytes = rest;
                    continue;
                }
                _ => {}
            }
            let len = usize::from(*rest.first()?);
            let body = bytes.get(2..len)?;
            match (kind, body) {
                (MSS, &[a, b]) => options.mss = Some(u16::from_be_bytes([a, b])),
                (WINDOW_SCALE, &[shift]) => options.window_scale = Some(shift),
                (SACK_PERMITTED, []) => options.sack_permitted = true,
                (TIMESTAMPS, &[a, b, c, d, e, f, g, h]) => {
                    options.timestamps = Some(Timestamps {
                        value: u32::from_be_bytes([a, b, c, d]),
                        echo: u32::from_be_bytes([e, f, g, h]),
                    });
                }
                (SACK, blocks) if blocks.len() % 8 == 0 => {
                    for &[a, b, c, d, e, f, g, h] in blocks.as_chunks::<8>().0 {
                        options.sack.push(SackBlock {
                            left: SeqNum(u32::from_be_bytes([a, b, c, d])),
                            right: SeqNum(u32::from_be_bytes([e, f, g, h])),
                        });
                    }
                }
                (MSS | WINDOW_SCALE | SACK_PERMITTED | TIMESTAMPS | SACK, _) => return None,
                _ => {}
            }
            bytes = &bytes[len..];
        }
        Some(options)
    }

    /// Length in bytes, a multiple of four and at most [`OPTIONS_MAX`]: SACK blocks that don't fit
    /// are left out.
    #[inline]
    pub fn len(&self) -> usize {
        if self.sack.is_empty() {
            return self.fixed_len();
        }
        let blocks = self.sack_blocks_that_fit().len();
        self.fixed_len() + if blocks == 0 { 0 } else { 4 + 8 * blocks }
    }

    /// Whether no option is set.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    #[inline]
    fn fixed_len(&self) -> usize {
        let mut len = 0;
        len += if self.mss.is_some() { 4 } else { 0 };
        len += if self.window_scale.is_some() { 4 } else { 0 };
        len += match (self.sack_permitted, self.timestamps) {
            (_, Some(_)) => TIMESTAMPS_LEN,
            (true, None) => 4,
            (false, None) => 0,
        };
        len
    }

    /// SACK blocks that find place beside the other options.
    pub(crate) fn sack_room(&self) -> usize {
        (OPTIONS_MAX - self.fixed_len()).saturating_sub(4) / 8
    }

    fn sack_blocks_that_fit(&self) -> &[SackBlock] {
        let blocks = self.sack.as_slice();
        &blocks[..blocks.len().min(self.sack_room())]
    }

    /// As [`Options::emit`]; returns how many bytes it wrote, and their sum.
    #[inline]
    pub(crate) fn emit_summed(&self, out: &mut [u8]) -> (usize, PartialSum) {
        if let Self {
            mss: None,
            window_scale: None,
            sack_permitted: false,
            timestamps: Some(timestamps),
            sack,
        } = self
            && sack.is_empty()
        {
            // What nearly every segment has.
            let words = [TIMESTAMPS_HEAD, timestamps.value, timestamps.echo];
            let (places, _) = out.as_chunks_mut::<4>();
            for (place, word) in places[..words.len()].iter_mut().zip(words) {
                *place = word.to_be_bytes();
            }
            let sum = words.map(u64::from).iter().sum();
            return (TIMESTAMPS_LEN, PartialSum::of_words(sum));
        }
        let len = self.emit(out);
        (len, checksum::sum(&out[..len]))
    }

    /// Writes [`Options::len`] bytes to the start of `out`.
    ///
    /// # Panics
    /// When `out` is shorter.
    pub(crate) fn emit(&self, out: &mut [u8]) -> usize {
        let mut at = 0;
        let mut put = |bytes: &[u8]| {
            out[at..at + bytes.len()].copy_from_slice(bytes);
            at += bytes.len();
        };
        if let Some(mss) = self.mss {
            put(&[MSS, 4]);
            put(&mss.to_be_bytes());
        }
        // What aligns the next option: itself an option where there is one of that length.
        if self.sack_permitted && self.timestamps.is_some() {
            put(&[SACK_PERMITTED, 2]);
        } else if self.sack_permitted {
            put(&[NOP, NOP, SACK_PERMITTED, 2]);
        } else if self.timestamps.is_some() {
            put(&[NOP, NOP]);
        }
        if let Some(timestamps) = self.timestamps {
            put(&[TIMESTAMPS, 10]);
            put(&timestamps.value.to_be_bytes());
            put(&timestamps.echo.to_be_bytes());
        }
        if let Some(shift) = self.window_scale {
            put(&[NOP, WINDOW_SCALE, 3, shift]);
        }
        let blocks = self.sack_blocks_that_fit();
        if !blocks.is_empty() {
            // At most four blocks: 34 bytes.
            put(&[NOP, NOP, SACK, 2 + 8 * blocks.len() as u8]);
            for block in blocks {
                put(&block.left.0.to_be_bytes());
                put(&block.right.0.to_be_bytes());
            }
        }
        at
    }
}
