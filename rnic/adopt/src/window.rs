//! A memfd that is a window on a part of the address space.
#![allow(unsafe_code)]

use std::mem::ManuallyDrop;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;

use crate::maps::{Part, What};
use crate::memory;
use crate::runs::Runs;
use crate::sys::{self, Faults, Mapping, PIECE};
use crate::threads::Threads;
use crate::{Neighbours, NotAdopted, host};

/// What windows begin and end at: neighbours of a range find a place in its window.
const ALIGNMENT: usize = 1 << 30;

/// Bytes that a file may have for pages that nobody holds any more, besides as many as are held: holes
/// can't be punched into a registered memfd.
const SPARE: usize = 64 << 20;

#[derive(Debug)]
pub(crate) struct Window {
    /// The address that has offset 0.
    base: usize,
    len: usize,
    pub(crate) fd: Arc<OwnedFd>,
    device: u64,
    inode: u64,
    mapping: Mapping,
    /// The other process does not take the file any more.
    pub(crate) abandoned: bool,
    /// Pages that lie in the file, by address.
    pub(crate) runs: Runs,
}

pub(crate) type Key = (u64, u64);

impl Window {
    /// A new one in which `range` is.
    pub(crate) fn around(range: &Range<usize>) -> Result<Self, NotAdopted> {
        let base = range.start / ALIGNMENT * ALIGNMENT;
        let end = range.end.checked_next_multiple_of(ALIGNMENT);
        let len = end.ok_or(NotAdopted::NotMapped)? - base;
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        // Kernels before 6.3 don't know NOEXEC_SEAL; later ones may be set to insist on it.
        let fd = match rustix::fs::memfd_create("rnic-adopted", flags | MemfdFlags::NOEXEC_SEAL) {
            Err(Errno::INVAL) => rustix::fs::memfd_create("rnic-adopted", flags),
            made => made,
        }
        .map_err(host("memfd_create"))?;
        rustix::fs::ftruncate(&fd, len as u64).map_err(host("ftruncate"))?;
        rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW)
            .map_err(host("fcntl(F_ADD_SEALS)"))?;
        let stat = rustix::fs::fstat(&fd).map_err(host("fstat"))?;
        // Before it is registered, which forbids new mappings for writing.
        let mapping = Mapping::new(&fd, len)?;
        Ok(Self {
            base,
            len,
            fd: Arc::new(fd),
            device: stat.st_dev,
            inode: stat.st_ino,
            mapping,
            abandoned: false,
            runs: Runs::default(),
        })
    }

    pub(crate) fn key(&self) -> Key {
        (self.device, self.inode)
    }

    pub(crate) fn offset_of(&self, address: usize) -> u64 {
        (address - self.base) as u64
    }

    fn offsets(&self, range: &Range<usize>) -> Range<usize> {
        range.start - self.base..range.end - self.base
    }

    /// Whether all parts of `range` are in the file already, or can be put into it. A part that was in it
    /// and is not mapped from it any more can't: its pages may still be some region's.
    pub(crate) fn takes(&self, range: &Range<usize>, parts: &[Part]) -> bool {
        let within = self.base <= range.start && range.end <= self.base + self.len;
        let more = parts.iter().any(|part| part.what == What::Private);
        within
            && !self.abandoned
            && !(more && self.is_wasteful())
            && parts.iter().all(|part| match part.what {
                What::Private => !self.runs.meets(&part.range),
                _ => self.is_here(part) && self.runs.gaps(&part.range).is_empty(),
            })
    }

    /// Whether a part is mapped from the file, where it belongs.
    fn is_here(&self, part: &Part) -> bool {
        let Part { range, what, .. } = part;
        let (device, inode) = self.key();
        let inside = self.base <= range.start && range.end <= self.base + self.len;
        inside
            && *what
                == What::Shared {
                    device,
                    inode,
                    offset: self.offset_of(range.start),
                }
    }

    /// Whether it has so much memory of nobody's that no more is to be put into it.
    fn is_wasteful(&self) -> bool {
        let allocated = rustix::fs::fstat(&*self.fd).map_or(0, |stat| stat.st_blocks * 512);
        let held = self.runs.bytes();
        usize::try_from(allocated).unwrap_or(0) > held * 2 + SPARE
    }

    /// Puts all private parts into the file: all of them or none.
    ///
    /// # Safety
    /// They stay mapped meanwhile.
    pub(crate) unsafe fn put_in(
        &mut self,
        parts: &[Part],
        neighbours: Neighbours,
    ) -> Result<(), NotAdopted> {
        let private: Vec<_> = parts
            .iter()
            .filter(|part| part.what == What::Private)
            .collect();
        if private.is_empty() {
            return Ok(());
        }
        // Like all that is used while pages are away, it is on this thread's stack.
        let faults = Faults::new()?;
        let threads = Threads::now(!faults.are_of_kernel());
        if neighbours == Neighbours::Spared && !faults.are_of_kernel() && threads.are_several() {
            return Err(NotAdopted::Neighbours);
        }
        if private.iter().any(|part| threads.stand_on(part)) {
            return Err(NotAdopted::Stack);
        }
        let pieces: Vec<_> = private
            .iter()
            .flat_map(|part| pieces(&part.range))
            .collect();
        for (done, piece) in pieces.iter().enumerate() {
            let offsets = self.offsets(piece);
            let put = self.populate(&offsets).and_then(|()| {
                // SAFETY: a part of what the caller vouches for; no thread stands on it, this one neither.
                unsafe { sys::put_in(&faults, piece, &self.mapping, &offsets) }
            });
            if let Err(error) = put {
                for piece in pieces.iter().take(done) {
                    // SAFETY: put there by this loop.
                    let _ = unsafe { self.take_out_piece(&faults, piece) };
                }
                return Err(error);
            }
        }
        Ok(())
    }

    /// Has the file's pages take their frames, so that no copy fails for want of memory.
    fn populate(&self, offsets: &Range<usize>) -> Result<(), NotAdopted> {
        if memory::available().is_some_and(|available| available < (2 * PIECE) as u64) {
            return Err(NotAdopted::NoMemory);
        }
        self.mapping.populate(offsets)
    }

    /// Gives the program private pages where `parts` are mapped from the file. What is not any more was
    /// unmapped by the program, and is left alone. What can't be (the host has no memory, a thread
    /// stands on it) stays shared until the process ends, and in `runs`.
    ///
    /// # Safety
    /// The parts stay mapped meanwhile.
    pub(crate) unsafe fn take_out(&mut self, parts: &[Part]) -> Result<(), NotAdopted> {
        let faults = Faults::new()?;
        let here: Vec<_> = parts.iter().filter(|part| self.is_here(part)).collect();
        let threads = Threads::now(!faults.are_of_kernel());
        if here.iter().any(|part| threads.stand_on(part)) {
            return Err(NotAdopted::Stack);
        }
        for piece in here.iter().flat_map(|part| pieces(&part.range)) {
            // SAFETY: mapped from the file, as was just read; it stays so by the caller's word.
            unsafe { self.take_out_piece(&faults, &piece) }?;
        }
        Ok(())
    }

    /// # Safety
    /// As [`sys::take_out`].
    unsafe fn take_out_piece(
        &self,
        faults: &Faults,
        piece: &Range<usize>,
    ) -> Result<(), NotAdopted> {
        // SAFETY: the caller's word.
        unsafe { sys::take_out(faults, piece, &self.mapping, &self.offsets(piece)) }
    }

    /// Copies all runs to where [`Runs::lay_out`] has put them.
    ///
    /// # Safety
    /// That is memory of nobody else's.
    pub(crate) unsafe fn copy_runs(&self) {
        for (run, copy) in self.runs.copies(&(self.base..self.base + self.len)) {
            // SAFETY: pages of the file that have their frames, and the caller's word.
            unsafe { self.mapping.copy_to(&self.offsets(&run), copy) };
        }
    }

    /// The copies of what of a mapping at `range` is of this file's runs, where they belong.
    pub(crate) fn copies_of(
        &self,
        range: &Range<usize>,
        offset: u64,
    ) -> impl Iterator<Item = (Range<usize>, usize)> {
        let inside = self.base <= range.start && range.end <= self.base + self.len;
        let here = inside && offset == self.offset_of(range.start);
        here.then(|| self.runs.copies(range)).into_iter().flatten()
    }

    /// Unmaps and closes a parent's file, and leaves to itself what there is of it on the heap: a signal's
    /// handler may have forked while that was being changed.
    pub(crate) fn leave(self) {
        let Self {
            fd, mapping, runs, ..
        } = self;
        drop(mapping);
        let on_heap = ManuallyDrop::new((fd, runs));
        sys::close(&on_heap.0);
    }
}

/// Pieces that are exchanged one after the other.
fn pieces(range: &Range<usize>) -> impl Iterator<Item = Range<usize>> + use<> {
    let Range { start, end } = *range;
    (start..end)
        .step_by(PIECE)
        .map(move |start| start..end.min(start + PIECE))
}
