//! The RDMAP Control Field: version and opcode, in the first byte of DDP's RsvdULP (RFC 5040
//! section 4.1), with the opcodes of RFC 7306.
//!
//! ```text
//! | RV 2 bits | Rsv 2 bits | Opcode 4 bits |
//! ```

#[cfg(test)]
mod tests;

use crate::Qn;
use crate::numbers::opcode_numbers;

/// The RDMAP version that this crate speaks.
pub const VERSION: u8 = 1;

/// The bits that mean nothing.
const RESERVED: u8 = 0x30;

/// The RDMA Message Opcodes (RFC 5040 Figure 4, RFC 7306 Figure 2), and the Sends with Immediate Data of
/// `docs/extensions.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Opcode {
    /// RDMA Write.
    Write,
    /// RDMA Read Request.
    ReadRequest,
    /// RDMA Read Response.
    ReadResponse,
    /// One of the Sends.
    Send(SendKind),
    Terminate,
    /// Immediate Data, with Solicited Event or without.
    Immediate {
        /// Raise the receiver's solicited event.
        solicited: bool,
    },
    AtomicRequest,
    AtomicResponse,
}

/// The four Send Message Types, and those two with Immediate Data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SendKind {
    /// Raise the receiver's solicited event.
    pub solicited: bool,
    /// What the message has in its header.
    pub word: SendWord,
}

/// What the 32 bits of a Send's header are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SendWord {
    /// Nothing.
    #[default]
    Unused,
    /// An STag to invalidate.
    Invalidate,
    /// Immediate Data: only where both ends have agreed on that ([`StreamConfig`](super::stream::StreamConfig)).
    Immediate,
}

opcode_numbers! {
    Opcode:
    0 = { Self::Write },
    1 = { Self::ReadRequest },
    2 = { Self::ReadResponse },
    3 = { Self::Send(SendKind { solicited: false, word: SendWord::Unused }) },
    4 = { Self::Send(SendKind { solicited: false, word: SendWord::Invalidate }) },
    5 = { Self::Send(SendKind { solicited: true, word: SendWord::Unused }) },
    6 = { Self::Send(SendKind { solicited: true, word: SendWord::Invalidate }) },
    7 = { Self::Terminate },
    8 = { Self::Immediate { solicited: false } },
    9 = { Self::Immediate { solicited: true } },
    10 = { Self::AtomicRequest },
    11 = { Self::AtomicResponse },
    12 = { Self::Send(SendKind { solicited: false, word: SendWord::Immediate }) },
    13 = { Self::Send(SendKind { solicited: true, word: SendWord::Immediate }) },
}

impl Opcode {
    /// The untagged queue that carries it; none for the tagged messages.
    pub const fn queue(self) -> Option<Qn> {
        match self {
            Self::Write | Self::ReadResponse => None,
            Self::Send(_) | Self::Immediate { .. } => Some(Qn::SEND),
            Self::ReadRequest | Self::AtomicRequest => Some(Qn::READ_REQUEST),
            Self::Terminate => Some(Qn::TERMINATE),
            Self::AtomicResponse => Some(Qn::ATOMIC_RESPONSE),
        }
    }

    /// The control field of our version with this opcode.
    #[inline]
    pub const fn control_byte(self) -> u8 {
        VERSION << 6 | self.number()
    }
}

/// Whether a control field is that of an RDMA Write of our version; reserved bits are not looked at.
#[inline]
pub const fn is_write(byte: u8) -> bool {
    byte & !RESERVED == Opcode::Write.control_byte()
}

/// RV, two bits, of a control field.
#[inline]
pub const fn version(byte: u8) -> u8 {
    byte >> 6
}

/// The opcode of a control field; reserved bits are not looked at.
#[inline]
pub const fn opcode(byte: u8) -> Option<Opcode> {
    Opcode::from_number(byte & 0x0f)
}
