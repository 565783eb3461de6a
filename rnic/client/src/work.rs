//! Work requests as a program writes them.

use rnic_ipc::control::Access;
use rnic_ipc::ring::{RingFull, WorkQueueProducer, slots_for};
use rnic_ipc::work::{
    Operands, Sge, WR_FENCE, WR_ONE_STREAM, WR_SIGNALED, WR_SOLICITED, WR_TRACKED, WorkSlot,
    WrOpcode, sges_for_inline,
};

use crate::error::Error;
use crate::remote_memory::RemoteMemory;

/// A piece of work for a queue pair.
///
/// Its memory (the elements' bytes) belongs to the RNIC until the work completes: what is written
/// there before then may or may not be sent. Inline bytes are copied when the work is posted.
#[derive(Clone, Copy, Debug)]
pub struct WorkRequest<'a> {
    slot: WorkSlot,
    bytes: Bytes<'a>,
    operands: Operands,
}

/// Where a work request's bytes come from or go to.
#[derive(Clone, Copy, Debug)]
enum Bytes<'a> {
    /// Registered memory.
    Elements(&'a [Sge]),
    /// The work request itself.
    Inline(&'a [u8]),
}

impl<'a> WorkRequest<'a> {
    /// A Send (RFC 5040 section 5.3) of the elements' bytes, one after the other.
    pub fn send(wr_id: u64, sges: &'a [Sge]) -> Self {
        Self::new(WrOpcode::Send, wr_id, sges)
    }

    /// A Send that also invalidates an STag of the peer's.
    pub fn send_with_invalidate(wr_id: u64, sges: &'a [Sge], stag: u32) -> Self {
        let mut work = Self::new(WrOpcode::SendInvalidate, wr_id, sges);
        work.slot.rkey = stag;
        work
    }

    /// A Send with 32 bits of Immediate Data, which the peer finds in the upper half of its completion's. Only for a queue
    /// pair that is [joined by number](crate::QueuePair::join).
    pub fn send_with_immediate(wr_id: u64, sges: &'a [Sge], data: u32) -> Self {
        let mut work = Self::new(WrOpcode::SendImmediate, wr_id, sges);
        work.slot.rkey = data;
        work
    }

    /// An RDMA Write (RFC 5040 section 5.1) to the start of `remote`.
    pub fn write(wr_id: u64, sges: &'a [Sge], remote: RemoteMemory) -> Self {
        Self::new(WrOpcode::Write, wr_id, sges).to(remote)
    }

    /// An RDMA Read (RFC 5040 section 5.2) from the start of `remote`, as many bytes as the
    /// elements hold.
    pub fn read(wr_id: u64, sges: &'a [Sge], remote: RemoteMemory) -> Self {
        Self::new(WrOpcode::Read, wr_id, sges).to(remote)
    }

    /// Immediate Data (RFC 7306 section 6): eight bytes that the peer finds in the completion of a
    /// receive.
    pub fn immediate(wr_id: u64, data: u64) -> Self {
        let mut work = Self::new(WrOpcode::Immediate, wr_id, &[]);
        work.operands[0] = data;
        work
    }

    /// An RDMA Write and then Immediate Data: the peer learns from a receive's completion that the
    /// bytes are there (RFC 7306 section 6). One completion here for both.
    pub fn write_with_immediate(
        wr_id: u64,
        sges: &'a [Sge],
        remote: RemoteMemory,
        data: u64,
    ) -> Self {
        let mut work = Self::new(WrOpcode::WriteImmediate, wr_id, sges).to(remote);
        work.operands[0] = data;
        work
    }

    /// Adds to the 64 bits at the start of `remote`, as one step for all other atomics of the peer's
    /// RNIC (RFC 7306 section 5.1.1). Their address at the peer must be a multiple of 8, and `original`
    /// is 8 bytes, which take the value from before. Both are numbers in the order of their host.
    pub fn atomic_fetch_add(wr_id: u64, original: &'a Sge, remote: RemoteMemory, add: u64) -> Self {
        Self::masked_fetch_add(wr_id, original, remote, add, 0)
    }

    /// As [`Self::atomic_fetch_add`], in fields of any length: a bit of `mask` is the most significant
    /// one of its field, and no carry leaves it.
    pub fn masked_fetch_add(
        wr_id: u64,
        original: &'a Sge,
        remote: RemoteMemory,
        add: u64,
        mask: u64,
    ) -> Self {
        let operands = [add, mask, 0, 0];
        Self::atomic(WrOpcode::AtomicFetchAdd, wr_id, original, remote, operands)
    }

    /// Replaces the 64 bits at the start of `remote` by `swap` if they are `compare` (RFC 7306
    /// section 5.1.2). Otherwise as [`Self::atomic_fetch_add`].
    pub fn atomic_compare_swap(
        wr_id: u64,
        original: &'a Sge,
        remote: RemoteMemory,
        compare: u64,
        swap: u64,
    ) -> Self {
        let (compare, swap) = ((compare, u64::MAX), (swap, u64::MAX));
        Self::masked_compare_swap(wr_id, original, remote, compare, swap)
    }

    /// As [`Self::atomic_compare_swap`], each value with a mask: only bits of the first one's are
    /// compared, and only bits of the second one's are replaced.
    pub fn masked_compare_swap(
        wr_id: u64,
        original: &'a Sge,
        remote: RemoteMemory,
        (compare, compare_mask): (u64, u64),
        (swap, swap_mask): (u64, u64),
    ) -> Self {
        let operands = [swap, swap_mask, compare, compare_mask];
        let opcode = WrOpcode::AtomicCompareSwap;
        Self::atomic(opcode, wr_id, original, remote, operands)
    }

    /// Replaces the 64 bits at the start of `remote`, whatever they are: a compare and swap that
    /// compares no bit, because RFC 7306 has no operation of its own for it.
    pub fn atomic_swap(wr_id: u64, original: &'a Sge, remote: RemoteMemory, swap: u64) -> Self {
        Self::masked_compare_swap(wr_id, original, remote, (0, 0), (swap, u64::MAX))
    }

    /// Ends the rights of an STag that this queue pair may use, a region's or that of a window of type
    /// 2B, when what was posted before is done. Work can make it valid again, under another key.
    pub fn local_invalidate(wr_id: u64, stag: u32) -> Self {
        let mut work = Self::new(WrOpcode::LocalInvalidate, wr_id, &[]);
        work.slot.rkey = stag;
        work
    }

    /// Makes `stag` valid for what `part` is of a region.
    pub(crate) fn bind(
        opcode: WrOpcode,
        wr_id: u64,
        stag: u32,
        part: RemoteMemory,
        access: Access,
    ) -> Self {
        let mut work = Self::new(opcode, wr_id, &[]);
        work.slot.rkey = stag;
        work.slot.remote_addr = part.addr;
        work.operands[0] = part.len;
        work.operands[1] = u64::from(access.bits()) << 32 | u64::from(part.stag);
        work
    }

    /// A receive: room for one Send of the peer's, or for its Immediate Data.
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
            bytes: Bytes::Elements(sges),
            operands: Operands::default(),
        }
    }

    fn atomic(
        opcode: WrOpcode,
        wr_id: u64,
        original: &'a Sge,
        remote: RemoteMemory,
        operands: Operands,
    ) -> Self {
        let mut work = Self::new(opcode, wr_id, std::slice::from_ref(original)).to(remote);
        work.operands = operands;
        work
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

    /// Sends and Immediate Data: raise the peer's solicited event (RFC 5040 section 4.3).
    pub fn solicited(mut self) -> Self {
        self.slot.flags |= WR_SOLICITED;
        self
    }

    /// Anything but a receive: begins only when the Reads and Atomic Operations that were posted before
    /// have brought what they bring. Without it a later Send or RDMA Write may overtake their answers.
    pub fn fenced(mut self) -> Self {
        self.slot.flags |= WR_FENCE;
        self
    }

    /// Fast registrations: only the queue pair that it is posted to, and its peer, may use the region,
    /// and not the whole protection domain.
    pub fn of_one_stream(mut self) -> Self {
        self.slot.flags |= WR_ONE_STREAM;
        self
    }

    /// Sends and RDMA Writes: carries these bytes itself, instead of elements. They need not be
    /// registered, and their memory may be used again as soon as the work is posted.
    pub fn inline(mut self, bytes: &'a [u8]) -> Self {
        self.bytes = Bytes::Inline(bytes);
        self
    }

    /// That a queue made for `max_sge` elements and `max_inline` bytes takes this work.
    fn check(&self, max_sge: usize, max_inline: usize) -> Result<(), Error> {
        match self.bytes {
            Bytes::Elements(sges) if sges.len() > max_sge => Err(Error::TooManySges {
                found: sges.len(),
                max: max_sge,
            }),
            Bytes::Elements([original]) if self.is_atomic() && original.length != 8 => {
                Err(Error::AtomicLength {
                    found: original.length,
                })
            }
            Bytes::Inline(_) if !self.may_be_inline() => Err(Error::NotInline),
            Bytes::Inline(bytes) if bytes.len() > max_inline => Err(Error::InlineTooLong {
                found: bytes.len(),
                max: max_inline,
            }),
            _ => Ok(()),
        }
    }

    /// Puts it on a queue.
    fn push(&self, queue: &mut WorkQueueProducer) -> Result<(), RingFull> {
        match self.bytes {
            Bytes::Elements(sges) => queue.push_parts(&self.slot, sges, &self.operands),
            Bytes::Inline(bytes) => queue.push_inline(&self.slot, bytes, &self.operands),
        }
    }

    /// Slots of a queue pair's ring that it takes.
    fn slots(&self) -> u32 {
        let places = match self.bytes {
            Bytes::Elements(sges) => sges.len(),
            Bytes::Inline(bytes) => sges_for_inline(bytes.len()),
        };
        let opcode = WrOpcode::from_u8(self.slot.opcode);
        slots_for(places + opcode.map_or(0, WrOpcode::operand_places))
    }

    fn may_be_inline(&self) -> bool {
        let carriers = [
            WrOpcode::Send,
            WrOpcode::SendInvalidate,
            WrOpcode::SendImmediate,
            WrOpcode::Write,
            WrOpcode::WriteImmediate,
        ];
        self.is_one_of(&carriers)
    }

    fn is_atomic(&self) -> bool {
        self.is_one_of(&[WrOpcode::AtomicFetchAdd, WrOpcode::AtomicCompareSwap])
    }

    fn is_one_of(&self, opcodes: &[WrOpcode]) -> bool {
        opcodes
            .iter()
            .any(|opcode| self.slot.opcode == *opcode as u8)
    }

    /// What the program numbered it.
    pub(crate) fn wr_id(&self) -> u64 {
        self.slot.wr_id
    }

    /// Under a number of this crate's own, and with a completion.
    pub(crate) fn tracked(mut self, number: u64) -> Self {
        self.slot.wr_id = number;
        self.slot.flags |= WR_SIGNALED | WR_TRACKED;
        self
    }

    /// Only a queue pair that is joined by number sends it.
    pub(crate) fn is_for_joined(&self) -> bool {
        self.slot.opcode == WrOpcode::SendImmediate as u8
    }

    pub(crate) fn is_recv(&self) -> bool {
        self.slot.opcode == WrOpcode::Recv as u8
    }
}

