//! Work requests of a stream: what each was, as its completion tells, and how they are written.

use rnic::{MemoryRegion, RemoteMemory, WorkRequest};

use crate::rsocket::wire::Message;

/// What a work request was: its `wr_id`.
pub(super) enum Work {
    Receive(u32),
    Data(u32),
    Direct(u32),
    Control(u32),
    Iomap,
    /// The RDMA Write before a Send that tells of both.
    Part,
}

impl Work {
    pub(super) fn id(self) -> u64 {
        let (kind, number) = match self {
            Self::Receive(place) => (0_u64, place),
            Self::Data(bytes) => (1, bytes),
            Self::Direct(bytes) => (2, bytes),
            Self::Control(slots) => (3, slots),
            Self::Iomap => (4, 0),
            Self::Part => (5, 0),
        };
        kind << 32 | u64::from(number)
    }

    pub(super) fn of(id: u64) -> Self {
        let number = id as u32;
        match id >> 32 {
            0 => Self::Receive(number),
            1 => Self::Data(number),
            2 => Self::Direct(number),
            3 => Self::Control(number),
            4 => Self::Iomap,
            _ => Self::Part,
        }
    }
}

/// A Send of a message.
pub(super) fn message_of(work: Work, message: &[u8; Message::BYTES]) -> WorkRequest<'_> {
    WorkRequest::send(work.id(), &[]).inline(message)
}

pub(super) fn remote(stag: u32, addr: u64) -> RemoteMemory {
    // The peer's RNIC checks the bounds.
    RemoteMemory {
        stag,
        addr,
        len: u64::MAX,
    }
}

/// An entry that the peer may be writing at this moment: as two looks find it, or not at all. What is
/// written while it is looked at has its message still to come.
pub(super) fn read_stable<const BYTES: usize>(
    region: &MemoryRegion,
    at: usize,
) -> Option<[u8; BYTES]> {
    let (mut first, mut second) = ([0; BYTES], [0; BYTES]);
    region.read(at, &mut first).ok()?;
    region.read(at, &mut second).ok()?;
    (first == second).then_some(first)
}
