//! The words of a ring in shared memory, and nothing about what its entries mean.
//!
//! Layout from the ring's offset on, each line 64 bytes: header, producer index, consumer index,
//! flag word, then the entries. Rings of one memory lie one after the other, each from a line's start on. Indices count entries for ever, modulo 2^32; the slot is the index
//! masked. An entry is written before the producer index is released and read after it was
//! acquired. Entries are moved as relaxed 64-bit atomics, so that a racing writer gives nonsense
//! values, never undefined behaviour.
//!
//! Invariant for the `unsafe` here: the pointers in [`RawRing`] and [`SharedWord`] were computed from
//! checked, aligned offsets of `memory`, which is kept mapped by the `Arc` beside them.
#![allow(unsafe_code)]

use std::ptr::NonNull;
use std::sync::Arc;

use crate::control::PROTOCOL_VERSION;
use crate::shm::{OutOfBounds, SharedMemory, ShmError};
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// The most entries of a ring.
pub const RING_SLOTS_MAX: u32 = 1 << 18;

/// Bytes of a cache line; the two ends' words don't share one.
const LINE: usize = 64;
/// In the header, after its other words.
const SHARD: usize = size_of::<u32>() * HEADER_WORDS;
const PRODUCER: usize = LINE;
const CONSUMER: usize = 2 * LINE;
const FLAG: usize = 3 * LINE;
const ENTRIES: usize = 4 * LINE;
const WORD: usize = size_of::<u64>();

/// `RNIC` as a number: no ring without it.
const MAGIC: u32 = 0x524e_4943;

/// The header's words: magic, version, entry size in bytes, capacity in entries.
const HEADER_WORDS: usize = 4;

/// Bytes that a ring needs.
pub(super) fn size(capacity: u32, entry_size: usize) -> Result<usize, RingError> {
    check_capacity(capacity)?;
    Ok(ENTRIES + capacity as usize * entry_size)
}

/// Bytes from the beginning of a ring to that of the next one of the same kind in one memory.
pub(super) fn stride(capacity: u32, entry_size: usize) -> Result<usize, RingError> {
    Ok(size(capacity, entry_size)?.next_multiple_of(LINE))
}

/// The word in the header of a ring of a queue pair that says which shard has the queue pair.
pub(super) fn shard_word(
    memory: &Arc<SharedMemory>,
    ring_offset: usize,
) -> Result<SharedWord, RingError> {
    Ok(SharedWord {
        word: NonNull::from(memory.atomic_u32(ring_offset + SHARD)?),
        _memory: memory.clone(),
    })
}

fn check_capacity(capacity: u32) -> Result<(), RingError> {
    if capacity.is_power_of_two() && capacity <= RING_SLOTS_MAX {
        return Ok(());
    }
    Err(RingError::Capacity { capacity })
}

/// One end's view of a ring whose entries are `WORDS` 64-bit words.
#[derive(Debug)]
pub(super) struct RawRing<const WORDS: usize> {
    /// Keeps the pointers valid.
    memory: Arc<SharedMemory>,
    producer: NonNull<AtomicU32>,
    consumer: NonNull<AtomicU32>,
    flag: NonNull<AtomicU32>,
    entries: NonNull<AtomicU64>,
    capacity: u32,
}

// SAFETY: the pointers are into memory that the `Arc` keeps mapped and that is `Sync` itself; all
// access through them is atomic.
unsafe impl<const WORDS: usize> Send for RawRing<WORDS> {}

impl<const WORDS: usize> RawRing<WORDS> {
    /// Makes a new, empty ring at `offset`: writes its header and zeroes its words.
    pub(super) fn create(
        memory: Arc<SharedMemory>,
        offset: usize,
        capacity: u32,
    ) -> Result<Self, RingError> {
        let ring = Self::place(memory, offset, capacity)?;
        for word in [ring.producer(), ring.consumer(), ring.flag()] {
            word.store(0, Ordering::Relaxed);
        }
        let header = [MAGIC, PROTOCOL_VERSION, (WORDS * WORD) as u32, capacity];
        for (index, value) in header.into_iter().enumerate() {
            ring.memory
                .atomic_u32(offset + 4 * index)?
                .store(value, Ordering::Release);
        }
        if ring.memory.is_broken() {
            return Err(ShmError::NoPages.into());
        }
        Ok(ring)
    }

