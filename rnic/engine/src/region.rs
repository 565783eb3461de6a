//! The memory behind an STag, reached by raw copies and, word by word, by the processor's atomics.
//!
//! The application may write its memory at any moment, from another process or another part of this one. So
//! each byte is copied once by value, by [`SharedMemory`] or by a copy that takes CRC and checksum as well.
//! References into the memory exist only to aligned words, as atomics, for Atomic Operations (RFC 7306).
//! Nothing here gives out its address.
//!
//! Invariants of the `unsafe` in this module. Every copy is checked against the bounds of the region and of
//! the memory before it starts, or lies within a `MappedSlice` that was checked. The memory stays mapped
//! while the region holds it, and a `MappedSlice` borrows the region.
#![allow(unsafe_code)]

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use rnic_crc::{Checks, Words};
use rnic_ipc::shm::SharedMemory;
use rnic_proto::Bytes;

mod remote;
#[cfg(test)]
mod tests;

pub use remote::RemoteMemory;

/// The memory of a region. Clones are the same memory, for the other shards of a device.
#[derive(Clone, Debug)]
pub enum RegionMemory {
    /// A range of memory that the client gave as a sealed memfd and that is mapped here too.
    Shared {
        memory: Arc<SharedMemory>,
        /// Where the region begins in it, in bytes.
        offset: usize,
        /// The region's length in bytes.
        len: usize,
    },
    /// Any other memory of a client's, by its own descriptor of its address space.
    Remote(RemoteMemory),
    /// Memory that only this process has (embedded mode): what the program reads and writes is what is
    /// placed into. The client holds it too; it is let go when both have. Nobody else can take its pages
    /// away, so no access to it is void.
    Local(Arc<SharedMemory>),
}

/// Bytes of a region that were found to be there. Not to be shown: addresses are given to nobody.
#[derive(Clone, Copy)]
pub(crate) struct MappedSlice<'a> {
    place: Place<'a>,
    len: usize,
}

/// Where a slice begins.
#[derive(Clone, Copy)]
enum Place<'a> {
    Mapped(&'a SharedMemory, NonNull<u8>),
    Remote(&'a RemoteMemory, u64),
}

/// A copy that did not come about, or that means nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegionError {
    /// It would have left its region.
    #[error("{len} bytes at offset {offset} are not within the region's {region} bytes")]
    Outside {
        /// Where the copy was to begin.
        offset: u64,
        /// How many bytes it was to be.
        len: usize,
        region: u64,
    },
    /// The client took the memory away ([`SharedMemory::is_broken`]): what was read is nobody's, and
    /// what was written is nowhere.
    #[error("the region's memory is gone: its owner took the pages away")]
    Broken,
}

impl RegionMemory {
    /// All bytes of a memory, by the accessor that suits it.
    pub fn whole(memory: Arc<SharedMemory>) -> Self {
        if memory.is_private() {
            return Self::Local(memory);
        }
        Self::Shared {
            offset: 0,
            len: memory.len(),
            memory,
        }
    }

    /// Length in bytes.
    #[inline]
    pub fn len(&self) -> u64 {
        match self {
            Self::Shared { len, .. } => *len as u64,
            Self::Remote(remote) => remote.len(),
            Self::Local(memory) => memory.len() as u64,
        }
    }

