//! The doorbell rings: one per client and shard, of queue pair numbers that have new work.
//!
//! The flag word is `sleeping`. The engine sets it, fences, looks at the ring once more and only
//! then blocks; the client pushes, fences, and looks at the flag. With both fences `SeqCst` at
//! least one of them sees the other's write: either the engine finds the doorbell and stays awake
//! or the client finds it sleeping and kicks it.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::raw::{self, RawRing, RingError, RingFault, RingFull};
use crate::id::QpNum;
use crate::shm::SharedMemory;
use crate::sync::{Ordering, fence};

/// The client's end.
#[derive(Debug)]
pub struct DoorbellProducer {
    ring: RawRing<1>,
    own: u32,
}

impl DoorbellProducer {
    /// Takes up rings from the descriptor that came with them; `entries` and their number as in the reply.
    pub fn attach_fd(fd: OwnedFd, entries: u32, rings: usize) -> Result<Vec<Self>, RingError> {
        let size = DoorbellConsumer::memory_size(entries, rings)? as u64;
        Self::attach(&Arc::new(SharedMemory::map(fd, 0, size)?), entries, rings)
    }

    /// Takes up rings from the start of `memory` on.
    pub fn attach(
        memory: &Arc<SharedMemory>,
        entries: u32,
        rings: usize,
    ) -> Result<Vec<Self>, RingError> {
        let stride = DoorbellConsumer::memory_size(entries, 1)?;
        let attach = |ring| {
            let ring = RawRing::attach(memory.clone(), ring * stride, entries)?;
            Ok(Self { ring, own: 0 })
        };
        (0..rings).map(attach).collect()
    }

    /// Rings for a queue pair. True: the engine sleeps (or is about to), so kick it; only one
    /// caller is told so per sleep.
    pub fn ring(&mut self, qp: QpNum) -> Result<bool, RingFull> {
        // A fault of the engine's index can't be told from a full ring by the client, nor need be:
        // an engine like that is lost either way.
        if self.ring.free(self.own).unwrap_or(0) == 0 {
            return Err(RingFull);
        }
        self.ring.store(self.own, &[u64::from(qp.0)]);
        self.own = self.own.wrapping_add(1);
        self.ring.producer().store(self.own, Ordering::Release);
        Ok(self.take_sleeping())
    }

    /// Whether the engine sleeps and no caller kicks it yet: then this one must.
    pub fn take_sleeping(&mut self) -> bool {
        // What was pushed before this comes before the load below, for all threads (module head).
        fence(Ordering::SeqCst);
        let sleeping = self.ring.flag();
        sleeping.load(Ordering::Relaxed) != 0 && sleeping.swap(0, Ordering::AcqRel) != 0
    }
}

/// The engine's end.
#[derive(Debug)]
pub struct DoorbellConsumer {
    ring: RawRing<1>,
    own: u32,
}

impl DoorbellConsumer {
    /// Bytes of memory that so many rings of `entries` (a power of two) need.
    pub fn memory_size(entries: u32, rings: usize) -> Result<usize, RingError> {
        Ok(raw::stride(entries, size_of::<u64>())? * rings)
    }

    /// Makes rings in new shared memory, one for each shard. With at least as many entries as the client may
    /// have queue pairs they don't fill, because each queue pair is in its shard's at most once. One that is moved
    /// may be in that of the shard before too: the client waits until that shard has looked.
    pub fn create(entries: u32, rings: usize) -> Result<(Vec<Self>, OwnedFd), RingError> {
        let size = Self::memory_size(entries, rings)?;
        let (memory, fd) = SharedMemory::create_ring("rnic-doorbell", size)?;
        Ok((Self::create_in(&Arc::new(memory), entries, rings)?, fd))
    }

    /// Makes rings from the start of `memory` on.
    pub fn create_in(
        memory: &Arc<SharedMemory>,
        entries: u32,
        rings: usize,
    ) -> Result<Vec<Self>, RingError> {
        let stride = Self::memory_size(entries, 1)?;
        let create = |ring| {
            let ring = RawRing::create(memory.clone(), ring * stride, entries)?;
            Ok(Self { ring, own: 0 })
        };
        (0..rings).map(create).collect()
    }

    /// Whether an access to its memory has faulted
    /// ([`SharedMemory::is_broken`](crate::shm::SharedMemory::is_broken)): what it says means nothing.
    pub fn is_broken(&self) -> bool {
        self.ring.is_broken()
    }

    /// The next queue pair that has work, as the client wrote it: any number at all. Clear the
    /// queue pair's pending flag before draining its queues.
    pub fn pop(&mut self) -> Result<Option<QpNum>, RingFault> {
        if self.ring.filled(self.own)? == 0 {
            return Ok(None);
        }
        let [word] = self.ring.load(self.own);
        self.own = self.own.wrapping_add(1);
        self.ring.consumer().store(self.own, Ordering::Release);
        // Numbers are 32 bits; what a client writes above them names no queue pair of anybody.
        Ok(Some(QpNum(u32::try_from(word).unwrap_or(u32::MAX))))
    }

    /// Takes up to `most` queue pairs that have work, behind what is in `into`; each as
    /// [`Self::pop`] gives it.
    pub fn take(&mut self, most: usize, into: &mut Vec<QpNum>) -> Result<(), RingFault> {
        for _ in 0..most {
            match self.pop()? {
                Some(qp) => into.push(qp),
                None => break,
            }
        }
        Ok(())
    }

    /// Whether a doorbell waits. A fault counts: `pop` will tell.
    pub fn is_empty(&self) -> bool {
        self.ring.filled(self.own) == Ok(0)
    }

    /// Says that the engine is about to block. False: a doorbell is there, don't block.
    pub fn prepare_sleep(&mut self) -> bool {
        self.ring.flag().store(1, Ordering::Relaxed);
        // The flag comes before the look at the ring, for all threads (module head).
        fence(Ordering::SeqCst);
        if self.is_empty() {
            return true;
        }
        self.wake_up();
        false
    }

    /// Says that the engine polls again: no kicks are needed.
    pub fn wake_up(&mut self) {
        self.ring.flag().store(0, Ordering::Relaxed);
    }
}
