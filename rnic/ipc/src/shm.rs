//! Memory that two processes share: sealed memfds, mapped. And memory that client and engine share
//! within one process, where nothing else has it.
//!
//! Invariants of this module, which its `unsafe` stands on:
//! * a [`SharedMemory`] owns its mapping: `base..base+len` stays mapped, readable and writable until
//!   it is dropped, and the mapping is undone exactly once;
//! * the file below it can't shrink (`F_SEAL_SHRINK` was there before the size was read), so no access inside
//!   the mapping runs past the end of the file. What the shard reaches has no holes (`shm/files.rs`:
//!   `F_SEAL_FUTURE_WRITE` forbids to punch any). What the host itself can't read back
//!   faults, and the fault is contained ([`contain_faults`]);
//! * memory of no file has no other process that could take it away ([`SharedMemory::is_private`]), and
//!   memory that is borrowed stays mapped by its owner's word ([`SharedMemory::borrowed`]);
//! * another process may write any byte at any time. So no `&` or `&mut` to these bytes ever
//!   exists, atomics excepted; bytes are copied in and out through raw pointers, and whoever reads
//!   a value copies it once and then checks the copy.
#![allow(unsafe_code)]

mod error;
mod faults;
mod files;

use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};

use crate::sync::{AtomicU32, AtomicU64};
use faults::Watch;

pub use error::{MAPPING_MAX, OutOfBounds, ShmError};
pub use faults::{MAPPINGS_MAX, contain_faults, count_fault, faults_contained};
pub use files::{FILES_MAX, USER_FILES_MAX, forbid_holes};

/// Bytes of a huge page of [`SharedMemory::create_huge`]. There are others, and
/// [`SharedMemory::map`] takes them.
pub const HUGE_PAGE: usize = 2 << 20;

/// A mapped piece of memory that another process may map too.
///
/// All access is by copies with bounds checks, or by atomics. What a concurrent writer leaves is
/// any mixture of old and new bytes.
#[derive(Debug)]
pub struct SharedMemory {
    base: NonNull<u8>,
    len: usize,
    backing: Backing,
}

/// What has to be given back on drop.
#[derive(Debug)]
enum Backing {
    /// Of a memfd; starts at or before `base`. Others may hold parts of the same mapping.
    Mapping(Arc<Mapping>),
    /// Of no file; starts at `base`.
    Anonymous { _pages: Pages },
    /// From the heap.
    Heap { words: usize },
    /// The caller's, who keeps it mapped.
    Borrowed,
}

/// A mapping of a memfd, and its entry among those that may fault.
#[derive(Debug)]
struct Mapping {
    pages: Pages,
    watch: Watch,
    /// Its entry among the files that are mapped whole.
    file: Option<files::Key>,
}

// SAFETY: as for `SharedMemory`: an address, and nothing that belongs to a thread.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

/// What mmap gave, mapped until this is dropped.
#[derive(Debug)]
struct Pages {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the struct is a pointer to memory that belongs to no thread; every access through it is a
// raw copy or an atomic, both of which may happen from any thread.
unsafe impl Send for SharedMemory {}
// SAFETY: as above; no method hands out a plain reference to the memory.
unsafe impl Sync for SharedMemory {}

impl SharedMemory {
    /// Makes a zeroed memfd of `len` bytes, sealed against shrinking and growing, and maps it. The
    /// descriptor is for the other process. `name` shows in `/proc/*/maps`.
    ///
    /// Once both processes have mapped it, [`forbid_holes`] is to be called.
    pub fn create(name: &str, len: usize) -> Result<(Self, OwnedFd), ShmError> {
        let fd = memfd(name, len, MemfdFlags::empty())?;
        let memory = Self::map(&fd, 0, len as u64)?;
        Ok((memory, fd))
    }

    /// The same for a ring, which is left out of core dumps: it carries inline data, and addresses
    /// of the client's.
    pub fn create_ring(name: &str, len: usize) -> Result<(Self, OwnedFd), ShmError> {
        let (memory, fd) = Self::create(name, len)?;
        if let Backing::Mapping(mapping) = &memory.backing {
            mapping.pages.leave_out_of_dumps()?;
        }
        Ok((memory, fd))
    }

    /// As [`Self::create`], of huge pages ([`HUGE_PAGE`]), as many as `len` bytes need.
    ///
    /// # Errors
    ///
    /// [`ShmError::NoHugePages`] when the host has not as many.
    pub fn create_huge(name: &str, len: usize) -> Result<(Self, OwnedFd), ShmError> {
        let none = |error| no_huge_pages(error, len);
        let huge = MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB;
        let fd = memfd(name, whole_huge_pages(len), huge).map_err(none)?;
        let memory = Self::map(&fd, 0, len as u64).map_err(none)?;
        Ok((memory, fd))
    }

