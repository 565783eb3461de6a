//! What goes wrong in the Startup Phase.

use thiserror::Error;

use super::frame::{FrameKind, PRIVATE_DATA_MAX};
use crate::enhanced::EnhancedError;
use crate::mpa::MpaError;

/// A start-up that can't go on.
///
/// The peer's faults end in a close of the TCP connection (RFC 5044 section 7.1.2), with exceptions
/// that [`StartupError::wants_terminate`] names. The variants
/// from [`StartupError::PrivateDataTooLong`] on are the local application's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum StartupError {
    /// The peer does not speak MPA.
    #[error("the bytes received are not an MPA {wanted} Frame: the peer does not speak MPA here")]
    NotMpa {
        /// What was waited for.
        wanted: FrameKind,
    },
    /// Both sides are initiators, or both are responders.
    #[error("an MPA {wanted} Frame was expected but its opposite came: both ends have one role")]
    SameRole {
        /// What was waited for.
        wanted: FrameKind,
    },
    /// A revision other than 1 and 2.
    #[error("the peer speaks MPA revision {found}; 1 and 2 are supported")]
    UnsupportedRevision {
        /// The peer's.
        found: u8,
    },
    /// PD_Length is over the limit.
    #[error("the peer announces {found} bytes of private data; at most 512 are allowed")]
    PdLength {
        /// The peer's PD_Length.
        found: u16,
    },
    /// The S flag without the four bytes that it announces.
    #[error("the S flag is set but PD_Length is {found}, too short for the IRD and ORD words")]
    EnhancedDataMissing {
        /// The peer's PD_Length.
        found: u16,
    },
    /// The Reply is not of the kind that the Request asks for (RFC 6581 section 10).
    #[error(
        "the Reply does not fit the Request: enhanced data {}, but {}",
        if *.asked { "asked for" } else { "not asked for" },
        if *.asked { "not answered; try revision 1" } else { "answered" }
    )]
    EnhancedMismatch {
        /// Whether the Request was an enhanced one.
        asked: bool,
    },
    /// The peer sent FPDUs, or anything, too early.
    #[error("{extra} bytes behind the MPA {kind} Frame, where none may be")]
    BytesBehindFrame {
        kind: FrameKind,
        /// How many bytes.
        extra: usize,
    },
    /// No agreement on RDMA Reads, or on the Ready-to-Receive indication.
    #[error(transparent)]
    Enhanced(#[from] EnhancedError),
    /// More private data than a frame takes.
    #[error("{len} bytes of private data given; this connection allows {limit}")]
    PrivateDataTooLong {
        /// Bytes given.
        len: usize,
        /// Bytes allowed: 512, or 508 beside enhanced data.
        limit: usize,
    },
    /// Peer-to-peer needs revision 2.
    #[error("a Ready-to-Receive indication was asked for with revision 1; it needs revision 2")]
    RtrNeedsRevision2,
    /// Accept or reject before there is a request.
    #[error("there is no MPA Request Frame to answer yet")]
    NoRequest,
}

impl StartupError {
    /// The error of the Terminate that an initiator sends before it closes (RFC 6581 section 9).
    pub const fn wants_terminate(&self) -> Option<MpaError> {
        match self {
            Self::Enhanced(error) => error.wants_terminate(),
            _ => None,
        }
    }
}

const _: () = assert!(PRIVATE_DATA_MAX == 512, "the messages above name it");
