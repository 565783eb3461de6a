//! Atomic Operations (RFC 7306 section 5): the Atomic Request and Atomic Response headers, and what
//! each operation makes of a value. Any bytes but those of a reserved Atomic Operation Code are a
//! header; where the value lies, and whether it may be touched, is the engine's to judge.
//!
//! A Swap is a Compare and Swap whose compare mask is zero: RFC 7306 has no code of its own for it.

#[cfg(test)]
mod tests;

use crate::bytes::{long, word};
use crate::{Stag, TaggedOffset};

/// Bytes of the Atomic Request header.
pub const REQUEST_LEN: usize = 52;
/// Bytes of the Atomic Response header.
pub const RESPONSE_LEN: usize = 12;
/// Bytes of memory that an Atomic Operation works on, and their alignment.
pub const OPERAND_LEN: u32 = 8;

/// Atomic Operation Codes (RFC 7306 section 10.1); 1 is reserved, the others are unassigned.
const FETCH_ADD: u32 = 0;
const COMPARE_SWAP: u32 = 2;
/// The Atomic Operation Code in the first word; the other bits are reserved and not looked at.
const CODE_MASK: u32 = 0xf;

/// What an Atomic Request does with 64 bits of the responder's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtomicOperation {
    /// Adds, in fields of any length (RFC 7306 section 5.1.1).
    FetchAdd {
        add: u64,
        /// The most significant bit of each field, whose carry is discarded; with 0 there is one
        /// field of 64 bits.
        mask: u64,
    },
    /// Replaces, if the value is the expected one (RFC 7306 section 5.1.2).
    CompareSwap {
        /// The bits that replace those of the value.
        swap: u64,
        /// Which bits are replaced.
        swap_mask: u64,
        /// What the value is compared with.
        compare: u64,
        /// Which bits are compared; with 0 any value is the expected one.
        compare_mask: u64,
    },
}

impl AtomicOperation {
    /// The value that `original` becomes.
    pub const fn apply(self, original: u64) -> u64 {
        match self {
            // Without the top bit of each field no carry leaves its field; the top bits are added
            // to that carry without one of their own.
            Self::FetchAdd { add, mask } => {
                let lower = (original & !mask).wrapping_add(add & !mask);
                lower ^ ((original ^ add) & mask)
            }
            Self::CompareSwap {
                swap,
                swap_mask,
                compare,
                compare_mask,
            } => {
                if (compare ^ original) & compare_mask == 0 {
                    (original & !swap_mask) | (swap & swap_mask)
                } else {
                    original
                }
            }
        }
    }
}

/// An Atomic Request (RFC 7306 section 5.2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtomicRequest {
    /// Request Identifier: the requester's choice, repeated in the response.
    pub identifier: u32,
    /// Remote STag.
    pub stag: Stag,
    /// Remote Tagged Offset of the value's first byte.
    pub to: TaggedOffset,
    /// What is done.
    pub operation: AtomicOperation,
}

impl AtomicRequest {
    /// The header from its bytes; none for an Atomic Operation Code that does not exist.
    pub fn from_bytes(bytes: &[u8; REQUEST_LEN]) -> Option<Self> {
        let word = |n: usize| word(bytes, n);
        let long = |n: usize| long(bytes, n);
        let operation = match word(0) & CODE_MASK {
            FETCH_ADD => AtomicOperation::FetchAdd {
                add: long(20),
                mask: long(28),
            },
            COMPARE_SWAP => AtomicOperation::CompareSwap {
                swap: long(20),
                swap_mask: long(28),
                compare: long(36),
                compare_mask: long(44),
            },
            _ => return None,
        };
        Some(Self {
            identifier: word(4),
            stag: Stag(word(8)),
            to: TaggedOffset(long(12)),
            operation,
        })
    }

    /// The header on the wire. Fields that the operation does not have are as section 5.2.1 wants
    /// them: compare data zero, compare mask all ones.
    pub fn to_bytes(&self) -> [u8; REQUEST_LEN] {
        let (code, data, mask, compare, compare_mask) = match self.operation {
            AtomicOperation::FetchAdd { add, mask } => (FETCH_ADD, add, mask, 0, u64::MAX),
            AtomicOperation::CompareSwap {
                swap,
                swap_mask,
                compare,
                compare_mask,
            } => (COMPARE_SWAP, swap, swap_mask, compare, compare_mask),
        };
        let mut out = [0; REQUEST_LEN];
        for (at, value) in [(0, code), (4, self.identifier), (8, self.stag.0)] {
            out[at..at + 4].copy_from_slice(&value.to_be_bytes());
        }
        let longs = [self.to.0, data, mask, compare, compare_mask];
        for (place, value) in out[12..].chunks_exact_mut(8).zip(longs) {
            place.copy_from_slice(&value.to_be_bytes());
        }
        out
    }
}

/// An Atomic Response (RFC 7306 section 5.2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtomicResponse {
    /// Original Request Identifier.
    pub identifier: u32,
    /// Original Remote Data Value: what was there before the operation.
    pub original: u64,
}

impl AtomicResponse {
    /// The header from its bytes. Any bytes are a header.
    pub fn from_bytes(bytes: &[u8; RESPONSE_LEN]) -> Self {
        Self {
            identifier: word(bytes, 0),
            original: long(bytes, 4),
        }
    }

    /// The header on the wire.
    pub fn to_bytes(&self) -> [u8; RESPONSE_LEN] {
        let mut out = [0; RESPONSE_LEN];
        out[..4].copy_from_slice(&self.identifier.to_be_bytes());
        out[4..].copy_from_slice(&self.original.to_be_bytes());
        out
    }
}