    /// Zeroed pages of this process alone: of no file, so that no other process reaches them or can
    /// take them away. A child that is forked has a copy.
    pub fn anonymous(len: usize) -> Result<Self, ShmError> {
        Self::anonymous_of(len, len, MapFlags::PRIVATE)
    }

    /// The same of huge pages ([`HUGE_PAGE`]), as many as `len` bytes need.
    ///
    /// # Errors
    ///
    /// [`ShmError::NoHugePages`] when the host has not as many.
    pub fn anonymous_huge(len: usize) -> Result<Self, ShmError> {
        let huge = MapFlags::PRIVATE | MapFlags::HUGETLB | MapFlags::HUGE_2MB;
        let memory = Self::anonymous_of(len, whole_huge_pages(len), huge);
        memory.map_err(|error| no_huge_pages(error, len))
    }

    fn anonymous_of(len: usize, whole: usize, flags: MapFlags) -> Result<Self, ShmError> {
        check_len(len as u64)?;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let _others = mapping();
        // SAFETY: a new mapping at an address of the kernel's choice replaces nothing.
        let mapped =
            unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), whole, access, flags) };
        let pages = Pages::new(mapped, whole)?;
        Ok(Self {
            base: pages.start,
            len,
            backing: Backing::Anonymous { _pages: pages },
        })
    }

    /// Maps `len` bytes from `offset` of a descriptor that came from another process.
    ///
    /// It must be a memfd, of ordinary or of huge pages, sealed with `F_SEAL_SHRINK` and long enough;
    /// anything else is refused, because its owner could make our accesses fault. `offset` need not be
    /// on a page boundary. The descriptor may be closed afterwards.
    pub fn map(fd: impl AsFd, offset: u64, len: u64) -> Result<Self, ShmError> {
        let fd = fd.as_fd();
        let file = files::Memfd::of(fd)?;
        file.check(offset, len)?;
        let in_page = offset % file.page;
        let whole = (in_page + len).next_multiple_of(file.page);
        let whole = whole.try_into().map_err(|_| ShmError::Length { len })?;
        let mapping = Mapping::new(fd, offset - in_page, whole, None)?;
        Self::part(Arc::new(mapping), in_page, len)
    }

    /// Maps `len` bytes from `offset` of a memfd that is to be registered, in the program that
    /// registers it: as [`Self::map`], but the whole file, once for all registrations of it.
    ///
    /// A registered memfd can't be mapped for writing any more ([`Self::map_registered`]), so later
    /// registrations of it share the mapping of those before. `user` is this process's.
    pub fn map_to_register(
        user: u32,
        fd: impl AsFd,
        offset: u64,
        len: u64,
    ) -> Result<Self, ShmError> {
        let (mapping, _) = files::map(user, fd.as_fd(), offset, len)?;
        Self::part(mapping, offset, len)
    }

    /// Maps `len` bytes from `offset` of a memfd that a client of `user` registers.
    ///
    /// The whole file is mapped, and the mapping is shared by all registrations of that file by
    /// clients of that user. Then the file is sealed with `F_SEAL_FUTURE_WRITE`: nobody can punch
    /// holes into it, write(2) to it or map it for writing any more; mappings that exist stay as they
    /// are. And every page of the range must be there: what is not would be charged to whoever touches
    /// it first. The memory is left out of core dumps.
    ///
    /// # Errors
    ///
    /// Beside those of [`Self::map`]: [`ShmError::NotPopulated`], [`ShmError::ReadOnly`],
    /// [`ShmError::SealedSeals`], [`ShmError::SealedWrites`], [`ShmError::Grown`],
    /// [`ShmError::TooManyFiles`].
    pub fn map_registered(
        user: u32,
        fd: impl AsFd,
        offset: u64,
        len: u64,
    ) -> Result<Self, ShmError> {
        let fd = fd.as_fd();
        let (mapping, file) = files::map(user, fd, offset, len)?;
        mapping.pages.leave_out_of_dumps()?;
        let memory = Self::part(mapping, offset, len)?;
        // First without the seal, which can't be taken off again: then the owner may mend it.
        file.check_populated(fd, offset, len)?;
        forbid_holes(fd)?;
        file.check_populated(fd, offset, len)?;
        Ok(memory)
    }

    /// `len` bytes from `offset` of a mapping.
    fn part(mapping: Arc<Mapping>, offset: u64, len: u64) -> Result<Self, ShmError> {
        let (Ok(offset), Ok(len)) = (usize::try_from(offset), usize::try_from(len)) else {
            return Err(ShmError::Length { len });
        };
        let size = mapping.pages.len;
        if offset.checked_add(len).is_none_or(|end| end > size) {
            let (offset, len, size) = (offset as u64, len as u64, size as u64);
            return Err(ShmError::Grown { offset, len, size });
        }
        // SAFETY: `offset <= size`, so the result is inside the mapping.
        let base = unsafe { mapping.pages.start.add(offset) };
        Ok(Self {
            base,
            len,
            backing: Backing::Mapping(mapping),
        })
    }

    /// The pages that the memory lies in: whole ones of the smallest size.
    fn pages(&self) -> (*mut std::ffi::c_void, usize) {
        let page = rustix::param::page_size();
        let before = self.base.addr().get() % page;
        // SAFETY: mappings begin on a page, so this is inside that of `base`.
        let start = unsafe { self.base.sub(before) };
        let len = (before + self.len).next_multiple_of(page);
        (start.as_ptr().cast(), len)
    }

    /// Zeroed memory of this process alone, for both ends in one process: simulation, tests, Miri.
    /// Aligned to 64 bytes.
    pub fn private(len: usize) -> Result<Self, ShmError> {
        check_len(len as u64)?;
        let words = len.div_ceil(size_of::<Line>());
        let memory: Box<[Line]> = vec![Line([0; 64]); words].into_boxed_slice();
        let base = NonNull::new(Box::into_raw(memory).cast::<u8>())
            .ok_or(ShmError::Length { len: len as u64 })?;
        Ok(Self {
            base,
            len,
            backing: Backing::Heap { words },
        })
    }

    /// Memory that the program made itself, of whatever kind: mapped, on the heap, a static. It stays as
    /// it is when this is dropped.
    ///
    /// # Safety
    ///
    /// Until this is dropped the `len` bytes from `base` on stay mapped for reading and, if a method that writes
    /// is called, for writing. The program makes no access that would be a data race with copies by this value,
    /// and holds no reference that a copy would break.
    pub unsafe fn borrowed(base: NonNull<u8>, len: usize) -> Result<Self, ShmError> {
        check_len(len as u64)?;
        if base.addr().checked_add(len).is_none() {
            return Err(ShmError::Length { len: len as u64 });
        }
        let backing = Backing::Borrowed;
        Ok(Self { base, len, backing })
    }

    /// Gives every page of the memory its frame now, instead of at its first access. Kernels before
    /// 5.14 can't, and nothing is lost by that. Memory of the program's own is left as it is.
    pub fn populate(&self) -> Result<(), ShmError> {
        if matches!(self.backing, Backing::Heap { .. } | Backing::Borrowed) {
            return Ok(());
        }
        let advice = rustix::mm::Advice::LinuxPopulateWrite;
        let (start, len) = self.pages();
        // SAFETY: pages of a mapping that this holds; the advice changes no byte.
        match unsafe { rustix::mm::madvise(start, len, advice) } {
            Ok(()) | Err(Errno::INVAL) => Ok(()),
            Err(errno) => Err(ShmError::Host {
                call: "madvise(MADV_POPULATE_WRITE)",
                errno,
            }),
        }
    }

    /// Whether it is reached without a mapping of its own: what is of no memfd never breaks.
    pub fn is_private(&self) -> bool {
        !matches!(self.backing, Backing::Mapping(_))
    }

    /// Whether an access to it has faulted (see [`contain_faults`]): what was read since is zero, and
    /// what was written is nowhere. Stays so.
    #[inline]
    pub fn is_broken(&self) -> bool {
        // Without any fault, which is the rule, nothing else is looked at.
        faults_contained() != 0
            && matches!(&self.backing, Backing::Mapping(mapping) if mapping.watch.is_broken())
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Never: a mapping has at least one byte.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Where the `len` bytes from `offset` on begin, for copies that the caller fuses with other work.
    /// Valid for so many while `self` lives; others may write there at any time, so make no reference
    /// from it.
    pub fn start_of(&self, offset: usize, len: usize) -> Result<NonNull<u8>, OutOfBounds> {
        self.at(offset, len)
    }

    /// The first byte. Valid for `len()` bytes while `self` lives, as above.
    pub fn as_ptr(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    /// As [`Self::as_ptr`].
    pub fn as_non_null(&self) -> NonNull<u8> {
        self.base
    }

    /// Copies `into.len()` bytes from `offset` on.
    pub fn read(&self, offset: usize, into: &mut [u8]) -> Result<(), OutOfBounds> {
        let from = self.at(offset, into.len())?;
        // SAFETY: `at` checked that the source lies in the mapping; `into` is ours alone and, being
        // an exclusive reference, isn't part of the mapping.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), into.as_mut_ptr(), into.len()) };
        Ok(())
    }

    /// Copies `from` to `offset`.
    pub fn write(&self, offset: usize, from: &[u8]) -> Result<(), OutOfBounds> {
        self.write_pieces(offset, from.len(), std::iter::once(from))
    }

    /// Copies bytes that lie in pieces, `len` in all, to `offset`, one piece behind the other; what is
    /// beyond `len` is left out.
    #[inline]
    pub fn write_pieces<'a>(
        &self,
        offset: usize,
        len: usize,
        pieces: impl Iterator<Item = &'a [u8]>,
    ) -> Result<(), OutOfBounds> {
        let mut to = self.at(offset, len)?;
        let mut left = len;
        pieces.for_each(|piece| {
            let count = piece.len().min(left);
            // SAFETY: `at` checked that all of the destination lies in the mapping, and no more than is
            // left of it is written; no reference into the mapping exists, so `piece` is elsewhere.
            unsafe {
                std::ptr::copy_nonoverlapping(piece.as_ptr(), to.as_ptr(), count);
                to = to.add(count);
            }
            left -= count;
        });
        Ok(())
    }

    /// Sets `len` bytes from `offset` on to `value`.
    pub fn fill(&self, offset: usize, len: usize, value: u8) -> Result<(), OutOfBounds> {
        let to = self.at(offset, len)?;
        // SAFETY: `at` checked that the destination lies in the mapping.
        unsafe { std::ptr::write_bytes(to.as_ptr(), value, len) };
        Ok(())
    }

    /// The 32-bit word at `offset`, which must be aligned.
    pub fn atomic_u32(&self, offset: usize) -> Result<&AtomicU32, OutOfBounds> {
        let at = self.at_aligned(offset, size_of::<AtomicU32>(), align_of::<AtomicU32>())?;
        // SAFETY: in the mapping, aligned, and an atomic may be shared with any other writer.
        Ok(unsafe { AtomicU32::from_ptr(at.as_ptr().cast()) })
    }

    /// The 64-bit word at `offset`, which must be aligned.
    pub fn atomic_u64(&self, offset: usize) -> Result<&AtomicU64, OutOfBounds> {
        let at = self.at_aligned(offset, size_of::<AtomicU64>(), align_of::<AtomicU64>())?;
        // SAFETY: as for `atomic_u32`.
        Ok(unsafe { AtomicU64::from_ptr(at.as_ptr().cast()) })
    }

    /// The 64-bit words from `offset` on, which must be aligned and where at least one must be. The
    /// pointer is good for all of them, and not only for the first as one from a reference would be.
    pub(crate) fn words_from(&self, offset: usize) -> Result<NonNull<AtomicU64>, OutOfBounds> {
        let at = self.at_aligned(offset, size_of::<AtomicU64>(), align_of::<AtomicU64>())?;
        Ok(at.cast())
    }

    /// The byte at `offset` when `len` bytes from there are in the mapping.
    #[inline]
    fn at(&self, offset: usize, len: usize) -> Result<NonNull<u8>, OutOfBounds> {
        if offset.checked_add(len).is_none_or(|end| end > self.len) {
            return Err(OutOfBounds {
                offset,
                len,
                memory: self.len,
            });
        }
        // SAFETY: `offset <= self.len`, which is inside (or one past) the mapping.
        Ok(unsafe { self.base.add(offset) })
    }

    fn at_aligned(
        &self,
        offset: usize,
        len: usize,
        align: usize,
    ) -> Result<NonNull<u8>, OutOfBounds> {
        let at = self.at(offset, len)?;
        if !at.addr().get().is_multiple_of(align) {
            return Err(OutOfBounds {
                offset,
                len,
                memory: self.len,
            });
        }
        Ok(at)
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        if let Backing::Heap { words } = self.backing {
            let memory = std::ptr::slice_from_raw_parts_mut(self.base.as_ptr().cast(), words);
            // SAFETY: the pointer and length that `private` took out of a box.
            drop(unsafe { Box::<[Line]>::from_raw(memory) });
        }
    }
}

