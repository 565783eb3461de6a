//! Memory of a client that is not mapped here, accessed by the client's own descriptor of `/proc/self/mem`.
//!
//! The descriptor is pinned to the client's address space. After the client's exec or death it reaches
//! nothing, and never the memory of a process that reuses the PID (which process_vm_writev would). It needs
//! no privilege and ignores page protection: it does what the client itself could do with it. The STag's
//! rights are all that limits a peer.
//!
//! An access is a system call, and takes as long as the client's page faults do. The PRM decides which client
//! may have such regions (`remote_regions`). The bytes of an FPDU go in one call.

use std::io::IoSlice;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rnic_crc::Words;
use rnic_ipc::shm::count_fault;

use super::RegionError;

/// Pieces of one system call.
const PIECES: usize = 64;

/// Memory of a client's address space.
#[derive(Clone, Debug)]
pub struct RemoteMemory {
    memory: Arc<OwnedFd>,
    start: u64,
    len: u64,
    /// Known to all clones.
    broken: Arc<AtomicBool>,
}

impl RemoteMemory {
    /// The `len` bytes from address `start` on, in the address space of a `/proc/self/mem`.
    pub fn new(memory: Arc<OwnedFd>, start: u64, len: u64) -> Self {
        Self {
            memory,
            start,
            len,
            broken: Arc::default(),
        }
    }

    /// Bytes.
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Whether an access found no memory there. Stays so.
    pub(super) fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Relaxed)
    }

    /// Bytes from `at` on, which are within.
    pub(super) fn read(&self, at: u64, out: &mut [u8]) -> Result<(), RegionError> {
        let wanted = out.len();
        let read = || rustix::io::pread(&*self.memory, out, self.address(at)?);
        self.judge(read(), wanted)
    }

    /// As [`Self::read`], with `words` among the bytes.
    pub(super) fn read_among(
        &self,
        at: u64,
        out: &mut [u8],
        words: Words,
    ) -> Result<(), RegionError> {
        let mut at = at;
        for (bytes, word) in words.runs(out.len()) {
            let (begin, end) = (bytes.start, bytes.end);
            self.read(at, &mut out[bytes])?;
            at = at.saturating_add((end - begin) as u64);
            out[end..end + word.len()].copy_from_slice(&word);
        }
        Ok(())
    }

    /// Puts bytes that may lie in pieces at `at`, where there is room for them.
    // Not where mapped memory is written, of which there is more.
    #[inline(never)]
    pub(super) fn write_pieces<'a>(
        &self,
        at: u64,
        mut bytes: impl Iterator<Item = &'a [u8]>,
    ) -> Result<(), RegionError> {
        let mut at = at;
        loop {
            let mut pieces = [IoSlice::new(&[]); PIECES];
            let (mut count, mut len) = (0, 0);
            for (piece, chunk) in pieces.iter_mut().zip(&mut bytes) {
                *piece = IoSlice::new(chunk);
                count += 1;
                len += chunk.len();
            }
            let Some(pieces) = pieces.get(..count).filter(|_| len > 0) else {
                return Ok(());
            };
            let write = || rustix::io::pwritev(&*self.memory, pieces, self.address(at)?);
            self.judge(write(), len)?;
            at = at.saturating_add(len as u64);
        }
    }

    fn address(&self, at: u64) -> rustix::io::Result<u64> {
        let address = self.start.checked_add(at);
        address.ok_or(rustix::io::Errno::INVAL)
    }

    /// A short count, or zero, means that pages are not mapped or that the address space is gone.
    fn judge(&self, done: rustix::io::Result<usize>, wanted: usize) -> Result<(), RegionError> {
        if done == Ok(wanted) {
            return Ok(());
        }
        if !self.broken.swap(true, Ordering::Relaxed) {
            count_fault();
        }
        Err(RegionError::Broken)
    }
}

#[cfg(test)]
mod tests;