    /// Has it no bytes at all?
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies `bytes` into the region, all or nothing; of memory that is broken nobody knows.
    #[inline]
    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), RegionError> {
        self.write_bytes(offset, &bytes)
    }

    /// Copies bytes that may lie in pieces into the region, as [`Self::write`] does.
    #[inline]
    pub fn write_bytes<'a>(&self, offset: u64, bytes: &impl Bytes<'a>) -> Result<(), RegionError> {
        let len = bytes.len();
        let at = self.check(offset, len)?;
        match self {
            Self::Shared { memory, offset, .. } => {
                memory
                    .write_pieces(offset.saturating_add(at), len, bytes.chunks())
                    .map_err(|_| self.outside(at, len))?;
                sound(memory)
            }
            Self::Remote(remote) => remote.write_pieces(at as u64, bytes.chunks()),
            Self::Local(memory) => memory
                .write_pieces(at, len, bytes.chunks())
                .map_err(|_| self.outside(at, len)),
        }
    }

    /// Copies bytes of the region into `out`, all of it or nothing. After an error the content of `out` must
    /// not be used.
    pub fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), RegionError> {
        let at = self.check(offset, out.len())?;
        match self {
            Self::Shared { memory, offset, .. } => {
                memory
                    .read(offset.saturating_add(at), out)
                    .map_err(|_| self.outside(at, out.len()))?;
                sound(memory)
            }
            Self::Remote(remote) => remote.read(at as u64, out),
            Self::Local(memory) => memory
                .read(at, out)
                .map_err(|_| self.outside(at, out.len())),
        }
    }

    /// As [`Self::read`], with `words` between the copied bytes, and returns CRC and checksum of all of them.
    /// For mapped memory copy and checks are one pass. `crc` is the CRC of the bytes before; when it is None
    /// no checks are taken, and those of an empty range are returned.
    pub fn read_checked(
        &self,
        offset: u64,
        crc: Option<u32>,
        out: &mut [u8],
        words: Words,
    ) -> Result<Checks, RegionError> {
        let len = words.bytes_of(out.len());
        let at = self.check(offset, len)?;
        let (memory, at) = match self {
            Self::Shared { memory, offset, .. } => (memory, offset.saturating_add(at)),
            Self::Remote(remote) => {
                remote.read_among(at as u64, out, words)?;
                return Ok(crc.map_or(NO_CHECKS, |crc| rnic_crc::check(crc, out)));
            }
            Self::Local(memory) => (memory, at),
        };
        let start = memory.start_of(at, len);
        let start = start.map_err(|_| self.outside(at, len))?;
        // SAFETY: as many bytes are mapped there, of memory to which references exist only to words,
        // as atomics: `out` is no part of it.
        let checks = unsafe { copy_from(crc, start.as_ptr(), out, words) };
        sound(memory).map(|()| checks)
    }

    /// `len` bytes of the region, to be read piece by piece.
    #[inline]
    pub(crate) fn slice(&self, offset: u64, len: usize) -> Result<MappedSlice<'_>, RegionError> {
        let at = self.check(offset, len)?;
        let (memory, at) = match self {
            Self::Shared { memory, offset, .. } => (memory, offset.saturating_add(at)),
            Self::Remote(remote) => {
                let place = Place::Remote(remote, at as u64);
                return Ok(MappedSlice { place, len });
            }
            Self::Local(memory) => (memory, at),
        };
        let start = memory.start_of(at, len);
        let start = start.map_err(|_| self.outside(at, len))?;
        let place = Place::Mapped(memory, start);
        Ok(MappedSlice { place, len })
    }

    /// The word of 64 bits at `offset`; none when it is not within the region, its address is not
    /// a multiple of 8, or no atomic reaches it.
    pub fn word(&self, offset: u64) -> Option<&AtomicU64> {
        let at = self.check(offset, size_of::<AtomicU64>()).ok()?;
        match self {
            Self::Shared { memory, offset, .. } => memory.atomic_u64(offset.checked_add(at)?).ok(),
            // A system call is no atomic.
            Self::Remote(_) => None,
            Self::Local(memory) => memory.atomic_u64(at).ok(),
        }
    }

    #[inline]
    fn check(&self, offset: u64, len: usize) -> Result<usize, RegionError> {
        let region = self.len();
        let outside = RegionError::Outside {
            offset,
            len,
            region,
        };
        let end = offset.checked_add(len as u64).ok_or(outside)?;
        if end > region {
            return Err(outside);
        }
        usize::try_from(offset).map_err(|_| outside)
    }

    fn outside(&self, at: usize, len: usize) -> RegionError {
        RegionError::Outside {
            offset: at as u64,
            len,
            region: self.len(),
        }
    }

    /// Whether an access has found the memory gone. Asked after each copy, and when a fault is attributed to
    /// a client.
    pub fn is_broken(&self) -> bool {
        match self {
            Self::Shared { memory, .. } => memory.is_broken(),
            Self::Remote(remote) => remote.is_broken(),
            Self::Local(_) => false,
        }
    }
}

