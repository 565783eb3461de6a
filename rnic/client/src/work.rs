//! Work requests as a program writes them.

use rnic_ipc::ring::{RingFull, WorkQueueProducer};
use rnic_ipc::work::{Sge, WR_SIGNALED, WR_SOLICITED, WorkSlot, WrOpcode};

use crate::error::Error;
use crate::memory::RemoteMemory;

/// A piece of work for a queue pair.
///
/// Its memory (the elements' octets) belongs to the RNIC until the work completes: what is written
/// there before then may or may not be sent. Inline octets are copied when the work is posted.
#[derive(Clone, Copy, Debug)]
pub struct WorkRequest<'a> {
    slot: WorkSlot,
    octets: Octets<'a>,
}

/// Where a work request's octets come from or go to.
#[derive(Clone, Copy, Debug)]
enum Octets<'a> {
    /// Registered memory.
    Elements(&'a [Sge]),
    /// The work request itself.
    Inline(&'a [u8]),
}

impl<'a> WorkRequest<'a> {
    /// A Send (RFC 5040 section 5.3) of the elements' octets, one after the other.
    pub fn send(wr_id: u64, sges: &'a [Sge]) -> Self {
        Self::new(WrOpcode::Send, wr_id, sges)
    }

    /// A Send that also invalidates an STag of the peer's.
    pub fn send_with_invalidate(wr_id: u64, sges: &'a [Sge], stag: u32) -> Self {
        let mut work = Self::new(WrOpcode::SendInvalidate, wr_id, sges);
        work.slot.rkey = stag;
        work
    }

    /// An RDMA Write (RFC 5040 section 5.1) to the start of `remote`.
    pub fn write(wr_id: u64, sges: &'a [Sge], remote: RemoteMemory) -> Self {
        Self::new(WrOpcode::Write, wr_id, sges).to(remote)
    }

    /// An RDMA Read (RFC 5040 section 5.2) from the start of `remote`, as many octets as the
    /// elements hold.
    pub fn read(wr_id: u64, sges: &'a [Sge], remote: RemoteMemory) -> Self {
        Self::new(WrOpcode::Read, wr_id, sges).to(remote)
    }

    /// A receive: room for one Send of the peer's.
    pub fn recv(wr_id: u64, sges: &'a [Sge]) -> Self {
        Self::new(WrOpcode::Recv, wr_id, sges)
    }

    fn new(opcode: WrOpcode, wr_id: u64, sges: &'a [Sge]) -> Self {
        let slot = WorkSlot {
            wr_id,
            opcode: opcode as u8,
            flags: WR_SIGNALED,
            ..WorkSlot::default()
        };
        Self {
            slot,
            octets: Octets::Elements(sges),
        }
    }

    fn to(mut self, remote: RemoteMemory) -> Self {
        self.slot.rkey = remote.stag;
        self.slot.remote_addr = remote.addr;
        self
    }

    /// No completion when it succeeds. A later signalled request on the same send queue tells.
    pub fn unsignaled(mut self) -> Self {
        self.slot.flags &= !WR_SIGNALED;
        self
    }

    /// Sends: raise the peer's solicited event (RFC 5040 section 4.3).
    pub fn solicited(mut self) -> Self {
        self.slot.flags |= WR_SOLICITED;
        self
    }

    /// Sends and RDMA Writes: carries these octets itself, instead of elements. They need not be
    /// registered, and their memory may be used again as soon as the work is posted.
    pub fn inline(mut self, octets: &'a [u8]) -> Self {
        self.octets = Octets::Inline(octets);
        self
    }

    /// That a queue pair made for `max_sge` elements and `max_inline` octets takes this work.
    pub(crate) fn check(&self, max_sge: usize, max_inline: usize) -> Result<(), Error> {
        match self.octets {
            Octets::Elements(sges) if sges.len() > max_sge => Err(Error::TooManySges {
                found: sges.len(),
                max: max_sge,
            }),
            Octets::Inline(_) if !self.may_be_inline() => Err(Error::NotInline),
            Octets::Inline(octets) if octets.len() > max_inline => Err(Error::InlineTooLong {
                found: octets.len(),
                max: max_inline,
            }),
            _ => Ok(()),
        }
    }

    /// Puts it on a queue.
    pub(crate) fn push(&self, queue: &mut WorkQueueProducer) -> Result<(), RingFull> {
        match self.octets {
            Octets::Elements(sges) => queue.push_parts(&self.slot, sges),
            Octets::Inline(octets) => queue.push_inline(&self.slot, octets),
        }
    }

    fn may_be_inline(&self) -> bool {
        let carriers = [WrOpcode::Send, WrOpcode::SendInvalidate, WrOpcode::Write];
        carriers
            .iter()
            .any(|opcode| self.slot.opcode == *opcode as u8)
    }

    pub(crate) fn is_recv(&self) -> bool {
        self.slot.opcode == WrOpcode::Recv as u8
    }
}
