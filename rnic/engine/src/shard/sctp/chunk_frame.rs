//! The user data of a chunk that was posted, in the frame that it was written to.

use rnic_xsk::{Frame, Umem};
use userspace_net::ConnId;
use userspace_sctp::AssocId;

#[derive(Clone, Copy, Debug)]
pub enum ChunkOwner {
    Session(ConnId),
    /// None, on this association.
    Association(AssocId),
}

/// A frame that SCTP keeps until its chunk is acknowledged.
#[derive(Debug)]
pub struct ChunkFrame {
    /// Its data is the chunk's user data.
    pub frame: Frame,
    pub owner: ChunkOwner,
    umem: Umem,
}

impl ChunkFrame {
    /// A frame of this UMEM, with the user data and nothing else.
    pub fn new(frame: Frame, session: ConnId, umem: &Umem) -> Self {
        Self {
            frame,
            owner: ChunkOwner::Session(session),
            umem: umem.clone(),
        }
    }

    /// The same of a message that is of no session.
    pub fn of_association(frame: Frame, assoc: AssocId, umem: &Umem) -> Self {
        Self {
            frame,
            owner: ChunkOwner::Association(assoc),
            umem: umem.clone(),
        }
    }
}

impl AsRef<[u8]> for ChunkFrame {
    fn as_ref(&self) -> &[u8] {
        self.umem.bytes(&self.frame)
    }
}
