//! Names of memory, queues and places in messages, each a type of its own so that none is taken
//! for another (RFC 5040 section 1.1, RFC 5041 sections 4.1 and 4.2).

#[cfg(test)]
mod tests;

use std::fmt;

/// A Steering Tag: names a region of memory to a peer. The upper 24 bits are its index in the
/// STag table, the lower 8 bits its key.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Stag(pub u32);

impl Stag {
    /// The largest index.
    pub const INDEX_MAX: u32 = (1 << 24) - 1;

    /// An STag from its parts; bits of `index` above the 24th are dropped.
    pub const fn from_parts(index: u32, key: u8) -> Self {
        Self(index << 8 | key as u32)
    }

    /// Its index in the STag table, 24 bits.
    pub const fn index(self) -> u32 {
        self.0 >> 8
    }

    /// Its key, the part that changes when an index is used again.
    pub const fn key(self) -> u8 {
        self.0 as u8
    }
}

impl fmt::Debug for Stag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stag({:#010x})", self.0)
    }
}

impl fmt::Display for Stag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#010x}", self.0)
    }
}

/// Tagged Offset: a byte's place in the memory that an STag names.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TaggedOffset(pub u64);

impl TaggedOffset {
    /// The offset `bytes` further on, or none when the 64-bit space ends before.
    pub const fn checked_add(self, bytes: u64) -> Option<Self> {
        match self.0.checked_add(bytes) {
            Some(sum) => Some(Self(sum)),
            None => None,
        }
    }
}

impl fmt::Debug for TaggedOffset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TaggedOffset({:#x})", self.0)
    }
}

impl fmt::Display for TaggedOffset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// Queue Number of an untagged DDP message (RFC 5041 section 4.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Qn(pub u32);

impl Qn {
    /// Sends of all kinds (RFC 5040 section 4.1).
    pub const SEND: Self = Self(0);
    /// RDMA Read Requests.
    pub const READ_REQUEST: Self = Self(1);
    /// Terminates.
    pub const TERMINATE: Self = Self(2);
    /// Atomic Responses (RFC 7306 section 4.1).
    pub const ATOMIC_RESPONSE: Self = Self(3);
}

impl fmt::Display for Qn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Message Sequence Number of an untagged DDP message; wraps at 32 bits and begins at 1 on each
/// queue (RFC 5041 section 5.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Msn(pub u32);

impl Msn {
    /// The first message of a queue.
    pub const FIRST: Self = Self(1);

    /// The message after this one.
    pub const fn next(self) -> Self {
        Self(self.0.wrapping_add(1))
    }

    /// How many messages after `earlier` this one is, negative when it is before it.
    pub const fn distance_from(self, earlier: Self) -> i32 {
        self.0.wrapping_sub(earlier.0) as i32
    }
}

impl fmt::Display for Msn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Message Offset: a byte's place in an untagged DDP message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MessageOffset(pub u32);

impl fmt::Display for MessageOffset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
