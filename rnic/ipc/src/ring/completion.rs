//! Completion queues: the engine produces, the client consumes.
//!
//! A queue has a ring for each shard of the RNIC, all in one memory, and one flag word: that of the first ring.
//!
//! The flag word is `armed`: 0 no wake-up wanted, 1 for the next solicited completion, 2 for the
//! next of any kind. No wake-up is lost: the consumer arms, fences, and polls once more; the
//! producer publishes, fences, and looks at `armed`. With both fences `SeqCst` at least one of them
//! sees the other's write: either the poll finds the completion or the producer finds it armed.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::raw::{self, RawRing, RingError, RingFault, SharedWord};
use crate::shm::SharedMemory;
use crate::sync::{AtomicU32, Ordering, fence};
use crate::work::Completion;

const WORDS: usize = size_of::<Completion>() / size_of::<u64>();

/// Entries of a cache line.
const PER_LINE: u32 = (64 / size_of::<Completion>()) as u32;

const ARMED_SOLICITED: u32 = 1;
const ARMED_ANY: u32 = 2;

/// The engine's end.
#[derive(Debug)]
pub struct CqProducer {
    ring: RawRing<WORDS>,
    /// That of all rings of the queue.
    armed: SharedWord,
    /// The queue has rings of other shards too.
    has_siblings: bool,
    own: u32,
    /// Entries known to be free; the shared index is looked at only when none is left.
    free: u32,
}

/// Why a completion could not be put.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CqPushError {
    /// The client has more work outstanding than its CQ has entries.
    #[error("the completion queue overflowed: it has {depth} entries, none of them free")]
    Overflow {
        /// Entries of the CQ.
        depth: u32,
    },
    /// The client broke the ring's rules.
    #[error(transparent)]
    Fault(#[from] RingFault),
}

/// A completion queue's memory: how it is made and taken up.
#[derive(Debug)]
pub struct CqMemory;

impl CqMemory {
    /// Bytes of memory that so many rings of `depth` entries (a power of two) need.
    pub fn size(depth: u32, rings: usize) -> Result<usize, RingError> {
        Ok(raw::stride(depth, size_of::<Completion>())? * rings)
    }

    /// Makes rings of `depth` entries in new shared memory: the engine's ends, one for each shard, and the
    /// descriptor for the client.
    pub fn create(depth: u32, rings: usize) -> Result<(Vec<CqProducer>, OwnedFd), RingError> {
        let (memory, fd) = SharedMemory::create_ring("rnic-cq", Self::size(depth, rings)?)?;
        Ok((Self::create_in(&Arc::new(memory), depth, rings)?, fd))
    }

    /// Makes rings from the start of `memory` on.
    pub fn create_in(
        memory: &Arc<SharedMemory>,
        depth: u32,
        rings: usize,
    ) -> Result<Vec<CqProducer>, RingError> {
        let has_siblings = rings > 1;
        let rings = Self::rings(depth, rings, |offset| {
            RawRing::create(memory.clone(), offset, depth)
        })?;
        let producer = |(ring, armed)| CqProducer {
            ring,
            armed,
            has_siblings,
            own: 0,
            free: depth,
        };
        Ok(rings.map(producer).collect())
    }

    /// Takes up the rings of a queue from the descriptor that came with it; `depth` as in the reply.
    pub fn attach_fd(fd: OwnedFd, depth: u32, rings: usize) -> Result<Vec<CqConsumer>, RingError> {
        let size = Self::size(depth, rings)? as u64;
        Self::attach(&Arc::new(SharedMemory::map(fd, 0, size)?), depth, rings)
    }

    /// Takes up rings from the start of `memory` on.
    pub fn attach(
        memory: &Arc<SharedMemory>,
        depth: u32,
        rings: usize,
    ) -> Result<Vec<CqConsumer>, RingError> {
        let rings = Self::rings(depth, rings, |offset| {
            RawRing::attach(memory.clone(), offset, depth)
        })?;
        let consumer = |(ring, armed)| CqConsumer {
            ring,
            armed,
            own: Own::default(),
        };
        Ok(rings.map(consumer).collect())
    }

    /// Each ring that `take_up` gives of an offset, with the flag word of the first.
    fn rings(
        depth: u32,
        rings: usize,
        mut take_up: impl FnMut(usize) -> Result<RawRing<WORDS>, RingError>,
    ) -> Result<impl Iterator<Item = (RawRing<WORDS>, SharedWord)>, RingError> {
        let stride = raw::stride(depth, size_of::<Completion>())?;
        let rings: Result<Vec<_>, _> = (0..rings).map(|ring| take_up(ring * stride)).collect();
        let rings = rings?;
        let armed = rings.first().map(RawRing::flag_word);
        Ok(rings
            .into_iter()
            .filter_map(move |ring| Some((ring, armed.clone()?))))
    }
}

impl CqProducer {
    /// Whether an access to its memory has faulted
    /// ([`SharedMemory::is_broken`](crate::shm::SharedMemory::is_broken)): what it says means nothing.
    pub fn is_broken(&self) -> bool {
        self.ring.is_broken()
    }

    /// Entries.
    pub fn depth(&self) -> u32 {
        self.ring.capacity()
    }

    /// Takes over from the ring of the same queue before: it is armed if that was. Says whether to look for the wish
    /// at once: another shard's ring may not have been replaced yet, and that shard looks for it in the old ones.
    pub fn follow(&mut self, before: &Self) -> bool {
        let armed = before.armed.get().swap(0, Ordering::AcqRel);
        // Another shard's ring may have brought a wish already, and the wider of two stays.
        self.armed.get().fetch_max(armed, Ordering::AcqRel);
        self.has_siblings
    }