impl MappedSlice<'_> {
    /// Length in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// As [`RegionMemory::read_checked`], of bytes from `offset` within the slice on.
    #[inline(always)]
    pub fn read_checked(
        &self,
        offset: usize,
        crc: Option<u32>,
        out: &mut [u8],
        words: Words,
    ) -> Result<Checks, RegionError> {
        let len = words.bytes_of(out.len());
        if offset > self.len || len > self.len - offset {
            return Err(self.outside(offset, len));
        }
        let (memory, start) = match self.place {
            Place::Mapped(memory, start) => (memory, start),
            Place::Remote(remote, at) => {
                remote.read_among(at.saturating_add(offset as u64), out, words)?;
                return Ok(crc.map_or(NO_CHECKS, |crc| rnic_crc::check(crc, out)));
            }
        };
        // SAFETY: `out.len()` bytes from `offset` on are within the slice, which is mapped as a whole
        // (`RegionMemory::slice`). References to that memory exist only to words, as atomics, so `out` is
        // not part of it.
        let checks = unsafe { copy_from(crc, start.as_ptr().add(offset), out, words) };
        sound(memory).map(|()| checks)
    }

    /// As [`RegionMemory::write_bytes`], from `offset` within the slice on.
    #[inline(always)]
    pub fn write_bytes<'a>(
        &self,
        offset: usize,
        bytes: &impl Bytes<'a>,
    ) -> Result<(), RegionError> {
        let len = bytes.len();
        if offset > self.len || len > self.len - offset {
            return Err(self.outside(offset, len));
        }
        let (memory, start) = match self.place {
            Place::Mapped(memory, start) => (memory, start),
            Place::Remote(remote, at) => {
                return remote.write_pieces(at.saturating_add(offset as u64), bytes.chunks());
            }
        };
        let mut written = 0;
        bytes.chunks().for_each(|chunk| {
            let count = chunk.len().min(len - written);
            // SAFETY: `len` bytes from `offset` on are within the slice, which is mapped as a whole
            // (`RegionMemory::slice`), and at most these are written. References to that memory exist only
            // to words, as atomics, so `chunk` is not part of it.
            unsafe {
                let to = start.as_ptr().add(offset + written);
                std::ptr::copy_nonoverlapping(chunk.as_ptr(), to, count);
            }
            written += count;
        });
        sound(memory)
    }

    #[cold]
    fn outside(&self, offset: usize, len: usize) -> RegionError {
        RegionError::Outside {
            offset: offset as u64,
            len,
            region: self.len as u64,
        }
    }
}

impl std::fmt::Debug for MappedSlice<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { len, .. } = self;
        f.debug_struct("MappedSlice")
            .field("len", len)
            .finish_non_exhaustive()
    }
}

const NO_CHECKS: Checks = Checks { crc: 0, sum: 0 };

/// Fills `out` with bytes from `from` on, with `words` between them. Returns CRC and checksum of all of it if
/// `crc` is given.
///
/// # Safety
///
/// `words.bytes_of(out.len())` bytes from `from` on can be read, and none of them is in `out`.
#[inline(always)]
unsafe fn copy_from(crc: Option<u32>, from: *const u8, out: &mut [u8], words: Words) -> Checks {
    if crc.is_none() && words == Words::NONE {
        // SAFETY: the caller's: without words as many bytes as `out` has.
        unsafe { std::ptr::copy_nonoverlapping(from, out.as_mut_ptr(), out.len()) };
        return NO_CHECKS;
    }
    // SAFETY: the caller's.
    unsafe { rnic_crc::copy_from(crc.unwrap_or(0), from, out, words) }
}

/// That a copy which has just been done took place.
#[inline]
fn sound(memory: &SharedMemory) -> Result<(), RegionError> {
    if memory.is_broken() {
        return Err(RegionError::Broken);
    }
    Ok(())
}
