//! The errors of MPA (RFC 5044 section 8, RFC 6581 section 8), with the numbers that they have in
//! a Terminate: layer 2 (LLP), error type 0 (MPA).

use thiserror::Error;

/// An error of MPA, under the name and number of the RFCs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
pub enum MpaError {
    /// Closed, reset or timed out.
    #[error("the TCP connection is closed, terminated or lost")]
    ConnectionLost,
    /// The FPDU's bytes are not what the sender framed.
    #[error("an FPDU's CRC does not match its bytes")]
    CrcMismatch,
    /// The two ways of finding an FPDU's start disagree.
    #[error("an MPA Marker and the ULPDU Length fields disagree on an FPDU's start")]
    MarkerMismatch,
    /// Start-up went wrong.
    #[error("the MPA Request or Reply Frame is invalid")]
    InvalidStartupFrame,
    /// A local fault without a number of its own.
    #[error("local catastrophic error in the MPA start-up")]
    LocalCatastrophic,
    /// The other side wants more RDMA Reads than this side can serve.
    #[error("not enough inbound RDMA Read resources (IRD)")]
    InsufficientIrd,
    /// No way of signalling readiness that both sides know.
    #[error("no matching Ready-to-Receive option")]
    NoMatchingRtr,
}

impl MpaError {
    /// The error code in a Terminate.
    pub const fn code(self) -> u8 {
        match self {
            Self::ConnectionLost => 1,
            Self::CrcMismatch => 2,
            Self::MarkerMismatch => 3,
            Self::InvalidStartupFrame => 4,
            Self::LocalCatastrophic => 5,
            Self::InsufficientIrd => 6,
            Self::NoMatchingRtr => 7,
        }
    }

    /// The error with this code, if there is one.
    pub const fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            1 => Self::ConnectionLost,
            2 => Self::CrcMismatch,
            3 => Self::MarkerMismatch,
            4 => Self::InvalidStartupFrame,
            5 => Self::LocalCatastrophic,
            6 => Self::InsufficientIrd,
            7 => Self::NoMatchingRtr,
            _ => return None,
        })
    }
}