    /// Puts a completion, visible to the client at once. Ask [`Self::take_armed`] afterwards.
    pub fn push(&mut self, completion: &Completion) -> Result<(), CqPushError> {
        if self.free == 0 {
            self.free = self.ring.free(self.own)?;
            if self.free == 0 {
                return Err(CqPushError::Overflow {
                    depth: self.depth(),
                });
            }
        }
        self.ring.store(self.own, &to_words(completion));
        self.own = self.own.wrapping_add(1);
        self.free -= 1;
        self.ring.producer().store(self.own, Ordering::Release);
        Ok(())
    }

    /// The address of an entry that will be written soon, in the cache line behind the next one's, for
    /// who fetches it ahead of that. Not to be read by any other way.
    pub fn memory_ahead(&self) -> *const u8 {
        let [_, _, entry] = self.ring.memory_ahead(self.own.wrapping_add(PER_LINE));
        entry
    }

    /// Whether the client wants to be woken for what was pushed since the last call; if so, it is
    /// disarmed. `solicited`: one of these completions is a solicited one or an error.
    pub fn take_armed(&mut self, solicited: bool) -> bool {
        // The pushes before this come before the load below, for all threads (module head).
        fence(Ordering::SeqCst);
        let armed = self.armed.get();
        let wanted = match armed.load(Ordering::Relaxed) {
            ARMED_ANY => true,
            ARMED_SOLICITED => solicited,
            _ => false,
        };
        wanted && armed.swap(0, Ordering::AcqRel) != 0
    }
}

/// The client's end.
#[derive(Debug)]
pub struct CqConsumer {
    ring: RawRing<WORDS>,
    /// That of all rings of the queue.
    armed: SharedWord,
    own: Own,
}

/// The client's index; only its [`CqConsumer`] writes it.
type Own = Arc<AtomicU32>;

impl CqConsumer {
    /// Entries.
    pub fn depth(&self) -> u32 {
        self.ring.capacity()
    }

    /// How many completions wait.
    pub fn available(&self) -> Result<u32, RingFault> {
        self.ring.filled(self.own.load(Ordering::Relaxed))
    }

    /// Moves completions into `out`, oldest first, and says how many.
    pub fn poll(&mut self, out: &mut [Completion]) -> Result<usize, RingFault> {
        let mut own = self.own.load(Ordering::Relaxed);
        let count = (self.ring.filled(own)? as usize).min(out.len());
        if count == 0 {
            return Ok(0);
        }
        for entry in &mut out[..count] {
            *entry = from_words(&self.ring.load(own));
            own = own.wrapping_add(1);
        }
        self.own.store(own, Ordering::Relaxed);
        self.ring.consumer().store(own, Ordering::Release);
        Ok(count)
    }

    /// A look at this CQ for those who don't have it in hand.
    pub fn look(&self) -> CqLook {
        CqLook {
            producer: self.ring.producer_word(),
            own: self.own.clone(),
        }
    }

    /// Asks to be woken once, by the next completion of any of the queue's rings or by the next solicited one.
    /// Poll all again before blocking: a completion that came before this makes no wake-up.
    pub fn arm(&mut self, solicited_only: bool) {
        let wanted = if solicited_only {
            ARMED_SOLICITED
        } else {
            ARMED_ANY
        };
        // The wider of two wishes stays.
        self.armed.get().fetch_max(wanted, Ordering::AcqRel);
        // The wish comes before the loads of the next poll, for all threads (module head).
        fence(Ordering::SeqCst);
    }
}

/// A look at a CQ from the client's end, by any thread and without its lock.
#[derive(Clone, Debug)]
pub struct CqLook {
    producer: SharedWord,
    own: Own,
}

impl CqLook {
    /// Whether no completion waits. An index that no honest engine could have counts as one that does:
    /// [`CqConsumer::poll`] tells.
    pub fn is_empty(&self) -> bool {
        self.producer.get().load(Ordering::Acquire) == self.own.load(Ordering::Relaxed)
    }
}

/// The words of an entry as they lie in memory.
fn to_words(c: &Completion) -> [u64; WORDS] {
    let [f0, f1] = c.flags.to_ne_bytes();
    let [i0, i1, i2, i3] = c.invalidated.to_ne_bytes();
    let [q0, q1, q2, q3] = c.qp.to_ne_bytes();
    let [l0, l1, l2, l3] = c.byte_len.to_ne_bytes();
    [
        c.wr_id,
        u64::from_ne_bytes([q0, q1, q2, q3, l0, l1, l2, l3]),
        u64::from_ne_bytes([c.status, c.opcode, f0, f1, i0, i1, i2, i3]),
        c.immediate,
    ]
}

fn from_words(words: &[u64; WORDS]) -> Completion {
    let [q0, q1, q2, q3, l0, l1, l2, l3] = words[1].to_ne_bytes();
    let [status, opcode, f0, f1, i0, i1, i2, i3] = words[2].to_ne_bytes();
    Completion {
        wr_id: words[0],
        qp: u32::from_ne_bytes([q0, q1, q2, q3]),
        byte_len: u32::from_ne_bytes([l0, l1, l2, l3]),
        status,
        opcode,
        flags: u16::from_ne_bytes([f0, f1]),
        invalidated: u32::from_ne_bytes([i0, i1, i2, i3]),
        immediate: words[3],
    }
}
