//! What IP carries.

/// A protocol whose packets are taken (the Protocol field of IPv4, the Next Header of IPv6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Protocol {
    /// TCP (RFC 9293).
    Tcp,
    /// SCTP (RFC 9260).
    Sctp,
    /// UDP, and SCTP in it (RFC 6951).
    Udp,
}

impl Protocol {
    pub const fn number(self) -> u8 {
        match self {
            Self::Tcp => 6,
            Self::Sctp => 132,
            Self::Udp => 17,
        }
    }

    #[inline]
    pub const fn of_number(number: u8) -> Option<Self> {
        match number {
            6 => Some(Self::Tcp),
            132 => Some(Self::Sctp),
            17 => Some(Self::Udp),
            _ => None,
        }
    }

    /// Bytes that a packet of its has at least.
    pub(crate) const fn header_min(self) -> usize {
        match self {
            Self::Tcp => super::TCP_HEADER,
            Self::Sctp => super::SCTP_HEADER,
            Self::Udp => super::UDP_HEADER + super::SCTP_HEADER,
        }
    }
}