impl Mapping {
    fn new(
        fd: std::os::fd::BorrowedFd<'_>,
        offset: u64,
        len: usize,
        file: Option<files::Key>,
    ) -> Result<Self, ShmError> {
        let pages = map_shared(fd, offset, len)?;
        let watch = Watch::begin(pages.start.as_ptr(), len).ok_or(ShmError::TooMany)?;
        Ok(Self { pages, watch, file })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if let Some(key) = &self.file {
            files::forget(key, self);
        }
        // The pages are unmapped behind this.
        self.watch.end();
    }
}

impl Pages {
    /// What mmap gave, or did not.
    fn new(
        mapped: rustix::io::Result<*mut std::ffi::c_void>,
        len: usize,
    ) -> Result<Self, ShmError> {
        let refused = |errno| ShmError::Host {
            call: "mmap",
            errno,
        };
        let start = NonNull::new(mapped.map_err(refused)?.cast());
        let start = start.ok_or(refused(Errno::NOMEM))?;
        Ok(Self { start, len })
    }

    fn leave_out_of_dumps(&self) -> Result<(), ShmError> {
        let advice = rustix::mm::Advice::LinuxDontDump;
        // SAFETY: exactly the range that mmap gave; the advice changes no byte.
        unsafe { rustix::mm::madvise(self.start.as_ptr().cast(), self.len, advice) }.map_err(
            |errno| ShmError::Host {
                call: "madvise(MADV_DONTDUMP)",
                errno,
            },
        )
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: exactly the range that mmap gave, and nobody has a pointer to it that outlives the
        // memory. A failure would leave it mapped, which does no harm.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

/// The unit of private memory: rings want 64-byte alignment.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u8; 64]);

/// Bytes of the huge pages that so many bytes need.
fn whole_huge_pages(len: usize) -> usize {
    len.div_ceil(HUGE_PAGE).saturating_mul(HUGE_PAGE)
}

/// What the kernel says when it has no such pages at all, or none left for a mapping that reserves them.
fn no_huge_pages(error: ShmError, len: usize) -> ShmError {
    match error {
        ShmError::Host {
            call: "memfd_create" | "mmap",
            errno: Errno::INVAL | Errno::NOSYS | Errno::NODEV | Errno::NOENT | Errno::NOMEM,
        } => ShmError::NoHugePages {
            pages: len.div_ceil(HUGE_PAGE),
        },
        error => error,
    }
}

fn check_len(len: u64) -> Result<(), ShmError> {
    if len == 0 || len > MAPPING_MAX {
        return Err(ShmError::Length { len });
    }
    Ok(())
}

/// A sealed memfd of `len` bytes.
fn memfd(name: &str, len: usize, kind: MemfdFlags) -> Result<OwnedFd, ShmError> {
    check_len(len as u64)?;
    let host = |call| move |errno| ShmError::Host { call, errno };
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | kind;
    // Kernels before 6.3 don't know NOEXEC_SEAL; later ones may be set to insist on it.
    let fd = match rustix::fs::memfd_create(name, flags | MemfdFlags::NOEXEC_SEAL) {
        Err(Errno::INVAL) => rustix::fs::memfd_create(name, flags),
        made => made,
    }
    .map_err(host("memfd_create"))?;
    rustix::fs::ftruncate(&fd, len as u64).map_err(host("ftruncate"))?;
    rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW)
        .map_err(host("fcntl(F_ADD_SEALS)"))?;
    Ok(fd)
}

fn map_shared(fd: std::os::fd::BorrowedFd<'_>, offset: u64, len: usize) -> Result<Pages, ShmError> {
    let _others = mapping();
    // SAFETY: a new mapping at an address of the kernel's choice replaces nothing.
    let mapped = unsafe {
        rustix::mm::mmap(
            std::ptr::null_mut(),
            len,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::SHARED,
            fd,
            offset,
        )
    };
    Pages::new(mapped, len)
}

/// To be held while memory is mapped.
pub fn mapping() -> RwLockReadGuard<'static, ()> {
    MAPPINGS.read().unwrap_or_else(PoisonError::into_inner)
}

/// To be held by who needs addresses that are free: no shared memory is mapped meanwhile.
pub fn no_mapping() -> RwLockWriteGuard<'static, ()> {
    MAPPINGS.write().unwrap_or_else(PoisonError::into_inner)
}

static MAPPINGS: RwLock<()> = RwLock::new(());

#[cfg(test)]
mod tests;
