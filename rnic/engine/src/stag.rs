//! The STag table: which memory a peer or a work request may touch (RFC 5040 section 8.1.1,
//! RFC 5041 sections 7.1 and 8.3).
//!
//! Every access is checked at the moment it happens and yields a [`Source`] or a [`Sink`], the only
//! things that can copy. Both borrow the table, so none outlives a revocation, and no check is kept
//! from one segment to the next.

use std::sync::atomic::{AtomicU64, Ordering};

use rnic_ipc::control::Access;
use rnic_ipc::id::PdId;
use rnic_ipc::work::Sge;
use rnic_proto::rdmap::atomic::{AtomicOperation, OPERAND_LEN};
use rnic_proto::{Stag, TaggedOffset};

use crate::idmap::IdMap;
use crate::region::{OutOfRegion, RegionMemory};

#[cfg(test)]
mod tests;

/// How often an Atomic Operation is tried against a program that writes the same word.
const ATTEMPTS: u32 = 64;

/// All the STags of a shard.
#[derive(Debug)]
pub struct StagTable {
    entries: IdMap<u32, Entry>,
    /// Streams of each protection domain.
    streams: IdMap<u32, u32>,
    capacity: usize,
}

#[derive(Debug)]
struct Entry {
    pd: PdId,
    access: Access,
    base: TaggedOffset,
    memory: RegionMemory,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Valid,
    /// A peer's Send with Invalidate took the rights away; the region still has to be removed.
    Invalidated,
}

/// Why an access was refused, in the order of the checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StagError {
    /// No such STag, or it was invalidated.
    #[error("{stag} is not a valid STag")]
    Invalid {
        /// The STag.
        stag: Stag,
    },
    /// The STag is of another protection domain.
    #[error("{stag} is not associated with the stream's protection domain")]
    NotAssociated {
        /// The STag.
        stag: Stag,
    },
    /// The region does not give this right.
    #[error("{stag} does not allow this access")]
    AccessRights {
        /// The STag.
        stag: Stag,
    },
    /// The tagged offset plus the length leaves the 64-bit space.
    #[error("{len} octets at {to} wrap around the tagged offsets of {stag}")]
    Wrap {
        /// The STag.
        stag: Stag,
        /// The first octet.
        to: TaggedOffset,
        /// Octets.
        len: u32,
    },
    /// Before the region's first octet or after its last.
    #[error("{len} octets at {to} are not within the bounds of {stag}")]
    Bounds {
        /// The STag.
        stag: Stag,
        /// The first octet.
        to: TaggedOffset,
        /// Octets.
        len: u32,
    },
    /// The memory of an Atomic Operation is not aligned to 64 bits.
    #[error("the memory at {to} of {stag} is not aligned to 64 bits")]
    Misaligned {
        /// The STag.
        stag: Stag,
        /// The first octet.
        to: TaggedOffset,
    },
}

/// Why an STag could not be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddRegionError {
    /// The table is full.
    #[error("the STag table holds {capacity} STags, and all are in use")]
    Full {
        /// Its size.
        capacity: usize,
    },
    /// The STag is in the table already.
    #[error("{stag} is in use")]
    InUse {
        /// The STag.
        stag: Stag,
    },
    /// The region's last octet would have no tagged offset.
    #[error("a region of {len} octets at {base} wraps around the tagged offsets")]
    Wrap {
        /// Its first octet.
        base: TaggedOffset,
        /// Its length.
        len: u64,
    },
}

/// Leave to read a range of one region, until the table is touched again.
#[derive(Debug)]
pub struct Source<'a>(Range<'a>);

/// Leave to write a range of one region, until the table is touched again.
#[derive(Debug)]
pub struct Sink<'a>(Range<'a>);

/// Leave to do one Atomic Operation on a word of one region, until the table is touched again.
#[derive(Debug)]
pub struct Target<'a>(&'a AtomicU64);

#[derive(Debug)]
struct Range<'a> {
    memory: &'a RegionMemory,
    /// Offset of the range in the region.
    start: u64,
    len: u64,
}

