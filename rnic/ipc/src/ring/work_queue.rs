//! Work queues: the client produces, the engine consumes. Both of a queue pair lie in one memory.
//!
//! The flag word of the send queue's ring is the queue pair's `pending`: it has a doorbell in the
//! client's ring that the engine hasn't answered. No work is stranded: the client publishes its
//! work request and then swaps `pending` to 1, the engine swaps it to 0 and then drains. Both swaps
//! are read-modify-writes of one word, so they have an order. Client first: the engine's swap reads
//! the client's (or a later one) and, by acquire and release, the drain sees the work. Engine
//! first: the client reads 0 and rings.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::raw::{self, RawRing, RingError, RingFault, RingFull, SharedWord};
use super::work_request::WorkRequest;
use crate::shm::SharedMemory;
use crate::work::{
    INLINE_PER_SGE, MAX_PLACES, MAX_SGE, Operands, SGES_IN_FIRST_SLOT, SGES_IN_NEXT_SLOT,
    SLOT_SIZE, Sge, WR_INLINE, WorkSlot, WrOpcode, sges_for_inline,
};

const WORDS: usize = SLOT_SIZE / size_of::<u64>();
/// The word of a first slot that has the number of elements.
const COUNT_WORD: usize = 2;

/// Slots that a work request takes that has so many places of elements.
pub const fn slots_for(places: usize) -> u32 {
    1 + places
        .saturating_sub(SGES_IN_FIRST_SLOT)
        .div_ceil(SGES_IN_NEXT_SLOT) as u32
}

/// Where the two rings of a queue pair lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpLayout {
    /// Slots of the send queue.
    pub sq_slots: u32,
    /// Slots of the receive queue.
    pub rq_slots: u32,
    /// Octets of the whole.
    pub size: usize,
    rq_offset: usize,
}

/// A queue pair's memory: how it is laid out, made and taken up.
#[derive(Debug)]
pub struct QpMemory;

impl QpMemory {
    /// Slots (a power of two) for `depth` work requests of up to so many places of elements.
    pub fn slots(depth: u32, places: u32) -> Result<u32, RingError> {
        let each = slots_for((places as usize).min(MAX_PLACES));
        depth
            .max(1)
            .checked_mul(each)
            .and_then(u32::checked_next_power_of_two)
            .filter(|slots| *slots <= raw::RING_SLOTS_MAX)
            .ok_or(RingError::Capacity {
                capacity: depth.saturating_mul(each),
            })
    }

    /// The layout for queues of so many slots, each a power of two.
    pub fn layout(sq_slots: u32, rq_slots: u32) -> Result<QpLayout, RingError> {
        let rq_offset = raw::size(sq_slots, SLOT_SIZE)?;
        let size = rq_offset + raw::size(rq_slots, SLOT_SIZE)?;
        Ok(QpLayout {
            sq_slots,
            rq_slots,
            size,
            rq_offset,
        })
    }

    /// Makes both queues in new shared memory: the engine's ends (send queue, receive queue), and
    /// the descriptor for the client.
    pub fn create(
        layout: &QpLayout,
    ) -> Result<(WorkQueueConsumer, WorkQueueConsumer, OwnedFd), RingError> {
        let (memory, fd) = SharedMemory::create("rnic-qp", layout.size)?;
        let (sq, rq) = Self::create_in(Arc::new(memory), layout)?;
        Ok((sq, rq, fd))
    }

    /// Makes both queues at the start of `memory`: send queue, receive queue.
    pub fn create_in(
        memory: Arc<SharedMemory>,
        layout: &QpLayout,
    ) -> Result<(WorkQueueConsumer, WorkQueueConsumer), RingError> {
        let sq = RawRing::create(memory.clone(), 0, layout.sq_slots)?;
        let rq = RawRing::create(memory.clone(), layout.rq_offset, layout.rq_slots)?;
        let pending = sq.flag_word();
        Ok((
            WorkQueueConsumer::new(sq, pending.clone()),
            WorkQueueConsumer::new(rq, pending),
        ))
    }

    /// Takes up both queues from the descriptor that came with them: send queue, receive queue.
    pub fn attach_fd(
        fd: OwnedFd,
        layout: &QpLayout,
    ) -> Result<(WorkQueueProducer, WorkQueueProducer), RingError> {
        Self::attach(
            Arc::new(SharedMemory::map(fd, 0, layout.size as u64)?),
            layout,
        )
    }

    /// Takes up both queues at the start of `memory`: send queue, receive queue.
    pub fn attach(
        memory: Arc<SharedMemory>,
        layout: &QpLayout,
    ) -> Result<(WorkQueueProducer, WorkQueueProducer), RingError> {
        let sq = RawRing::attach(memory.clone(), 0, layout.sq_slots)?;
        let rq = RawRing::attach(memory.clone(), layout.rq_offset, layout.rq_slots)?;
        let pending = sq.flag_word();
        Ok((
            WorkQueueProducer::new(sq, pending.clone()),
            WorkQueueProducer::new(rq, pending),
        ))
    }
}

