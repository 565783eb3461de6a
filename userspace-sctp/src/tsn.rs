//! Transmission sequence numbers: 32 bits that wrap (RFC 9260 section 1.6).

#[cfg(test)]
mod tests;

use std::fmt;

/// A TSN. Comparison is serial arithmetic: of two numbers the one is later that is reached from the
/// other by the shorter way up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Tsn(pub u32);

impl Tsn {
    /// The number `count` later.
    #[must_use]
    pub const fn plus(self, count: u32) -> Self {
        Self(self.0.wrapping_add(count))
    }

    /// The next number.
    #[must_use]
    pub const fn next(self) -> Self {
        self.plus(1)
    }

    /// The number before.
    #[must_use]
    pub const fn previous(self) -> Self {
        Self(self.0.wrapping_sub(1))
    }

    /// How much later it is than `earlier`; a large number when it is not.
    pub const fn since(self, earlier: Self) -> u32 {
        self.0.wrapping_sub(earlier.0)
    }

    /// Whether it is later than `other`. Neither of two numbers that are 2^31 apart is later.
    pub const fn is_after(self, other: Self) -> bool {
        (other.0.wrapping_sub(self.0) as i32) < 0 && self.0 != other.0 ^ (1 << 31)
    }

    /// Whether it is `other` or later.
    pub const fn is_at_or_after(self, other: Self) -> bool {
        self.0 == other.0 || self.is_after(other)
    }
}

impl fmt::Display for Tsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
