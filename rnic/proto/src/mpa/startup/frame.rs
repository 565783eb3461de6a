//! MPA Request and Reply Frames on the wire (RFC 5044 section 7.1.1, RFC 6581 sections 6 and 9).
//!
//! ```text
//! | Key 16 | M C R S, Res 4 bits | Rev 1 | PD_Length 2 | Private Data 0-512 |
//! ```
//!
//! When S is set, the first four bytes of private data are [`Enhanced`] data.
//!
//! The last two of the reserved bits are an extension's (docs/extensions.md), one to ask and the other to grant.
//! They are zero unless it is asked for, and a peer that does not know it ignores them.

mod collector;
#[cfg(test)]
mod tests;

pub(super) use collector::{Collected, Collector};

use std::fmt;

use super::StartupError;
use crate::enhanced::Enhanced;

/// The most private data of a frame, in bytes, enhanced data included.
pub const PRIVATE_DATA_MAX: usize = 512;
/// Bytes ahead of the private data.
pub const HEADER_LEN: usize = 20;
/// The longest frame, in bytes.
pub const FRAME_LEN_MAX: usize = HEADER_LEN + PRIVATE_DATA_MAX;

pub(super) const KEY_LEN: usize = 16;
const REQUEST_KEY: &[u8; KEY_LEN] = b"MPA ID Req Frame";
const REPLY_KEY: &[u8; KEY_LEN] = b"MPA ID Rep Frame";

const MARKERS: u8 = 0x80;
const CRC: u8 = 0x40;
const REJECTED: u8 = 0x20;
const ENHANCED: u8 = 0x10;

/// The bits of the extension. A peer that does not know it may send back what it got (Linux siw makes
/// its Reply from the Request's header), so what grants is never what asks.
const ALIGNED_BITS: u8 = ALIGNED_ASKED | ALIGNED_GRANTED;
const ALIGNED_ASKED: u8 = 0x02;
const ALIGNED_GRANTED: u8 = 0x01;

/// The two frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameKind {
    /// From the initiator.
    Request,
    /// From the responder.
    Reply,
}

impl FrameKind {
    pub(super) const fn key(self) -> &'static [u8; KEY_LEN] {
        match self {
            Self::Request => REQUEST_KEY,
            Self::Reply => REPLY_KEY,
        }
    }

    pub(super) const fn opposite(self) -> Self {
        match self {
            Self::Request => Self::Reply,
            Self::Reply => Self::Request,
        }
    }

    /// How [`ALIGNED_BITS`] are when the frame asks for alignment, or grants it.
    const fn aligned(self) -> u8 {
        match self {
            Self::Request => ALIGNED_ASKED,
            Self::Reply => ALIGNED_GRANTED,
        }
    }
}

impl fmt::Display for FrameKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Request => "Request",
            Self::Reply => "Reply",
        })
    }
}

/// The revisions of MPA that we speak.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Revision {
    /// RFC 5044.
    One,
    /// RFC 6581.
    #[default]
    Two,
}

impl Revision {
    /// The revision with this number.
    pub const fn from_number(number: u8) -> Result<Self, StartupError> {
        match number {
            1 => Ok(Self::One),
            2 => Ok(Self::Two),
            found => Err(StartupError::UnsupportedRevision { found }),
        }
    }

    /// Its number on the wire.
    pub const fn number(self) -> u8 {
        match self {
            Self::One => 1,
            Self::Two => 2,
        }
    }
}

/// All of a frame but its kind and its private data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// M: the sender requires Markers in what it receives.
    pub markers: bool,
    /// C: the sender wants CRCs.
    pub crc: bool,
    /// The extension: a Request asks that each TCP segment begin with an FPDU, a Reply grants it.
    pub aligned: bool,
    /// R: the connection is rejected; means nothing in a Request.
    pub rejected: bool,
    /// Rev.
    pub revision: Revision,
    /// The enhanced data, when S is set in a frame of revision 2.
    pub enhanced: Option<Enhanced>,
}

/// A frame to send.
#[derive(Clone)]
pub struct StartupFrame {
    bytes: [u8; FRAME_LEN_MAX],
    len: usize,
}

impl StartupFrame {
    /// The frame with these contents; private data is the application's only.
    pub fn new(
        kind: FrameKind,
        header: &FrameHeader,
        private_data: &[u8],
    ) -> Result<Self, StartupError> {
        let enhanced = header.enhanced.map(Enhanced::to_bytes);
        let enhanced = enhanced.as_ref().map_or(&[][..], |bytes| &bytes[..]);
        let limit = PRIVATE_DATA_MAX - enhanced.len();
        let len = private_data.len();
        if len > limit {
            return Err(StartupError::PrivateDataTooLong { len, limit });
        }
        let flag = |set: bool, flag: u8| if set { flag } else { 0 };
        let pd_length = (enhanced.len() + len) as u16;
        let mut frame = Self {
            bytes: [0; FRAME_LEN_MAX],
            len: 0,
        };
        frame.put(kind.key());
        frame.put(&[
            flag(header.markers, MARKERS)
                | flag(header.crc, CRC)
                | flag(header.rejected, REJECTED)
                | flag(header.enhanced.is_some(), ENHANCED)
                | flag(header.aligned, kind.aligned()),
            header.revision.number(),
        ]);
        frame.put(&pd_length.to_be_bytes());
        frame.put(enhanced);
        frame.put(private_data);
        Ok(frame)
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    fn put(&mut self, bytes: &[u8]) {
        let end = self.len + bytes.len();
        self.bytes[self.len..end].copy_from_slice(bytes);
        self.len = end;
    }
}

impl AsRef<[u8]> for StartupFrame {
    fn as_ref(&self) -> &[u8] {
        self.bytes()
    }
}

impl fmt::Debug for StartupFrame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("StartupFrame").field(&self.bytes()).finish()
    }
}
