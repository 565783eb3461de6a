//! The errors of DDP, with the types and codes of RFC 5041 section 7.2.

#[cfg(test)]
mod tests;

use thiserror::Error;

/// An error in a DDP Segment, under the name and numbers of RFC 5041 section 7.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
pub enum DdpError {
    /// A local fault.
    #[error("local catastrophic error in DDP")]
    LocalCatastrophic,
    /// No such STag.
    #[error("tagged segment: invalid STag")]
    InvalidStag,
    /// The octets don't lie in the STag's memory.
    #[error("tagged segment: base or bounds violation")]
    BaseOrBounds,
    /// The STag is of another protection domain or stream.
    #[error("tagged segment: STag not associated with this DDP Stream")]
    StagNotAssociated,
    /// TO and length run over 2^64.
    #[error("tagged segment: TO wrap")]
    ToWrap,
    /// DV is not 1, in a tagged segment.
    #[error("tagged segment: invalid DDP version")]
    TaggedVersion,
    /// No such queue.
    #[error("untagged segment: invalid Queue Number")]
    InvalidQn,
    /// No buffer is posted for the message.
    #[error("untagged segment: invalid MSN, no buffer available")]
    NoBuffer,
    /// Not a message that may come now.
    #[error("untagged segment: invalid MSN, out of range")]
    MsnRange,
    /// Not the next octet of the message.
    #[error("untagged segment: invalid MO")]
    InvalidMo,
    /// More octets than the buffer has.
    #[error("untagged segment: DDP Message too long for the available buffer")]
    MessageTooLong,
    /// DV is not 1, in an untagged segment.
    #[error("untagged segment: invalid DDP version")]
    UntaggedVersion,
}

impl DdpError {
    /// The Error Type: 0 local, 1 tagged, 2 untagged.
    pub const fn error_type(self) -> u8 {
        self.numbers().0
    }

    /// The Error Code.
    pub const fn code(self) -> u8 {
        self.numbers().1
    }

    const fn numbers(self) -> (u8, u8) {
        match self {
            Self::LocalCatastrophic => (0, 0),
            Self::InvalidStag => (1, 0),
            Self::BaseOrBounds => (1, 1),
            Self::StagNotAssociated => (1, 2),
            Self::ToWrap => (1, 3),
            Self::TaggedVersion => (1, 4),
            Self::InvalidQn => (2, 1),
            Self::NoBuffer => (2, 2),
            Self::MsnRange => (2, 3),
            Self::InvalidMo => (2, 4),
            Self::MessageTooLong => (2, 5),
            Self::UntaggedVersion => (2, 6),
        }
    }

    /// The error with these numbers, if there is one. A Local Catastrophic error may carry any
    /// code.
    pub const fn from_numbers(error_type: u8, code: u8) -> Option<Self> {
        Some(match (error_type, code) {
            (0, _) => Self::LocalCatastrophic,
            (1, 0) => Self::InvalidStag,
            (1, 1) => Self::BaseOrBounds,
            (1, 2) => Self::StagNotAssociated,
            (1, 3) => Self::ToWrap,
            (1, 4) => Self::TaggedVersion,
            (2, 1) => Self::InvalidQn,
            (2, 2) => Self::NoBuffer,
            (2, 3) => Self::MsnRange,
            (2, 4) => Self::InvalidMo,
            (2, 5) => Self::MessageTooLong,
            (2, 6) => Self::UntaggedVersion,
            _ => return None,
        })
    }
}
