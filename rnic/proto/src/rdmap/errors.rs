//! What ends a stream: every error that a Terminate can name, with layer, type and code (RFC 5040
//! section 4.8, Figures 9 and 10).

#[cfg(test)]
mod tests;

use thiserror::Error;

use crate::ddp::DdpError;
use crate::mpa::MpaError;
use crate::numbers::error_numbers;

/// The layer numbers of Figure 9.
const LAYER_RDMAP: u8 = 0;
const LAYER_DDP: u8 = 1;
const LAYER_LLP: u8 = 2;

/// An error of the RDMAP layer, under the name and numbers of Figure 9.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
pub enum RdmapError {
    /// A local fault, not caused by a message of the peer.
    #[error("local catastrophic error in RDMAP")]
    LocalCatastrophic,
    /// Remote Protection: no such STag.
    #[error("RDMAP: invalid STag")]
    InvalidStag,
    /// Remote Protection: outside of the STag's memory.
    #[error("RDMAP: base or bounds violation")]
    BaseOrBounds,
    /// Remote Protection: the STag does not allow this access.
    #[error("RDMAP: access rights violation")]
    AccessRights,
    /// Remote Protection: the STag is of another protection domain or stream.
    #[error("RDMAP: STag not associated with this RDMAP Stream")]
    StagNotAssociated,
    /// Remote Protection: TO and length run over 2^64.
    #[error("RDMAP: TO wrap")]
    ToWrap,
    /// Remote Protection: the STag of a Send with Invalidate.
    #[error("RDMAP: STag cannot be invalidated")]
    CannotInvalidate,
    /// Remote Protection without a better name.
    #[error("RDMAP: unspecified remote protection error")]
    ProtectionUnspecified,
    /// Remote Operation: RV is not 1.
    #[error("RDMAP: invalid RDMAP version")]
    InvalidVersion,
    /// Remote Operation: a reserved opcode, or one that may not come here or now.
    #[error("RDMAP: unexpected opcode")]
    UnexpectedOpcode,
    /// Remote Operation: the stream can't go on.
    #[error("RDMAP: catastrophic error, localized to the RDMAP Stream")]
    CatastrophicStream,
    /// Remote Operation: the RNIC can't go on.
    #[error("RDMAP: catastrophic error, global")]
    CatastrophicGlobal,
    /// Remote Operation: the STag of a Send with Invalidate; Figure 9 has it under both types.
    #[error("RDMAP: STag cannot be invalidated (remote operation error)")]
    CannotInvalidateOperation,
    /// Remote Operation without a better name.
    #[error("RDMAP: unspecified remote operation error")]
    OperationUnspecified,
}

error_numbers! {
    RdmapError:
    LocalCatastrophic = (0, 0x00),
    InvalidStag = (1, 0x00),
    BaseOrBounds = (1, 0x01),
    AccessRights = (1, 0x02),
    StagNotAssociated = (1, 0x03),
    ToWrap = (1, 0x04),
    CannotInvalidate = (1, 0x09),
    ProtectionUnspecified = (1, 0xff),
    InvalidVersion = (2, 0x05),
    UnexpectedOpcode = (2, 0x06),
    CatastrophicStream = (2, 0x07),
    CatastrophicGlobal = (2, 0x08),
    CannotInvalidateOperation = (2, 0x09),
    OperationUnspecified = (2, 0xff),
}

/// An error that a Terminate names: found by us in what the peer sent, or by the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
pub enum TerminateError {
    /// Found by RDMAP.
    #[error(transparent)]
    Rdmap(#[from] RdmapError),
    /// Found by DDP.
    #[error(transparent)]
    Ddp(#[from] DdpError),
    /// Found by MPA.
    #[error(transparent)]
    Mpa(#[from] MpaError),
    /// Numbers that no RFC names; only the peer can send them.
    #[error("a Terminate with unknown numbers: layer {layer}, type {error_type}, code {code:#04x}")]
    Unknown {
        /// Layer, four bits.
        layer: u8,
        /// Error Type, four bits.
        error_type: u8,
        /// Error Code.
        code: u8,
    },
}

impl TerminateError {
    /// Layer, Error Type and Error Code as the first 16 bits of a Terminate.
    pub const fn control(self) -> u16 {
        let (layer, error_type, code) = match self {
            Self::Rdmap(error) => (LAYER_RDMAP, error.error_type(), error.code()),
            Self::Ddp(error) => (LAYER_DDP, error.error_type(), error.code()),
            Self::Mpa(error) => (LAYER_LLP, 0, error.code()),
            Self::Unknown {
                layer,
                error_type,
                code,
            } => (layer & 0xf, error_type & 0xf, code),
        };
        u16::from_be_bytes([layer << 4 | error_type, code])
    }

    /// The error with these first 16 bits of a Terminate.
    pub const fn from_control(control: u16) -> Self {
        let [nibbles, code] = control.to_be_bytes();
        let (layer, error_type) = (nibbles >> 4, nibbles & 0xf);
        let unknown = Self::Unknown {
            layer,
            error_type,
            code,
        };
        match layer {
            LAYER_RDMAP => match RdmapError::from_numbers(error_type, code) {
                Some(error) => Self::Rdmap(error),
                None => unknown,
            },
            LAYER_DDP => match DdpError::from_numbers(error_type, code) {
                Some(error) => Self::Ddp(error),
                None => unknown,
            },
            LAYER_LLP if error_type == 0 => match MpaError::from_code(code) {
                Some(error) => Self::Mpa(error),
                None => unknown,
            },
            _ => unknown,
        }
    }

    /// Whether the Terminate shows DDP header and segment length (Figure 10).
    pub const fn shows_ddp_header(self) -> bool {
        match self {
            Self::Rdmap(error) => error.error_type() != 0,
            Self::Ddp(_) => true,
            Self::Mpa(_) | Self::Unknown { .. } => false,
        }
    }

    /// Whether the Terminate shows the RDMA Read Request header, if that was the message
    /// (Figure 10).
    pub const fn shows_read_request(self) -> bool {
        matches!(self, Self::Rdmap(error) if error.error_type() == 1)
    }
}
