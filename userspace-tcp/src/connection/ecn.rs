//! Whether a connection uses explicit congestion notification (RFC 3168 section 6.1.1): agreed on
//! by the SYNs, and given up when one of them did not offer it.

use crate::segment::Flags;

/// What the SYNs and SYN-ACKs so far said.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct EcnAgreement {
    ours: Said,
    peers: Said,
}

/// What one side's SYNs and SYN-ACKs said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Said {
    #[default]
    Nothing,
    /// All of them were ECN-setup ones.
    Yes,
    /// First ECN-setup ones, then another.
    YesThenNo,
    No,
}

impl Said {
    fn and(self, setup: bool) -> Self {
        match (self, setup) {
            (Self::Nothing | Self::Yes, true) => Self::Yes,
            (Self::Nothing | Self::No, _) => Self::No,
            (Self::Yes | Self::YesThenNo, _) => Self::YesThenNo,
        }
    }
}

impl EcnAgreement {
    /// The flags that make our next SYN an ECN-setup one. `first`: it was not lost before; some
    /// middleboxes drop such SYNs (section 6.1.1.1).
    pub(super) fn syn(&mut self, wanted: bool, first: bool) -> Flags {
        let setup = wanted && first;
        self.ours = self.ours.and(setup);
        if setup {
            Flags::ECE | Flags::CWR
        } else {
            Flags::default()
        }
    }

    /// The flags of our next SYN-ACK.
    pub(super) fn syn_ack(&mut self, wanted: bool) -> Flags {
        let setup = wanted && self.peers == Said::Yes && self.ours != Said::YesThenNo;
        self.ours = self.ours.and(setup);
        if setup { Flags::ECE } else { Flags::default() }
    }

    /// The peer's SYN or SYN-ACK has these flags. A SYN-ACK with both is the echo of a host that
    /// reflects what it does not know (section 6.1.1.2).
    pub(super) fn peer_said(&mut self, flags: Flags) {
        let (ece, cwr) = (flags.contains(Flags::ECE), flags.contains(Flags::CWR));
        self.peers = self.peers.and(ece && cwr != flags.ack());
    }

    /// No SYN of the peer speaks against it.
    pub(super) fn may_be_offered(&self) -> bool {
        matches!(self.peers, Said::Nothing | Said::Yes)
    }

    /// New segments with payload are sent as ECN-capable, and ECE on an ACK counts.
    pub(super) fn sends_capable(&self) -> bool {
        self.ours == Said::Yes && self.peers == Said::Yes
    }

    /// Marks on what comes are echoed: the peer may have seen our offer, and never took its own
    /// back.
    pub(super) fn echoes(&self) -> bool {
        matches!(self.ours, Said::Yes | Said::YesThenNo) && self.peers == Said::Yes
    }
}