/// A shared receive queue's memory: how it is made and taken up.
///
/// Each of its work requests takes as many slots as the largest, so that the engine can tell how
/// many wait. Nobody rings a doorbell for it.
#[derive(Debug)]
pub struct SrqMemory;

impl SrqMemory {
    /// Octets of memory that a queue of so many slots (a power of two) needs.
    pub fn size(slots: u32) -> Result<usize, RingError> {
        raw::size(slots, SLOT_SIZE)
    }

    /// Makes a queue of receives with up to `max_sge` elements in new shared memory: the engine's
    /// end, and the descriptor for the client.
    pub fn create(slots: u32, max_sge: u32) -> Result<(WorkQueueConsumer, OwnedFd), RingError> {
        let (memory, fd) = SharedMemory::create("rnic-srq", Self::size(slots)?)?;
        Ok((Self::create_in(Arc::new(memory), slots, max_sge)?, fd))
    }

    /// Makes a queue at the start of `memory`.
    pub fn create_in(
        memory: Arc<SharedMemory>,
        slots: u32,
        max_sge: u32,
    ) -> Result<WorkQueueConsumer, RingError> {
        let ring = RawRing::create(memory, 0, slots)?;
        let pending = ring.flag_word();
        let stride = slots_for((max_sge as usize).min(MAX_SGE));
        Ok(WorkQueueConsumer {
            stride,
            ..WorkQueueConsumer::new(ring, pending)
        })
    }

    /// Takes up a queue from the descriptor that came with it.
    pub fn attach_fd(
        fd: OwnedFd,
        slots: u32,
        max_sge: u32,
    ) -> Result<WorkQueueProducer, RingError> {
        let size = Self::size(slots)? as u64;
        Self::attach(Arc::new(SharedMemory::map(fd, 0, size)?), slots, max_sge)
    }

    /// Takes up a queue at the start of `memory`.
    pub fn attach(
        memory: Arc<SharedMemory>,
        slots: u32,
        max_sge: u32,
    ) -> Result<WorkQueueProducer, RingError> {
        let ring = RawRing::attach(memory, 0, slots)?;
        let pending = ring.flag_word();
        let stride = slots_for((max_sge as usize).min(MAX_SGE));
        Ok(WorkQueueProducer {
            stride,
            ..WorkQueueProducer::new(ring, pending)
        })
    }
}

/// The client's end of a work queue.
#[derive(Debug)]
pub struct WorkQueueProducer {
    ring: RawRing<WORDS>,
    own: u32,
    /// The fewest slots that a work request takes.
    stride: u32,
    /// Slots known to be free; the shared index is looked at only when they don't suffice.
    free: u32,
    pending: SharedWord,
}

impl WorkQueueProducer {
    fn new(ring: RawRing<WORDS>, pending: SharedWord) -> Self {
        Self {
            free: ring.capacity(),
            ring,
            own: 0,
            stride: 1,
            pending,
        }
    }

    /// Slots in all.
    pub fn capacity(&self) -> u32 {
        self.ring.capacity()
    }

    /// Slots that the engine has taken or that were never used: room for new work.
    pub fn free_slots(&self) -> u32 {
        // A fault of the engine's index can't be told from a full ring by the client, nor need be:
        // an engine like that is lost either way.
        self.ring.free(self.own).unwrap_or(0)
    }

    /// Puts a work request, visible to the engine at once. Afterwards [`Self::set_pending`].
    pub fn push(&mut self, request: &WorkRequest) -> Result<(), RingFull> {
        let places = request.places();
        self.push_places(&request.slot, places.len(), |index| places[index])
    }

    /// As [`Self::push`], with the elements elsewhere; more than [`crate::work::MAX_SGE`] never fit.
    /// Of the operands those go that the opcode has.
    pub fn push_parts(
        &mut self,
        slot: &WorkSlot,
        sges: &[Sge],
        operands: &Operands,
    ) -> Result<(), RingFull> {
        self.push_with(slot, operands, sges.len(), |index| sges[index])
    }

    /// Puts a work request that carries its octets; more than [`crate::work::MAX_INLINE`] never
    /// fit. They are copied: their place may be used again at once.
    pub fn push_inline(
        &mut self,
        slot: &WorkSlot,
        octets: &[u8],
        operands: &Operands,
    ) -> Result<(), RingFull> {
        let slot = WorkSlot {
            flags: slot.flags | WR_INLINE,
            inline_len: u32::try_from(octets.len()).map_err(|_| RingFull)?,
            ..*slot
        };
        self.push_with(&slot, operands, sges_for_inline(octets.len()), |index| {
            let rest = &octets[index * INLINE_PER_SGE..];
            Sge::from_inline(&rest[..rest.len().min(INLINE_PER_SGE)])
        })
    }

