//! Memory that a program made itself, made reachable for another process: pages are *adopted*.
//!
//! Private anonymous pages (heap, mmap) are replaced in place by pages of a memfd with the same bytes,
//! while other threads go on using them ([`place`]). The other process maps that memfd. When the last
//! [`Adopted`] that covers a page is dropped, the page becomes private again, with the bytes that it
//! has then. Allocators count on what only private memory does (`MADV_DONTNEED` gives zeros, a fork has a copy).
//!
//! A memfd is a **window** on a part of the address space: the page at address `a` has the offset
//! `a - base` in it. So ranges that overlap, or that meet in one page, are ranges of one file, and each
//! is one range.
//!
//! # What the program sees
//!
//! - A thread that touches a page in the moment when it is exchanged waits for microseconds (of a large
//!   range, piece by piece, for the time that [`PIECE`] bytes take to be copied).
//! - A *system call* that touches one in that moment waits too, where this process may have
//!   such page faults handled: as root, with `vm.unprivileged_userfaultfd = 1`, or with the right to
//!   open `/dev/userfaultfd`. Elsewhere the call fails with EFAULT. A futex(2) that fails so ends a
//!   program of glibc's, so a caller can have small ranges left alone ([`Neighbours::Spared`]): a lock may
//!   lie beside them.
//! - A child made by fork(2) has private copies of the adopted pages. They are made before the fork, by the
//!   thread that forks, so the child sees nothing that its parent stores after fork(2) has returned. What other
//!   threads, the other process or a peer store in the time of the copying is there or not, page by page. The
//!   kernel's own copy of other memory is of one moment.
//! - Where the host has no memory for the copies (`MemAvailable`), or refuses the mappings for them, the child
//!   shares the pages with its parent; both log it at their next registration.
//! - vfork(2) and posix_spawn(3) copy nothing: the child is in its parent's memory until exec(2), as always.
//!   A child made by a bare clone(2) without `CLONE_VM`, or by `_Fork`, shares the adopted pages with its
//!   parent, for these calls run no handler. It is to exec, and to store nothing before.
//! - Signals of a thread that adopts, gives back or forks wait until it has done so.
//! - Pages that the kernel holds for another purpose (buffers registered with io_uring, direct I/O under
//!   way, devices of VFIO) are the old ones for it, in both directions of an exchange. Such a buffer is to
//!   be registered there after it is registered here, and taken back before.
//! - A range that was adopted stays a mapping of its own in `/proc/self/maps`. Of those the kernel allows
//!   65,530 (`vm.max_map_count`); when half of them are there, nothing more is adopted.
//! - `mlock`, NUMA policy and the advice that was given for the pages before are gone.
//!
//! # What it costs
//!
//! The example `cost` measures it. In a busy virtual machine of two cores:
//!
//! | bytes | to adopt | to give back | fork(2) meanwhile | fork(2) before |
//! |---|---|---|---|---|
//! | 64, or a page | 80 us | 60 us | 110 us | 80 us |
//! | 64 KiB | 140 us | 120 us | 130 us | 80 us |
//! | 1 MiB | 1.2 ms | 0.7 ms | 0.8 ms | 0.2 ms |
//! | 16 MiB | 28 ms | 32 ms | 13 ms | 0.9 ms |
//! | 256 MiB | 340 ms | 370 ms | 135 ms | 12 ms |
//! | 1 GiB | 0.9 to 1.7 s | 0.9 to 1.7 s | 1.8 s | 30 to 60 ms |
//!
//! So a program that forks to exec(2), with much memory registered, rather calls posix_spawn(3).
//!
//! | an access of | by a copy | by `/proc/self/mem` |
//! |---|---|---|
//! | 64 bytes | 13 ns | 2000 ns |
//! | 1448 bytes | 38 ns | 2000 ns |
//! | 8948 bytes | 140 ns | 4700 ns |
//!
//! So no size is too small: a page has paid for itself after some seventy accesses.
//!
//! Each thread that the program has adds 3 us to both, and 15 to 30 us where system calls would fail.
//!
//! # What it does not take
//!
//! The stacks of threads, and the thread library's descriptors of them. A thread that finds its own stack
//! gone waits for itself. Where the kernel's page faults can't wait, a signal that comes to a thread
//! without its stack ends the process. What counts as such at the moment of the exchange:
//!
//! - the main thread's stack, and the stack that the caller stands on. Of the one that its thread was started
//!   with that is all. Of another (a fiber's, a signal's) it is 64 KiB below and 16 KiB above its stack pointer;
//! - the descriptor of each thread (get_robust_list(2) tells where), with its rseq(2) area, and its stack below.
//!   That goes down to the guard below the run of pages that it lies in, or 256 KiB without a guard;
//! - where system calls would fail, what a thread that waits in the kernel stands on (`syscall` in
//!   proc_pid_syscall(5)). That goes from a guard of at most 64 KiB to the end of the run. Without a guard it
//!   is 16 KiB on either side of its stack pointer.
//!
//! Where the process is refused get_robust_list(2), by a filter of its own, the stacks of other threads are
//! not known. Where it may not read its own `syscall` files (it gave up its user and is not dumpable), what
//! waiting threads stand on is not.
//!
//! It is not known where another thread stands that runs at that moment on a fiber's or a signal's stack.
//! Such a stack is taken. Where system calls would fail, its thread may then die of a signal; so a program
//! that runs fibers without that right registers none of their stacks from another thread.
//!
//! Pages that become a stack while they are adopted stay in the memfd until the process ends.
//!
//! `unsafe` lives in `sys`, which makes the system calls, and in `window`, `table` and `fork`, which pass on
//! the promise of [`place`]'s caller. `fork` keeps what a fork needs in a place that the table's lock guards.
//!
//! # Example
//!
//! ```
//! use rnic_adopt::{Needed, Neighbours, place};
//!
//! let mut bytes = vec![1_u8; 1 << 20];
//! let (start, len) = (bytes.as_mut_ptr() as usize, bytes.len());
//! // SAFETY: `bytes` lives longer than what keeps its pages in the memfd.
//! let place = unsafe { place(start, len, Needed::ReadAndWrite, Neighbours::Exchanged) };
//! // Another process maps it there, and sees what this one writes.
//! let place = place.expect("memory of the heap can be adopted");
//! assert!(place.is_adopted());
//! bytes[0] = 2;
//! drop(place);
//! assert_eq!((bytes[0], bytes[1]), (2, 1), "private again, with its bytes");
//! ```

