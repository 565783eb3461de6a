//! IRD and ORD: how many RDMA Reads may be outstanding in each direction (RFC 6581 section 9.1).

use super::EnhancedError;

/// The most RDMA Reads that we have outstanding in either direction of a stream.
pub const MAX_READ_DEPTH: u16 = 256;

/// On the wire: not negotiated here, the applications see to it.
const NOT_NEGOTIATED: u16 = 0x3fff;

/// One side's depths, 14 bits each on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadDepths {
    /// Inbound RDMA Read queue depth: Reads of the peer that this side takes at a time.
    pub ird: u16,
    /// Outbound RDMA Read queue depth: Reads of its own that this side has outstanding at a time.
    pub ord: u16,
}

impl ReadDepths {
    /// Refuses own depths over [`MAX_READ_DEPTH`].
    pub(crate) fn check_own(self) -> Result<Self, EnhancedError> {
        match self.ird.max(self.ord) {
            asked if asked > MAX_READ_DEPTH => Err(EnhancedError::ReadDepth { asked }),
            _ => Ok(self),
        }
    }

    /// The responder's answer to a request: what it uses itself, and what it says.
    pub(super) fn answer(self, peer: Self) -> (Self, Self) {
        let (mut own, mut said) = (self, self);
        if peer.ord == NOT_NEGOTIATED {
            said.ird = NOT_NEGOTIATED;
        } else {
            own.ird = own.ird.min(peer.ord);
            said.ird = own.ird;
        }
        if peer.ird == NOT_NEGOTIATED {
            said.ord = NOT_NEGOTIATED;
        } else {
            own.ord = own.ord.min(peer.ird);
            said.ord = own.ord;
        }
        (own, said)
    }

    /// What the initiator uses after the responder's answer.
    pub(super) fn agree(self, reply: Self) -> Result<Self, EnhancedError> {
        let mut own = self;
        if reply.ird != NOT_NEGOTIATED {
            own.ord = own.ord.min(reply.ird);
        }
        if reply.ord != NOT_NEGOTIATED {
            // At least the responder's ORD, if there are resources for it: also when it goes over
            // what we offered.
            if reply.ord > MAX_READ_DEPTH {
                return Err(EnhancedError::InsufficientIrd { asked: reply.ord });
            }
            own.ird = reply.ord;
        }
        Ok(own)
    }
}