    /// Puts a work request of `count` elements and the operands that its opcode has.
    fn push_with(
        &mut self,
        slot: &WorkSlot,
        operands: &Operands,
        count: usize,
        element: impl Fn(usize) -> Sge,
    ) -> Result<(), RingFull> {
        if count > MAX_SGE {
            return Err(RingFull);
        }
        let opcode = WrOpcode::from_u8(slot.opcode);
        let more = opcode.map_or(0, WrOpcode::operand_places);
        self.push_places(slot, count + more, |index| match index.checked_sub(count) {
            None => element(index),
            Some(pair) => Sge::from_words([operands[2 * pair], operands[2 * pair + 1]]),
        })
    }

    fn push_places(
        &mut self,
        slot: &WorkSlot,
        count: usize,
        element: impl Fn(usize) -> Sge,
    ) -> Result<(), RingFull> {
        let needed = slots_for(count).max(self.stride);
        if self.free < needed {
            self.free = self.free_slots();
        }
        if count > MAX_PLACES || self.free < needed {
            return Err(RingFull);
        }
        let in_first = count.min(SGES_IN_FIRST_SLOT);
        let mut words = slot_words(slot, count as u16);
        put_sges(&mut words[4..], (0..in_first).map(&element));
        self.ring.store(self.own, &words);
        for first in (in_first..count).step_by(SGES_IN_NEXT_SLOT) {
            let end = count.min(first + SGES_IN_NEXT_SLOT);
            let mut words = [0; WORDS];
            put_sges(&mut words, (first..end).map(&element));
            self.ring
                .store(self.own.wrapping_add(slots_for(first)), &words);
        }
        self.own = self.own.wrapping_add(needed);
        self.free -= needed;
        self.ring.producer().store(self.own, Ordering::Release);
        Ok(())
    }

    /// Marks the queue pair as having work. True: it was not marked, so ring its doorbell.
    pub fn set_pending(&self) -> bool {
        self.pending.get().swap(1, Ordering::AcqRel) == 0
    }
}

/// The engine's end of a work queue.
#[derive(Debug)]
pub struct WorkQueueConsumer {
    ring: RawRing<WORDS>,
    own: u32,
    /// The fewest slots that a work request takes, and where more than one also the most.
    stride: u32,
    /// Slots known to be filled; the shared index is looked at only when none is left.
    filled: u32,
    pending: SharedWord,
}

/// A place in a work queue, for [`WorkQueueConsumer::peek`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place(u32);

impl WorkQueueConsumer {
    fn new(ring: RawRing<WORDS>, pending: SharedWord) -> Self {
        Self {
            ring,
            own: 0,
            stride: 1,
            filled: 0,
            pending,
        }
    }

    /// Slots in all.
    pub fn capacity(&self) -> u32 {
        self.ring.capacity()
    }

    /// Whether a work request waits. A fault counts: `pop` will tell.
    pub fn is_empty(&self) -> bool {
        self.filled == 0 && self.ring.filled(self.own) == Ok(0)
    }

    /// How many work requests wait in a shared receive queue.
    pub fn waiting(&self) -> Result<u32, RingFault> {
        Ok(self.ring.filled(self.own)? / self.stride)
    }

    /// Takes the oldest work request, if there is one, and gives its slots back to the client at
    /// once: `into` is a checked copy, and how many requests may be outstanding is the engine's own
    /// account. The opcode and flags are as the client wrote them. No more is copied than the
    /// elements that the request has, and no more than `into` has room for.
    pub fn pop(&mut self, into: &mut WorkRequest) -> Result<bool, RingFault> {
        if self.filled == 0 {
            self.filled = self.ring.filled(self.own)?;
            if self.filled == 0 {
                return Ok(false);
            }
        }
        let needed = self.copy(self.own, self.filled, into)?;
        self.own = self.own.wrapping_add(needed);
        self.filled -= needed;
        self.ring.consumer().store(self.own, Ordering::Release);
        Ok(true)
    }

    /// Where the oldest work request waits, or will.
    pub fn front(&self) -> Place {
        Place(self.own)
    }

    /// Where the work request waits, or will, that was posted `count` behind the one at `place`; none
    /// when one between them is not there. It takes a look at each of those.
    pub fn behind(&self, place: Place, count: u32) -> Result<Option<Place>, RingFault> {
        let mut place = place;
        for _ in 0..count {
            let left = self.left(place)?;
            if left == 0 {
                return Ok(None);
            }
            let num_sge = num_sge(self.ring.load_word(place.0, COUNT_WORD));
            let needed = self.needed(num_sge, left)?;
            place = Place(place.0.wrapping_add(needed));
        }
        Ok(Some(place))
    }

