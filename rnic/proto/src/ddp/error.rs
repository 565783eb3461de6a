//! The errors of DDP, with the types and codes of RFC 5041 section 7.2.

#[cfg(test)]
mod tests;

use thiserror::Error;

use crate::numbers::error_numbers;

/// An error in a DDP Segment, under the name and numbers of RFC 5041 section 7.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
pub enum DdpError {
    /// A local fault.
    #[error("local catastrophic error in DDP")]
    LocalCatastrophic,
    /// No such STag.
    #[error("tagged segment: invalid STag")]
    InvalidStag,
    /// The bytes don't lie in the STag's memory.
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
    #[error("untagged segment: invalid MSN, no buffer available (no receive is posted)")]
    NoBuffer,
    /// Not a message that may come now.
    #[error("untagged segment: invalid MSN, out of range")]
    MsnRange,
    /// Not the next byte of the message.
    #[error("untagged segment: invalid MO")]
    InvalidMo,
    /// More bytes than the buffer has.
    #[error("untagged segment: DDP Message too long for the available buffer")]
    MessageTooLong,
    /// DV is not 1, in an untagged segment.
    #[error("untagged segment: invalid DDP version")]
    UntaggedVersion,
}

error_numbers! {
    DdpError:
    LocalCatastrophic = (0, 0),
    InvalidStag = (1, 0),
    BaseOrBounds = (1, 1),
    StagNotAssociated = (1, 2),
    ToWrap = (1, 3),
    TaggedVersion = (1, 4),
    InvalidQn = (2, 1),
    NoBuffer = (2, 2),
    MsnRange = (2, 3),
    InvalidMo = (2, 4),
    MessageTooLong = (2, 5),
    UntaggedVersion = (2, 6),
}