impl StagTable {
    /// An empty table for `capacity` STags.
    pub fn new(capacity: usize) -> Self {
        let mut entries = IdMap::default();
        entries.reserve(capacity);
        Self {
            entries,
            streams: IdMap::default(),
            capacity,
        }
    }

    /// Makes an STag valid.
    pub fn add(
        &mut self,
        stag: Stag,
        pd: PdId,
        access: Access,
        base: TaggedOffset,
        memory: RegionMemory,
    ) -> Result<(), AddRegionError> {
        if self.entries.contains_key(&stag.0) {
            return Err(AddRegionError::InUse { stag });
        }
        if self.entries.len() >= self.capacity {
            return Err(AddRegionError::Full {
                capacity: self.capacity,
            });
        }
        let len = memory.len();
        if base.checked_add(len).is_none() {
            return Err(AddRegionError::Wrap { base, len });
        }
        self.entries.insert(
            stag.0,
            Entry {
                pd,
                access,
                base,
                memory,
                state: State::Valid,
            },
        );
        Ok(())
    }

    /// Revokes an STag. When this returns no octet of its memory is touched any more. False when
    /// there is none.
    pub fn remove(&mut self, stag: Stag) -> bool {
        self.entries.remove(&stag.0).is_some()
    }

    /// STags in the table.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Are there none?
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// A queue pair of this protection domain was made.
    pub fn stream_added(&mut self, pd: PdId) {
        let streams = self.streams.entry(pd.0).or_insert(0);
        *streams = streams.saturating_add(1);
    }

    /// A queue pair of this protection domain is gone.
    pub fn stream_removed(&mut self, pd: PdId) {
        if let Some(streams) = self.streams.get_mut(&pd.0) {
            *streams = streams.saturating_sub(1);
            if *streams == 0 {
                self.streams.remove(&pd.0);
            }
        }
    }

    /// Checks a peer's RDMA Read of `len` octets at `to`. Zero octets are no access and not to be
    /// asked for (RFC 5040 section 5.2.1).
    pub fn remote_read(
        &self,
        stag: Stag,
        to: TaggedOffset,
        len: u32,
        pd: PdId,
    ) -> Result<Source<'_>, StagError> {
        let entry = self.valid(stag, pd)?;
        entry
            .range(stag, to, len, entry.access.remote_read)
            .map(Source)
    }

    /// Checks a peer's RDMA Write of `len` octets to `to`. Zero octets are no access and not to be
    /// asked for (RFC 5041 section 7.1).
    pub fn remote_write(
        &self,
        stag: Stag,
        to: TaggedOffset,
        len: u32,
        pd: PdId,
    ) -> Result<Sink<'_>, StagError> {
        let entry = self.valid(stag, pd)?;
        entry
            .range(stag, to, len, entry.access.remote_write)
            .map(Sink)
    }

    /// Checks a peer's Atomic Operation at `to` (RFC 7306 section 8.2). What has to be aligned is the
    /// memory there; the tagged offset may be any.
    pub fn remote_atomic(
        &self,
        stag: Stag,
        to: TaggedOffset,
        pd: PdId,
    ) -> Result<Target<'_>, StagError> {
        let entry = self.valid(stag, pd)?;
        let range = entry.range(stag, to, OPERAND_LEN, entry.access.remote_atomic)?;
        let word = range.memory.word(range.start);
        word.map(Target).ok_or(StagError::Misaligned { stag, to })
    }

    /// Checks the octets that a Send or an RDMA Write takes. Every region allows it.
    pub fn local_read(&self, sge: &Sge, pd: PdId) -> Result<Source<'_>, StagError> {
        let stag = Stag(sge.lkey);
        let entry = self.valid(stag, pd)?;
        entry
            .range(stag, TaggedOffset(sge.addr), sge.length, true)
            .map(Source)
    }

    /// Checks where a Send or an RDMA Read Response is placed.
    pub fn local_write(&self, sge: &Sge, pd: PdId) -> Result<Sink<'_>, StagError> {
        let stag = Stag(sge.lkey);
        let entry = self.valid(stag, pd)?;
        let allowed = entry.access.local_write;
        entry
            .range(stag, TaggedOffset(sge.addr), sge.length, allowed)
            .map(Sink)
    }

    /// Takes a peer's rights away on its own request (RFC 5040 section 5.3). An STag that more
    /// than one stream can use is not a peer's to invalidate (RFC 5040 section 8.1.1, 7).
    pub fn invalidate(&mut self, stag: Stag, pd: PdId) -> Result<(), StagError> {
        self.valid(stag, pd)?;
        if self.streams.get(&pd.0) != Some(&1) {
            return Err(StagError::NotAssociated { stag });
        }
        if let Some(entry) = self.entries.get_mut(&stag.0) {
            entry.state = State::Invalidated;
        }
        Ok(())
    }

    fn valid(&self, stag: Stag, pd: PdId) -> Result<&Entry, StagError> {
        let entry = self
            .entries
            .get(&stag.0)
            .ok_or(StagError::Invalid { stag })?;
        // Another domain's STag says nothing about itself, not even that it was invalidated.
        if entry.pd != pd {
            return Err(StagError::NotAssociated { stag });
        }
        if entry.state != State::Valid {
            return Err(StagError::Invalid { stag });
        }
        Ok(entry)
    }
}

