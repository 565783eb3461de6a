//! The ECN field of the IP header (RFC 3168 section 5), which IP carries for the transport protocol.

/// What a packet says about congestion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Ecn {
    /// Not ECN-capable transport.
    #[default]
    NotEct,
    /// ECN-capable transport, ECT(1).
    Ect1,
    /// ECN-capable transport, ECT(0).
    Ect0,
    /// Congestion experienced.
    Ce,
}

impl Ecn {
    /// From the two low bits of the IPv4 TOS byte or the IPv6 traffic class; the others are ignored.
    #[inline]
    pub const fn from_bits(byte: u8) -> Self {
        match byte & 0b11 {
            0b00 => Self::NotEct,
            0b01 => Self::Ect1,
            0b10 => Self::Ect0,
            _ => Self::Ce,
        }
    }

    /// The two low bits of the IPv4 TOS byte or the IPv6 traffic class.
    #[inline]
    pub const fn bits(self) -> u8 {
        match self {
            Self::NotEct => 0b00,
            Self::Ect1 => 0b01,
            Self::Ect0 => 0b10,
            Self::Ce => 0b11,
        }
    }
}