#![deny(unsafe_code)]

mod fork;
mod maps;
mod memory;
mod runs;
mod sys;
mod table;
mod threads;
mod window;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::io::Errno;

pub use fork::{forks, watch_forks};
pub use memory::available as available_memory;
pub use sys::PIECE;
pub use table::{Adopted, adopted_bytes};

/// Where the bytes of a program's range are for another process to map.
#[derive(Debug)]
pub struct Place {
    fd: Arc<OwnedFd>,
    offset: u64,
    adopted: Option<Adopted>,
}

impl Place {
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Where the range begins in it, in bytes.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Whether the pages were adopted, and not in a memfd before.
    pub fn is_adopted(&self) -> bool {
        self.adopted.is_some()
    }

    /// What keeps the pages in the memfd.
    pub fn into_adopted(self) -> Option<Adopted> {
        self.adopted
    }
}

/// Why a range is in no memfd. Nothing of it has changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotAdopted {
    /// A part of it is not there.
    #[error("not all of it is mapped")]
    NotMapped,
    /// The program may not do this with a part of it, as it is mapped.
    #[error("not all of it is mapped for {0}")]
    NotPermitted(&'static str),
    /// A part of it has no pages: it is past the end of its file, or a device's.
    #[error("a page of it can't be had (it is past the end of its file, or a device's): {0}")]
    NoPage(Errno),
    /// A part of it is of a file, shared memory without a descriptor of this process's, of huge pages.
    #[error("a part of it is {0}")]
    Kind(&'static str),
    /// A part of it is a thread's stack, or what the kernel and the thread library keep of a thread.
    #[error("a part of it is a thread's stack")]
    Stack,
    /// Other bytes are on its first or last page, other threads may have them in a system call, and this
    /// process may not have that wait.
    #[error("it shares pages with bytes that another thread's system call may be using")]
    Neighbours,
    /// Parts of it were adopted for other ranges, into several memfds.
    #[error("its pages are in several memfds: other ranges that are registered meet in it")]
    Several,
    /// The process has half of the mappings that it may have (`vm.max_map_count`). A range that was
    /// adopted stays a mapping of its own, and the program needs the others.
    #[error("the process has half of the mappings that it may have: raise vm.max_map_count")]
    Mappings,
    /// The host has no memory left: it would end processes.
    #[error("the host has no memory left for a copy of the pages")]
    NoMemory,
    /// This kernel can't.
    #[error(
        "the kernel has no userfaultfd(2) that protects shared memory from writes (Linux 5.19)"
    )]
    Kernel,
    #[error("{call} failed: {errno}")]
    Host { call: &'static str, errno: Errno },
}

/// What is to become of system calls on bytes that share a page with the range, where they would fail
/// while it is adopted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Neighbours {
    /// No such page is adopted: [`NotAdopted::Neighbours`].
    Spared,
    /// They may fail with EFAULT in that moment, as on the range itself.
    Exchanged,
}

/// What a range is to be used for by another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needed {
    /// To be read only.
    Read,
    ReadAndWrite,
}

/// Checks that all of a range is mapped, for what is needed.
///
/// # Errors
/// [`NotAdopted::NotMapped`], [`NotAdopted::NotPermitted`]; [`NotAdopted::Host`] when that can't be read.
pub fn check(start: usize, len: usize, needed: Needed) -> Result<(), NotAdopted> {
    maps::parts(&table::pages(start, len)?, needed).map(drop)
}

/// Has all pages of a range there, as they are for what is needed: of a private mapping of a file, those
/// to be written are copies from then on.
///
/// # Errors
/// [`NotAdopted::NotMapped`]; [`NotAdopted::NoPage`] for memory that is past the end of its file, or a device's.
pub fn populate(start: usize, len: usize, needed: Needed) -> Result<(), NotAdopted> {
    sys::populate(&table::pages(start, len)?, needed)
}

/// Finds the memfd that the `len` bytes from `start` on are in, or puts their pages into one.
///
/// # Errors
/// Why neither can be; then the range is as it was.
///
/// # Safety
/// The range stays mapped as it is until this returns. Of adopted pages it does so until the last
/// [`Adopted`] is dropped, or else nothing else of the program's is mapped at its address in the moment
/// of that drop.
#[allow(unsafe_code)]
pub unsafe fn place(
    start: usize,
    len: usize,
    needed: Needed,
    neighbours: Neighbours,
) -> Result<Place, NotAdopted> {
    // SAFETY: the caller's word.
    unsafe { table::place(start, len, needed, neighbours) }
}

/// As `result.map_err`, with the call's name.
fn host(call: &'static str) -> impl FnOnce(Errno) -> NotAdopted {
    move |errno| NotAdopted::Host { call, errno }
}
