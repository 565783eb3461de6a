//! The memory of work queues: how it is laid out, made by the engine and taken up by the client.

use std::num::NonZeroU32;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::producer::Bell;
use super::{WorkQueueConsumer, WorkQueueProducer, slots_for};
use crate::ring::raw::{self, RawRing, RingError, SharedWord};
use crate::shm::SharedMemory;
use crate::sync::Ordering;
use crate::work::{MAX_PLACES, MAX_SGE, SLOT_SIZE};

/// Where the two rings of a queue pair lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpLayout {
    /// Slots of the send queue.
    pub sq_slots: u32,
    /// Slots of the receive queue.
    pub rq_slots: u32,
    /// Bytes of the whole.
    pub size: usize,
    rq_offset: usize,
}

/// A queue pair's memory: how it is laid out, made and taken up.
#[derive(Debug)]
pub struct QpMemory;

/// Which shard has a queue pair: the word in its memory by which the client rings. Clones are the same one.
#[derive(Clone, Debug)]
pub struct QpShard(SharedWord);

impl QpShard {
    /// The queue pair is this shard's from now on. Written before that shard answers its doorbell for the first
    /// time. The client can write it too: nothing of the engine reads it.
    pub fn set(&self, shard: u8) {
        self.0.get().store(shard.into(), Ordering::Release);
    }

    /// The number of the shard, as it lies there.
    pub(super) fn get(&self) -> u32 {
        self.0.get().load(Ordering::Acquire)
    }
}

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

    /// Makes both queues of a queue pair that `shard` has, in new shared memory: the engine's ends (send queue, receive
    /// queue), the word of the shard, and the descriptor for the client.
    pub fn create(
        layout: &QpLayout,
        shard: u8,
    ) -> Result<(WorkQueueConsumer, WorkQueueConsumer, QpShard, OwnedFd), RingError> {
        let (memory, fd) = SharedMemory::create_ring("rnic-qp", layout.size)?;
        let memory = Arc::new(memory);
        let (sq, rq) = Self::create_in(memory.clone(), layout)?;
        let has_it = Self::shard(&memory)?;
        has_it.set(shard);
        Ok((sq, rq, has_it, fd))
    }

    /// The word of the shard of the queue pair at the start of `memory`.
    pub fn shard(memory: &Arc<SharedMemory>) -> Result<QpShard, RingError> {
        raw::shard_word(memory, 0).map(QpShard)
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
            WorkQueueConsumer::new(sq, pending.clone(), None),
            WorkQueueConsumer::new(rq, pending, None),
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
        let shard = Self::shard(&memory)?;
        let sq = RawRing::attach(memory.clone(), 0, layout.sq_slots)?;
        let rq = RawRing::attach(memory, layout.rq_offset, layout.rq_slots)?;
        let bell = Bell {
            pending: sq.flag_word(),
            shard,
        };
        Ok((
            WorkQueueProducer::new(sq, Some(bell.clone()), None),
            WorkQueueProducer::new(rq, Some(bell), None),
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
    /// Bytes of memory that a queue of so many slots (a power of two) needs.
    pub fn size(slots: u32) -> Result<usize, RingError> {
        raw::size(slots, SLOT_SIZE)
    }

    /// Makes a queue of receives with up to `max_sge` elements in new shared memory: the engine's
    /// end, and the descriptor for the client.
    pub fn create(slots: u32, max_sge: u32) -> Result<(WorkQueueConsumer, OwnedFd), RingError> {
        let (memory, fd) = SharedMemory::create_ring("rnic-srq", Self::size(slots)?)?;
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
        Ok(WorkQueueConsumer::new(ring, pending, fixed(max_sge)))
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
        Ok(WorkQueueProducer::new(ring, None, fixed(max_sge)))
    }
}

/// Slots that each receive with up to `max_sge` elements takes in a shared receive queue.
fn fixed(max_sge: u32) -> Option<NonZeroU32> {
    NonZeroU32::new(slots_for((max_sge as usize).min(MAX_SGE)))
}
