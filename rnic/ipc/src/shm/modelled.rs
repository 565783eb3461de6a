//! Shared memory in a model: loom's atomics instead of bytes, and no other process.
//!
//! Compiled with `--cfg loom` only. Each 32-bit and each 64-bit word has an atomic of its own; no
//! ring reads a word in both sizes.

#[path = "error.rs"]
mod error;

use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;

use crate::sync::{AtomicU32, AtomicU64};

pub use error::{MAPPING_MAX, OutOfBounds, ShmError};

/// As the real one, as far as rings need it.
#[derive(Debug)]
pub struct SharedMemory {
    len: usize,
    halves: Box<[AtomicU32]>,
    words: Box<[AtomicU64]>,
}

impl SharedMemory {
    /// Zeroed memory of one model.
    pub fn private(len: usize) -> Result<Self, ShmError> {
        Ok(Self {
            len,
            halves: (0..len / 4).map(|_| AtomicU32::new(0)).collect(),
            words: (0..len / 8).map(|_| AtomicU64::new(0)).collect(),
        })
    }

    /// There are no descriptors in a model.
    pub fn create(_name: &str, _len: usize) -> Result<(Self, OwnedFd), ShmError> {
        Err(ShmError::NotMemfd)
    }

    /// There are no descriptors in a model.
    pub fn create_ring(_name: &str, _len: usize) -> Result<(Self, OwnedFd), ShmError> {
        Err(ShmError::NotMemfd)
    }

    /// There are no descriptors in a model.
    pub fn map(_fd: impl AsFd, _offset: u64, _len: u64) -> Result<Self, ShmError> {
        Err(ShmError::NotMemfd)
    }

    /// Nothing faults in a model.
    pub fn is_broken(&self) -> bool {
        false
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The 32-bit word at `offset`, which must be aligned.
    pub fn atomic_u32(&self, offset: usize) -> Result<&AtomicU32, OutOfBounds> {
        let found = self.halves.get(offset / 4).filter(|_| offset % 4 == 0);
        found.ok_or(self.outside(offset, 4))
    }

    /// The 64-bit words from `offset` on, as many as there are.
    pub(crate) fn words_from(&self, offset: usize) -> Result<NonNull<AtomicU64>, OutOfBounds> {
        let found = self.words.get(offset / 8..).filter(|_| offset % 8 == 0);
        let words = found.ok_or(self.outside(offset, 8))?;
        Ok(NonNull::from(words).cast())
    }

    fn outside(&self, offset: usize, len: usize) -> OutOfBounds {
        OutOfBounds {
            offset,
            len,
            memory: self.len,
        }
    }
}