/// Puts as much of `work` as fits on a queue made for `max_sge` elements and `max_inline` bytes, in
/// order, and says how much. When the queue doesn't take one piece of it, nothing is put.
pub(crate) fn push_batch(
    queue: &mut WorkQueueProducer,
    work: &[WorkRequest<'_>],
    max_sge: usize,
    max_inline: usize,
) -> Result<usize, Error> {
    for work in work {
        work.check(max_sge, max_inline)?;
    }
    let put = work.iter().take_while(|work| work.push(queue).is_ok());
    Ok(put.count())
}

/// Puts all of `work` on the queue of a queue pair, or nothing.
pub(crate) fn push_all(
    queue: &mut WorkQueueProducer,
    work: &[WorkRequest<'_>],
    max_sge: usize,
    max_inline: usize,
) -> Result<usize, Error> {
    let needed: u64 = work.iter().map(|work| u64::from(work.slots())).sum();
    if u64::from(queue.free_slots()) < needed {
        return Err(Error::QueueFull);
    }
    push_batch(queue, work, max_sge, max_inline)
}

/// Nothing was posted: the queue is full.
pub(crate) fn full_if_none(posted: usize) -> Result<(), Error> {
    if posted == 0 {
        Err(Error::QueueFull)
    } else {
        Ok(())
    }
}
