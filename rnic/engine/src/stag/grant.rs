//! What the [`StagTable`](super::StagTable) grants: permission to copy, until the table is used again.

use std::sync::atomic::{AtomicU64, Ordering};

use rnic_crc::{Checks, Words};
use rnic_proto::rdmap::atomic::AtomicOperation;
use rnic_proto::{Bytes, Stag, TaggedOffset};

use super::StagError;
use crate::region::{MappedSlice, RegionError, RegionMemory};

/// How often an Atomic Operation is tried in a row against programs that write the same word.
const ATTEMPTS: u32 = 64;

/// Permission to read a range of one region, until the table is used again.
#[derive(Debug)]
pub struct ReadGrant<'a>(pub(super) Range<'a>);

/// Permission to write a range of one region, until the table is used again.
#[derive(Debug)]
pub struct WriteGrant<'a>(pub(super) Range<'a>);

/// Permission to write by one STag for a peer's RDMA Writes, until the table is used again. The offset of
/// each Write is still to be checked.
#[derive(Debug)]
pub(crate) struct WriteStag<'a> {
    reach: StagRange<'a>,
    bytes: MappedSlice<'a>,
}

/// Permission for one Atomic Operation on a word of one region, until the table is used again.
#[derive(Debug)]
pub struct Target<'a> {
    pub(super) word: &'a AtomicU64,
    pub(super) memory: &'a RegionMemory,
}

/// What an STag gives access to, for one who was found to have the right.
#[derive(Debug)]
pub(super) struct StagRange<'a> {
    pub(super) stag: Stag,
    pub(super) base: TaggedOffset,
    pub(super) len: u64,
    /// The region, and the offset in its memory of the STag's first byte; none when what the STag was
    /// bound to is gone.
    pub(super) memory: Option<(&'a RegionMemory, u64)>,
}

/// Bytes of one region.
#[derive(Debug)]
pub(super) struct Range<'a> {
    pub(super) memory: &'a RegionMemory,
    /// Offset of the range in the region.
    pub(super) start: u64,
    len: u64,
}

impl<'a> StagRange<'a> {
    /// How far from its first byte `to` is, if all bytes from there on are within reach.
    #[inline]
    fn offset(&self, to: TaggedOffset, len: u32) -> Result<u64, StagError> {
        let stag = self.stag;
        if to.checked_add(u64::from(len)).is_none() {
            return Err(StagError::Wrap { stag, to, len });
        }
        let bounds = StagError::Bounds { stag, to, len };
        let at = to.0.checked_sub(self.base.0).ok_or(bounds)?;
        let room = self.len.checked_sub(at).ok_or(bounds)?;
        if u64::from(len) > room {
            return Err(bounds);
        }
        Ok(at)
    }

    /// The bytes from `to` on, if all of them are within reach.
    #[inline]
    pub(super) fn range(&self, to: TaggedOffset, len: u32) -> Result<Range<'a>, StagError> {
        let at = self.offset(to, len)?;
        let (memory, start) = self.memory()?;
        Ok(Range {
            memory,
            // Both are within the memory.
            start: start.saturating_add(at),
            len: u64::from(len),
        })
    }

    #[inline]
    fn memory(&self) -> Result<(&'a RegionMemory, u64), StagError> {
        self.memory.ok_or(StagError::Invalid { stag: self.stag })
    }
}

impl<'a> WriteStag<'a> {
    #[inline]
    pub(super) fn new(reach: StagRange<'a>) -> Result<Self, StagError> {
        let (memory, start) = reach.memory()?;
        // More than an address space has nothing reaches.
        let len = usize::try_from(reach.len).unwrap_or(usize::MAX);
        let bytes = memory.slice(start, len);
        let bytes = bytes.map_err(|_| StagError::Invalid { stag: reach.stag })?;
        Ok(Self { reach, bytes })
    }

    #[inline]
    pub fn stag(&self) -> Stag {
        self.reach.stag
    }

    /// Checks a Write of `len` bytes to `to`, as [`super::StagTable::remote_write`] does: at which byte it begins.
    #[inline]
    pub fn offset(&self, to: TaggedOffset, len: u32) -> Result<u64, StagError> {
        self.reach.offset(to, len)
    }

    /// Places bytes that may lie in pieces at one that was checked.
    #[inline]
    pub fn write_bytes<'b>(&self, at: u64, bytes: &impl Bytes<'b>) -> Result<(), RegionError> {
        // It is within a slice, and so within an address space.
        self.bytes.write_bytes(at as usize, bytes)
    }
}

impl ReadGrant<'_> {
    /// Takes bytes from `at` bytes into the range.
    pub fn read(&self, at: u64, out: &mut [u8]) -> Result<(), RegionError> {
        self.0.memory.read(self.0.within(at, out.len())?, out)
    }

    /// As [`Self::read`], with `words` among what was taken and the checks of all; `crc` is the CRC of
    /// what is before.
    pub fn read_checked(
        &self,
        at: u64,
        crc: Option<u32>,
        out: &mut [u8],
        words: Words,
    ) -> Result<Checks, RegionError> {
        let at = self.0.within(at, words.bytes_of(out.len()))?;
        self.0.memory.read_checked(at, crc, out, words)
    }
}

