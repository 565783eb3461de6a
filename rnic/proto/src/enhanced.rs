//! Enhanced RDMA connection establishment (RFC 6581 section 9), over MPA and over SCTP alike: how many RDMA Reads
//! each side takes, and how an initiator of the peer-to-peer model shows that it is ready.

mod depth;
mod rtr;

use thiserror::Error;

pub use depth::{MAX_READ_DEPTH, ReadDepths};
pub use rtr::{Rtr, RtrSet};

use crate::mpa::MpaError;

/// A or C of an enhanced word, and B or D.
const UPPER_FLAG: u16 = 0x8000;
const LOWER_FLAG: u16 = 0x4000;
const DEPTH_MASK: u16 = 0x3fff;

/// What both sides agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Agreed {
    /// What this side uses itself.
    pub depths: ReadDepths,
    /// The indication that the initiator sends.
    pub rtr: Option<Rtr>,
}

/// Depths and indications on which nobody can agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum EnhancedError {
    /// An own IRD or ORD over the limit.
    #[error("IRD or ORD of {asked} asked for; at most {MAX_READ_DEPTH} are supported")]
    ReadDepth {
        /// The larger of the two.
        asked: u16,
    },
    /// The responder wants more RDMA Reads than we can serve.
    #[error("the responder's ORD is {asked}, over the {MAX_READ_DEPTH} that we can serve")]
    InsufficientIrd {
        /// Its ORD.
        asked: u16,
    },
    /// The responder takes none of the Ready-to-Receive indications that we offered.
    #[error("the responder takes no Ready-to-Receive indication that was offered")]
    NoMatchingRtr,
}

impl EnhancedError {
    /// The error of the Terminate that an initiator sends before it closes.
    pub const fn wants_terminate(&self) -> Option<MpaError> {
        match self {
            Self::ReadDepth { .. } => None,
            Self::InsufficientIrd { .. } => Some(MpaError::InsufficientIrd),
            Self::NoMatchingRtr => Some(MpaError::NoMatchingRtr),
        }
    }
}

/// What one side says, on the wire:
///
/// ```text
/// | A | B | IRD 14 bits | C | D | ORD 14 bits |
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Enhanced {
    /// IRD and ORD, 14 bits each.
    pub depths: ReadDepths,
    /// Flag A is set, and these of B, C and D; none in the client-server model.
    pub peer_to_peer: Option<RtrSet>,
}

impl Enhanced {
    /// Bytes on the wire.
    pub const LEN: usize = 4;

    /// The data from its bytes.
    pub fn from_bytes([a, b, c, d]: [u8; Enhanced::LEN]) -> Self {
        let (ird, ord) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
        let rtr = RtrSet {
            send: ird & LOWER_FLAG != 0,
            write: ord & UPPER_FLAG != 0,
            read: ord & LOWER_FLAG != 0,
        };
        Self {
            depths: ReadDepths {
                ird: ird & DEPTH_MASK,
                ord: ord & DEPTH_MASK,
            },
            // B, C and D are ignored without A.
            peer_to_peer: (ird & UPPER_FLAG != 0).then_some(rtr),
        }
    }

    /// The data on the wire.
    pub fn to_bytes(self) -> [u8; Enhanced::LEN] {
        let flag = |set: bool, flag: u16| if set { flag } else { 0 };
        let rtr = self.peer_to_peer.unwrap_or_default();
        let ird = self.depths.ird & DEPTH_MASK
            | flag(self.peer_to_peer.is_some(), UPPER_FLAG)
            | flag(rtr.send, LOWER_FLAG);
        let ord =
            self.depths.ord & DEPTH_MASK | flag(rtr.write, UPPER_FLAG) | flag(rtr.read, LOWER_FLAG);
        let ([a, b], [c, d]) = (ird.to_be_bytes(), ord.to_be_bytes());
        [a, b, c, d]
    }

    /// The answer to the initiator's data, and what is agreed with it. `depths` are the responder's own, `taken` the
    /// indications that it can take.
    pub(crate) fn answer(self, depths: ReadDepths, taken: RtrSet) -> (Self, Agreed) {
        let (mut own, mut said) = depths.answer(self.depths);
        let rtr = self.peer_to_peer.map(|offered| offered.choose(taken));
        if rtr == Some(Rtr::Read) {
            // The indication is a Read: it needs room for one.
            own.ird = own.ird.max(1);
            said.ird = said.ird.max(1);
        }
        let answer = Self {
            depths: said,
            peer_to_peer: rtr.map(RtrSet::only),
        };
        (answer, Agreed { depths: own, rtr })
    }

    /// The data of a Reply that rejects a Request with this data: depths that fit the initiator's, so that they
    /// don't look like the reason.
    pub(crate) fn rejection(self) -> Self {
        let offered = self.peer_to_peer;
        Self {
            depths: ReadDepths {
                ird: self.depths.ord,
                ord: self.depths.ird,
            },
            peer_to_peer: offered.map(|rtr| RtrSet::only(rtr.choose(RtrSet::ALL))),
        }
    }

    /// What is agreed by the responder's answer to this data, the initiator's.
    pub(crate) fn agree(self, answer: Self) -> Result<Agreed, EnhancedError> {
        let mut depths = self.depths.agree(answer.depths)?;
        // None when we asked for the client-server model, whatever the responder's flags.
        let rtr = match self.peer_to_peer {
            None => None,
            Some(ours) => {
                let theirs = answer.peer_to_peer.unwrap_or_default();
                let both = ours.and(theirs).preferred();
                Some(both.ok_or(EnhancedError::NoMatchingRtr)?)
            }
        };
        if rtr == Some(Rtr::Read) && answer.depths.ird > 0 {
            // The indication is a Read: it needs room for one.
            depths.ord = depths.ord.max(1);
        }
        Ok(Agreed { depths, rtr })
    }
}
