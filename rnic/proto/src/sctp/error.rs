//! What goes wrong in a DDP Stream Session.

use thiserror::Error;

use super::control::{Function, PRIVATE_DATA_MAX};
use crate::enhanced::EnhancedError;
use crate::mpa::MpaError;

/// A chunk whose user data is none of RFC 5043's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ChunkError {
    /// Neither a segment's nor a control message's.
    #[error("a DATA chunk of payload protocol {found}; DDP over SCTP has 16 and 17")]
    Ppid {
        /// Its PPID.
        found: u32,
    },
    /// It ends in its header.
    #[error("a DATA chunk of {len} bytes, too few for its header")]
    Short {
        /// Bytes of user data.
        len: usize,
    },
    /// No such message.
    #[error("a session control message of function {found:#x}; 1 to 7 are known")]
    Function {
        /// Its code.
        found: u16,
    },
    /// More private data than any message may have.
    #[error("{function} has {len} bytes of private data; at most {PRIVATE_DATA_MAX} are allowed")]
    PrivateData {
        /// The message.
        function: Function,
        /// Bytes of private data.
        len: usize,
    },
    /// Private data where none may be.
    #[error("Terminate has {len} bytes of private data, and may have none")]
    TerminateWithData {
        /// Bytes of private data.
        len: usize,
    },
    /// An enhanced message without its first four bytes.
    #[error("{function} has {len} bytes, too few for the IRD and ORD words")]
    EnhancedDataMissing {
        /// The message.
        function: Function,
        /// Bytes of private data.
        len: usize,
    },
}

/// A session that can't go on, or what can't be done with it.
///
/// After an error of the peer's the session is to be terminated ([`Session::terminate`](super::Session::terminate)).
/// The variants from [`SessionError::PrivateDataTooLong`] on are the local application's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SessionError {
    /// What came is of no legal sequence (RFC 5043 section 6.1).
    #[error(
        "{found} came, where {wanted} may come: the peer breaks the order of a DDP Stream Session"
    )]
    Sequence {
        /// What came.
        found: &'static str,
        /// What may come.
        wanted: &'static str,
    },
    /// The answer is not of the kind of the Initiate (RFC 6581 section 7).
    #[error(
        "the Accept does not fit the Initiate: enhanced data {}, but {}",
        if *.asked { "asked for" } else { "not asked for" },
        if *.asked { "not answered" } else { "answered" }
    )]
    EnhancedMismatch {
        /// Whether the Initiate was an enhanced one.
        asked: bool,
    },
    /// No agreement on RDMA Reads, or on the Ready-to-Receive indication.
    #[error(transparent)]
    Enhanced(#[from] EnhancedError),
    /// More private data than the message takes.
    #[error("{len} bytes of private data given; this session allows {limit}")]
    PrivateDataTooLong {
        /// Bytes given.
        len: usize,
        /// Bytes allowed: 512, or 508 beside enhanced data.
        limit: usize,
    },
    /// The enhanced form is needed for it.
    #[error("a Ready-to-Receive indication was asked for without the enhanced form; it needs that")]
    RtrNeedsEnhanced,
    /// Accept or reject where no Initiate waits for an answer.
    #[error("there is no DDP Stream Session Initiate to answer")]
    NoInitiate,
}

impl SessionError {
    /// The error of the RDMAP Terminate that the active side sends before it ends the session (RFC 6581 section 9).
    pub const fn wants_terminate(&self) -> Option<MpaError> {
        match self {
            Self::Enhanced(error) => error.wants_terminate(),
            _ => None,
        }
    }
}
