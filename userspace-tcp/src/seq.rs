//! Sequence numbers (RFC 9293 section 3.4).
//!
//! On the wire they are 32 bits and wrap; inside a connection they are 64-bit positions counted
//! from the SYN, which never wrap. `Space` turns one into the other.

#[cfg(test)]
mod tests;

/// A sequence number as on the wire: 32 bits, wrapping. It has no total order on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct SeqNum(pub u32);

impl SeqNum {
    /// The number `bytes` further on.
    #[allow(clippy::should_implement_trait)]
    pub const fn add(self, bytes: u32) -> Self {
        Self(self.0.wrapping_add(bytes))
    }

    /// Signed distance from `other` to `self`: positive when `self` is later.
    pub const fn distance(self, other: Self) -> i32 {
        self.0.wrapping_sub(other.0).cast_signed()
    }

    /// Whether `self` comes before `other`.
    pub const fn before(self, other: Self) -> bool {
        self.distance(other) < 0
    }
}

/// A position in the byte stream: 0 is the first byte after the SYN.
pub type StreamOffset = u64;

/// A position in the sequence space of one direction: 0 is the SYN, 1 the first byte, and the FIN follows the
/// final byte.
pub(crate) type Position = u64;

/// The sequence space of one direction of one connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Space {
    initial: SeqNum,
}

impl Space {
    pub(crate) const fn new(initial: SeqNum) -> Self {
        Self { initial }
    }

    /// The low 32 bits are what the wire carries.
    pub(crate) const fn wire(self, position: Position) -> SeqNum {
        self.initial.add(position as u32)
    }

    /// The position nearest to `near` with this wire number. Negative: before the SYN.
    pub(crate) const fn position(self, near: Position, seq: SeqNum) -> i64 {
        near.cast_signed() + seq.distance(self.wire(near)) as i64
    }
}
