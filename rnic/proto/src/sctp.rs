//! DDP over SCTP (RFC 5043, with the enhanced forms of RFC 6581 section 7): what is in the user data of SCTP's DATA
//! chunks, and which chunk may come next in a DDP Stream Session.
//!
//! All chunks are unordered, so they come in any order. Their DDP-SSN says where each belongs ([`DdpSsn`]). By it
//! they are handed to the [`Session`], one after the other; a segment may be placed before that.
//!
//! ```text
//! PPID 16: | DDP-SSN 2 | DDP Segment |
//! PPID 17: | DDP-SSN 2 | Function Code 2 | Private Data 0-512 |
//! ```

mod control;
mod error;
mod session;
mod ssn;

pub use control::{Control, ControlChunk, Function, PRIVATE_DATA_MAX};
pub use error::{ChunkError, SessionError};
pub use session::{Negotiated, Session, SessionOptions, Told};
pub use ssn::{DdpSsn, IN_FLIGHT_MAX};

/// The Adaptation Code Point that says that an association carries DDP (RFC 5043 section 5.1).
pub const ADAPTATION_DDP: u32 = 1;
/// Payload Protocol Identifier of a DDP Segment Chunk (RFC 5043 section 5.2).
pub const PPID_SEGMENT: u32 = 16;
/// Payload Protocol Identifier of a DDP Stream Session Control message (RFC 5043 section 5.2).
pub const PPID_CONTROL: u32 = 17;

/// The user data of a DATA chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UserData<'a> {
    /// A DDP Segment, header and payload.
    Segment(&'a [u8]),
    /// A DDP Stream Session Control message.
    Control(Control<'a>),
}

impl<'a> UserData<'a> {
    /// The user data of a chunk with this PPID, and its place.
    ///
    /// # Errors
    ///
    /// What RFC 5043 does not know. It is of no legal sequence, so the session is to be terminated (section 6.1).
    pub fn parse(ppid: u32, bytes: &'a [u8]) -> Result<(DdpSsn, Self), ChunkError> {
        let Some((ssn, rest)) = bytes.split_first_chunk() else {
            return Err(ChunkError::Short { len: bytes.len() });
        };
        let data = match ppid {
            PPID_SEGMENT => Self::Segment(rest),
            PPID_CONTROL => Self::Control(Control::parse(rest)?),
            found => return Err(ChunkError::Ppid { found }),
        };
        Ok((DdpSsn(u16::from_be_bytes(*ssn)), data))
    }
}