impl Entry {
    fn range(
        &self,
        stag: Stag,
        to: TaggedOffset,
        len: u32,
        allowed: bool,
    ) -> Result<Range<'_>, StagError> {
        if !allowed {
            return Err(StagError::AccessRights { stag });
        }
        if to.checked_add(u64::from(len)).is_none() {
            return Err(StagError::Wrap { stag, to, len });
        }
        let bounds = StagError::Bounds { stag, to, len };
        let start = to.0.checked_sub(self.base.0).ok_or(bounds)?;
        let room = self.memory.len().checked_sub(start).ok_or(bounds)?;
        if u64::from(len) > room {
            return Err(bounds);
        }
        Ok(Range {
            memory: &self.memory,
            start,
            len: u64::from(len),
        })
    }
}

impl Source<'_> {
    /// Takes octets from `at` octets into the range.
    pub fn read(&self, at: u64, out: &mut [u8]) -> Result<(), OutOfRegion> {
        self.0.memory.read(self.0.within(at, out.len())?, out)
    }
}

impl Sink<'_> {
    /// Places `octets` at `at` octets into the range.
    pub fn write(&self, at: u64, octets: &[u8]) -> Result<(), OutOfRegion> {
        self.0
            .memory
            .write(self.0.within(at, octets.len())?, octets)
    }
}

impl Target<'_> {
    /// Does the operation on the value in host order, and gives what it was before.
    ///
    /// It is one step for every other Atomic Operation of the RNIC (RFC 7306 section 5.3), and for
    /// programs of this host that use the processor's atomics; those who write the word without end
    /// can't hold the shard here, but then their writes may be lost.
    pub fn apply(&self, operation: AtomicOperation) -> u64 {
        let mut found = self.0.load(Ordering::Acquire);
        for _ in 0..ATTEMPTS {
            let wanted = operation.apply(found);
            match self
                .0
                .compare_exchange_weak(found, wanted, Ordering::AcqRel, Ordering::Acquire)
            {
                Ok(original) => return original,
                Err(other) => found = other,
            }
        }
        self.0.store(operation.apply(found), Ordering::Release);
        found
    }
}

impl Range<'_> {
    /// The offset in the region of `len` octets at `at` in the range.
    fn within(&self, at: u64, len: usize) -> Result<u64, OutOfRegion> {
        let outside = OutOfRegion {
            offset: at,
            len,
            region: self.len,
        };
        let end = at.checked_add(len as u64).ok_or(outside)?;
        if end > self.len {
            return Err(outside);
        }
        self.start.checked_add(at).ok_or(outside)
    }
}