    /// Whether an access to it has faulted.
    pub(super) fn is_broken(&self) -> bool {
        self.memory.is_broken()
    }

    /// Takes up a ring that the other side made at `offset`; it must have `capacity` entries.
    pub(super) fn attach(
        memory: Arc<SharedMemory>,
        offset: usize,
        capacity: u32,
    ) -> Result<Self, RingError> {
        let mut header = [0; HEADER_WORDS];
        for (index, value) in header.iter_mut().enumerate() {
            let at = offset
                .checked_add(4 * index)
                .ok_or(RingError::Capacity { capacity })?;
            *value = memory.atomic_u32(at)?.load(Ordering::Acquire);
        }
        let wanted = [
            ("magic", MAGIC),
            ("version", PROTOCOL_VERSION),
            ("entry size", (WORDS * WORD) as u32),
            ("capacity", capacity),
        ];
        for (found, (field, wanted)) in header.into_iter().zip(wanted) {
            if found != wanted {
                return Err(RingError::Header {
                    field,
                    found,
                    wanted,
                });
            }
        }
        Self::place(memory, offset, capacity)
    }

    fn place(memory: Arc<SharedMemory>, offset: usize, capacity: u32) -> Result<Self, RingError> {
        let size = size(capacity, WORDS * WORD)?;
        let end = offset.saturating_add(size);
        if end > memory.len() || !offset.is_multiple_of(LINE) {
            return Err(OutOfBounds {
                offset,
                len: size,
                memory: memory.len(),
            }
            .into());
        }
        let entries = memory.words_from(offset + ENTRIES)?;
        Ok(Self {
            producer: NonNull::from(memory.atomic_u32(offset + PRODUCER)?),
            consumer: NonNull::from(memory.atomic_u32(offset + CONSUMER)?),
            flag: NonNull::from(memory.atomic_u32(offset + FLAG)?),
            entries,
            capacity,
            memory,
        })
    }

    /// Entries.
    pub(super) fn capacity(&self) -> u32 {
        self.capacity
    }

    /// The shared copy of the producer's index.
    #[inline]
    pub(super) fn producer(&self) -> &AtomicU32 {
        // SAFETY: the module's invariant.
        unsafe { self.producer.as_ref() }
    }

    /// The shared copy of the consumer's index.
    #[inline]
    pub(super) fn consumer(&self) -> &AtomicU32 {
        // SAFETY: the module's invariant.
        unsafe { self.consumer.as_ref() }
    }

    /// The flag word: what it means is the ring's business (armed, sleeping, pending).
    pub(super) fn flag(&self) -> &AtomicU32 {
        // SAFETY: the module's invariant.
        unsafe { self.flag.as_ref() }
    }

    /// The flag word on its own, for others than this end's owner.
    pub(super) fn flag_word(&self) -> SharedWord {
        self.shared(self.flag)
    }

    /// The shared copy of the producer's index, in the same way.
    pub(super) fn producer_word(&self) -> SharedWord {
        self.shared(self.producer)
    }

    fn shared(&self, word: NonNull<AtomicU32>) -> SharedWord {
        SharedWord {
            _memory: self.memory.clone(),
            word,
        }
    }

    /// Copies the entry of `index` out.
    #[inline]
    pub(super) fn load(&self, index: u32) -> [u64; WORDS] {
        std::array::from_fn(|word| self.word(index, word).load(Ordering::Relaxed))
    }

    /// One word of the entry of `index`.
    pub(super) fn load_word(&self, index: u32, word: usize) -> u64 {
        self.word(index, word).load(Ordering::Relaxed)
    }

    /// Copies an entry in.
    pub(super) fn store(&self, index: u32, entry: &[u64; WORDS]) {
        for (word, value) in entry.iter().enumerate() {
            self.word(index, word).store(*value, Ordering::Relaxed);
        }
    }

    #[inline]
    fn word(&self, index: u32, word: usize) -> &AtomicU64 {
        debug_assert!(word < WORDS);
        let slot = (index & (self.capacity - 1)) as usize;
        // SAFETY: `slot < capacity` and `word < WORDS`; `place` checked that `capacity * WORDS`
        // words from `entries` on are in the memory, and that the first is aligned.
        unsafe { self.entries.add(slot * WORDS + word).as_ref() }
    }