    /// Copies the work request at `place` as [`Self::pop`] does, and leaves it where it is; false
    /// when none waits there. What `pop` gives later is another copy: the client can write it
    /// meanwhile.
    pub fn peek(&self, place: Place, into: &mut WorkRequest) -> Result<bool, RingFault> {
        let left = self.left(place)?;
        if left == 0 {
            return Ok(false);
        }
        self.copy(place.0, left, into)?;
        Ok(true)
    }

    /// Slots from `place` on that are filled; none when it is not among those that wait.
    fn left(&self, place: Place) -> Result<u32, RingFault> {
        let before = place.0.wrapping_sub(self.own);
        Ok(self.ring.filled(self.own)?.saturating_sub(before))
    }

    /// Slots that a work request takes of which `left` are there.
    fn needed(&self, num_sge: u16, left: u32) -> Result<u32, RingFault> {
        if usize::from(num_sge) > MAX_PLACES {
            let max = MAX_PLACES;
            return Err(RingFault::TooManySges { num_sge, max });
        }
        let needed = slots_for(num_sge.into()).max(self.stride);
        if self.stride > 1 && needed > self.stride {
            let most = self.stride;
            return Err(RingFault::TooLong { needed, most });
        }
        if needed > left {
            let found = left;
            return Err(RingFault::Incomplete { needed, found });
        }
        Ok(needed)
    }

    /// Copies the work request at `index`, where `left` slots are filled, and gives the slots that
    /// it takes.
    fn copy(&self, index: u32, left: u32, into: &mut WorkRequest) -> Result<u32, RingFault> {
        let words = self.ring.load(index);
        let slot = slot_from_words(&words);
        let needed = self.needed(slot.num_sge, left)?;
        let num_sge = usize::from(slot.num_sge);
        into.begin(slot);
        let in_first = num_sge.min(SGES_IN_FIRST_SLOT);
        into.put(0, &slot.sge[..in_first]);
        for first in (in_first..num_sge).step_by(SGES_IN_NEXT_SLOT) {
            let count = (num_sge - first).min(SGES_IN_NEXT_SLOT);
            let sges = sges_from_words(&self.ring.load(index.wrapping_add(slots_for(first))));
            into.put(first, &sges[..count]);
        }
        Ok(needed)
    }

    /// Answers the queue pair's doorbell: call it before draining both queues. Either queue's end
    /// will do.
    pub fn clear_pending(&self) {
        self.pending.get().swap(0, Ordering::AcqRel);
    }
}

/// The words of a first slot as they lie in memory, without elements.
fn slot_words(slot: &WorkSlot, num_sge: u16) -> [u64; WORDS] {
    let [r0, r1, r2, r3] = slot.rkey.to_ne_bytes();
    let [n0, n1] = num_sge.to_ne_bytes();
    let [l0, l1, l2, l3] = slot.inline_len.to_ne_bytes();
    let [z0, z1, z2, z3] = slot.reserved.to_ne_bytes();
    [
        slot.wr_id,
        slot.remote_addr,
        u64::from_ne_bytes([r0, r1, r2, r3, slot.opcode, slot.flags, n0, n1]),
        u64::from_ne_bytes([l0, l1, l2, l3, z0, z1, z2, z3]),
        0,
        0,
        0,
        0,
    ]
}

fn put_sges(words: &mut [u64], sges: impl Iterator<Item = Sge>) {
    for (pair, sge) in words.chunks_exact_mut(2).zip(sges) {
        pair.copy_from_slice(&sge.words());
    }
}

fn slot_from_words(words: &[u64; WORDS]) -> WorkSlot {
    let [r0, r1, r2, r3, opcode, flags, ..] = words[COUNT_WORD].to_ne_bytes();
    let [l0, l1, l2, l3, z0, z1, z2, z3] = words[3].to_ne_bytes();
    WorkSlot {
        wr_id: words[0],
        remote_addr: words[1],
        rkey: u32::from_ne_bytes([r0, r1, r2, r3]),
        opcode,
        flags,
        num_sge: num_sge(words[COUNT_WORD]),
        inline_len: u32::from_ne_bytes([l0, l1, l2, l3]),
        reserved: u32::from_ne_bytes([z0, z1, z2, z3]),
        sge: [
            Sge::from_words([words[4], words[5]]),
            Sge::from_words([words[6], words[7]]),
        ],
    }
}

fn num_sge(word: u64) -> u16 {
    let [.., n0, n1] = word.to_ne_bytes();
    u16::from_ne_bytes([n0, n1])
}

fn sges_from_words(words: &[u64; WORDS]) -> [Sge; SGES_IN_NEXT_SLOT] {
    std::array::from_fn(|index| Sge::from_words([words[2 * index], words[2 * index + 1]]))
}