impl<'a> ReadGrant<'a> {
    /// All bytes of it, to be read piece by piece.
    #[inline]
    pub(crate) fn mapped(&self) -> Result<MappedSlice<'a>, RegionError> {
        // No more than a message has.
        let len = self.0.len as usize;
        self.0.memory.slice(self.0.start, len)
    }
}

impl WriteGrant<'_> {
    /// Places `bytes` at `at` bytes into the range.
    pub fn write(&self, at: u64, bytes: &[u8]) -> Result<(), RegionError> {
        self.0.memory.write(self.0.within(at, bytes.len())?, bytes)
    }

    /// Places bytes that may lie in pieces at the front of the range.
    #[inline]
    pub fn write_bytes<'a>(&self, bytes: &impl Bytes<'a>) -> Result<(), RegionError> {
        let at = self.0.within(0, bytes.len())?;
        self.0.memory.write_bytes(at, bytes)
    }
}

impl Target<'_> {
    /// Does the operation on the value in host order, and gives what it was before. None, and nothing is
    /// changed, when programs of this host changed the word 64 times meanwhile: to be tried
    /// again later, so that they can't hold the shard.
    ///
    /// It is one step for every other Atomic Operation of the RNIC (RFC 7306 section 5.3), and for
    /// programs of this host that use the processor's atomics. What the processor does in one instruction
    /// never has to be tried again: additions in one field, and swaps of whole words.
    pub fn apply(&self, operation: AtomicOperation) -> Result<Option<u64>, RegionError> {
        let original = self.at_once(operation).or_else(|| {
            let found = self.word.load(Ordering::Acquire);
            modify(operation, found, |found, wanted| {
                let (done, not) = (Ordering::AcqRel, Ordering::Acquire);
                self.word.compare_exchange(found, wanted, done, not)
            })
        });
        if self.memory.is_broken() {
            return Err(RegionError::Broken);
        }
        Ok(original)
    }

    /// By one instruction, if there is one for it.
    fn at_once(&self, operation: AtomicOperation) -> Option<u64> {
        match operation {
            AtomicOperation::FetchAdd { add, mask: 0 } => {
                Some(self.word.fetch_add(add, Ordering::AcqRel))
            }
            AtomicOperation::CompareSwap {
                swap,
                swap_mask: u64::MAX,
                compare,
                compare_mask: u64::MAX,
            } => {
                let (done, not) = (Ordering::AcqRel, Ordering::Acquire);
                let found = self.word.compare_exchange(compare, swap, done, not);
                Some(found.unwrap_or_else(|found| found))
            }
            AtomicOperation::CompareSwap {
                swap,
                swap_mask: u64::MAX,
                compare_mask: 0,
                ..
            } => Some(self.word.swap(swap, Ordering::AcqRel)),
            _ => None,
        }
    }
}

/// Does the operation on a word that was `found`, by `exchange`, which gives what it found if the word has
/// changed. None when that happened [`ATTEMPTS`] times.
fn modify(
    operation: AtomicOperation,
    mut found: u64,
    mut exchange: impl FnMut(u64, u64) -> Result<u64, u64>,
) -> Option<u64> {
    for _ in 0..ATTEMPTS {
        match exchange(found, operation.apply(found)) {
            Ok(original) => return Some(original),
            Err(other) => found = other,
        }
    }
    None
}

impl Range<'_> {
    /// The offset in the region of `len` bytes at `at` in the range.
    #[inline]
    fn within(&self, at: u64, len: usize) -> Result<u64, RegionError> {
        let outside = RegionError::Outside {
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

#[cfg(test)]
mod tests {
    use super::*;

    const MASKED: AtomicOperation = AtomicOperation::FetchAdd {
        add: 1,
        mask: 1 << 31,
    };

    /// RFC 7306 section 5: nothing happens to the word between the read and the write.
    #[test]
    fn a_word_that_others_never_stop_changing_is_left_as_they_leave_it() {
        let word = AtomicU64::new(0);
        let mut tried = 0;
        let original = modify(MASKED, 0, |found, _| {
            tried += 1;
            assert_eq!(word.fetch_add(1, Ordering::Relaxed), found);
            Err(word.load(Ordering::Relaxed))
        });
        assert_eq!((original, tried), (None, ATTEMPTS));
        let theirs = word.load(Ordering::Relaxed);
        assert_eq!(theirs, u64::from(ATTEMPTS), "none of theirs is lost");
    }

    #[test]
    fn a_word_that_others_change_for_a_while_is_changed_after_them() {
        let mut word = 0;
        let original = modify(MASKED, 0, |found, wanted| {
            if found < u64::from(ATTEMPTS) - 1 {
                word += 1;
                return Err(word);
            }
            word = wanted;
            Ok(found)
        });
        assert_eq!(original, Some(u64::from(ATTEMPTS) - 1));
        assert_eq!(word, u64::from(ATTEMPTS));
    }
}