    /// The addresses of its shared indices and of the entry of `index`.
    pub(super) fn memory_ahead(&self, index: u32) -> [*const u8; 3] {
        [
            self.producer.as_ptr().cast_const().cast(),
            self.consumer.as_ptr().cast_const().cast(),
            std::ptr::from_ref(self.word(index, 0)).cast(),
        ]
    }

    /// How many entries the consumer at `own` may take.
    #[inline]
    pub(super) fn filled(&self, own: u32) -> Result<u32, RingFault> {
        self.distance("producer", self.producer().load(Ordering::Acquire), own)
    }

    /// How many entries the producer at `own` may still put.
    pub(super) fn free(&self, own: u32) -> Result<u32, RingFault> {
        let consumer = self.consumer().load(Ordering::Acquire);
        self.distance("consumer", own, consumer)
            .map(|used| self.capacity - used)
    }

    /// `ahead - behind`, which no honest other side lets exceed the capacity.
    #[inline]
    fn distance(&self, who: &'static str, ahead: u32, behind: u32) -> Result<u32, RingFault> {
        let distance = ahead.wrapping_sub(behind);
        if distance > self.capacity {
            return Err(RingFault::Index {
                who,
                distance,
                capacity: self.capacity,
            });
        }
        Ok(distance)
    }
}

/// One word in shared memory, usable from any thread.
#[derive(Clone, Debug)]
pub(super) struct SharedWord {
    /// Keeps the pointer valid.
    _memory: Arc<SharedMemory>,
    word: NonNull<AtomicU32>,
}

// SAFETY: as for `RawRing`.
unsafe impl Send for SharedWord {}
// SAFETY: as for `RawRing`; `&self` gives only a reference to an atomic.
unsafe impl Sync for SharedWord {}

impl SharedWord {
    /// The word.
    pub(super) fn get(&self) -> &AtomicU32 {
        // SAFETY: the module's invariant.
        unsafe { self.word.as_ref() }
    }
}

/// Why a ring could not be made or taken up.
#[derive(Debug, thiserror::Error)]
pub enum RingError {
    /// Not a power of two, or too many.
    #[error(
        "a ring of {capacity} entries can't be made: a power of two up to {RING_SLOTS_MAX} is needed"
    )]
    Capacity {
        /// Entries asked for.
        capacity: u32,
    },
    /// The memory holds another kind of ring, or one of another version.
    #[error(
        "the ring's {field} is {found:#x} where {wanted:#x} is needed; are both ends of one version?"
    )]
    Header {
        /// The header's field.
        field: &'static str,
        /// Its value.
        found: u32,
        /// What it must be.
        wanted: u32,
    },
    /// The memory is too short for the ring.
    #[error("the ring does not fit its memory: {0}")]
    Bounds(#[from] OutOfBounds),
    /// The memory could not be made or mapped.
    #[error(transparent)]
    Memory(#[from] ShmError),
}

/// The other side of a ring broke its rules. The ring can't be used any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RingFault {
    /// An index that no honest other side could have.
    #[error("the {who} index is {distance} entries away in a ring of {capacity}")]
    Index {
        /// Whose index.
        who: &'static str,
        /// Distance found.
        distance: u32,
        /// Most that is possible.
        capacity: u32,
    },
    /// A work request with more elements than the layout can carry.
    #[error("a work request of {num_sge} elements, where {max} is the most")]
    TooManySges {
        /// Elements it claims.
        num_sge: u16,
        /// Most that is possible.
        max: usize,
    },
    /// A work request that takes more slots than each of a shared receive queue does.
    #[error("a work request of {needed} slots, where {most} is the most")]
    TooLong {
        /// Slots it needs.
        needed: u32,
        /// Most that is possible.
        most: u32,
    },
    /// A work request whose further slots were not produced with it.
    #[error("a work request of {needed} slots, of which only {found} were produced")]
    Incomplete {
        /// Slots it needs.
        needed: u32,
        /// Slots that are there.
        found: u32,
    },
}

/// The ring has no room for now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the ring is full")]
pub struct RingFull;
