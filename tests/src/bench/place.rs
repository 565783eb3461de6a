//! A pair of hosts to compete on: its MTU, and where its receive path runs.

use std::fmt;

/// The largest MTU of native XDP on veth with frames of one buffer each.
pub const LARGEST_MTU: u32 = 3506;

/// Where the kernel's receive path of a veth pair runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Napi {
    /// In the sender's system call, on the sender's core.
    Inline,
    /// On the receiver's core, by Receive Packet Steering; XDP is generic.
    Rps,
    /// In a thread for each interface (threaded NAPI), on the receiver's core.
    Threaded,
}

impl Napi {
    /// All.
    pub const ALL: [Self; 3] = [Self::Inline, Self::Rps, Self::Threaded];

    /// In names of contestants.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Inline => "inline",
            Self::Rps => "rps",
            Self::Threaded => "threaded",
        }
    }

    /// What XDP programs are to be attached as.
    #[must_use]
    pub fn xdp_mode(self) -> &'static str {
        match self {
            Self::Inline | Self::Threaded => "native",
            // Native programs run before packets are steered to another core.
            Self::Rps => "generic",
        }
    }
}

/// Where something runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// IP MTU in octets.
    pub mtu: u32,
    /// Where packets are received.
    pub napi: Napi,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.mtu, self.napi.name())
    }
}
