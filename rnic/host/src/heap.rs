//! A heap with a reserve, for a process that a limit of its memory must not end.
//!
//! Where the host gives no more memory (`RLIMIT_AS`, `RLIMIT_DATA`, strict overcommit) an allocation
//! whose failure Rust can't report ends the process. So a daemon keeps addresses that it does not use. The
//! first allocation that fails gives them back and is tried again, and until they could be taken once
//! more ([`keep_reserves`]) the daemon refuses whatever takes memory. What was begun before goes on
//! with what was given back. Threads have a reserve of their own ([`start_thread`]).
//!
//! When the reserve is used up as well, std reports the allocation that failed and ends the process.
//! It can't while the same thread prints a panic's backtrace: it would wait for ever for a lock that the
//! thread has, and others for what the thread holds. So there the process is ended here.
//!
//! An allocation that does not fail costs a comparison with null, and no other thread.
//!
//! Invariants of the `unsafe` here. An address in a `Reserve`'s state is that of a private mapping of its size
//! which nothing else uses. The thread that exchanges it for another state unmaps it, and no other does. All
//! blocks are those of [`System`], from its allocation to its deallocation.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};

use rnic_ipc::{shm, threads};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};

/// Bytes of the reserve for what is allocated. Beyond what is refused, the request that is under way
/// takes some MiB at most (the tables of one queue pair).
pub const HEAP_RESERVE: usize = 16 << 20;
/// Bytes of the reserve for threads that are to tell clients that there is no memory, and to close
/// their channels.
pub const THREAD_RESERVE: usize = 16 << 20;
/// Bytes of a thread's stack, where it needs no less: std's default.
pub const STACK: usize = 2 << 20;
/// Bytes that have to be there beside the stack of a thread that starts: std maps a stack for signals,
/// and ends the process when it can't; others' heaps may grow meanwhile.
const BESIDE_STACK: usize = 1 << 20;

/// The least size of a block that the allocator maps by itself.
#[cfg(target_env = "gnu")]
const MAPPED: i32 = 1 << 20;

/// The state: none is wanted in this process ...
const UNWANTED: usize = 0;
/// ... it was given back ...
const GONE: usize = 1;
/// ... it is being taken or given back; else it is the reserve's address.
const CHANGING: usize = 2;

static HEAP: Reserve = Reserve::of(HEAP_RESERVE);
static THREADS: Reserve = Reserve::of(THREAD_RESERVE);
/// How often one was given back.
static GIVEN_BACK: AtomicU64 = AtomicU64::new(0);
/// Held by who takes much of the heap, and while a thread starts: neither takes the other's room.
static LARGE: Mutex<()> = Mutex::new(());

/// The heap: to be the `#[global_allocator]` of a program that calls [`keep_reserves`].
#[derive(Debug)]
pub struct Heap;

// SAFETY: every block is one of `System`'s, with the same layout in all calls. A call that gave null is made
// once more, which changes nothing of what it promises. `realloc` leaves the block as it was when it gives null.
unsafe impl GlobalAlloc for Heap {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's layout.
        or_again(layout.size(), || unsafe { System.alloc(layout) })
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's layout.
        or_again(layout.size(), || unsafe { System.alloc_zeroed(layout) })
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller's block, which is `System`'s, and its layout.
        or_again(size, || unsafe { System.realloc(block, layout, size) })
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller's block, which is `System`'s, and its layout.
        unsafe { System.dealloc(block, layout) }
    }
}

#[inline]
fn or_again(size: usize, allocate: impl Fn() -> *mut u8) -> *mut u8 {
    let block = allocate();
    if block.is_null() && HEAP.give_back() {
        let block = allocate();
        if block.is_null() && std::thread::panicking() {
            end_process(size);
        }
        return block;
    }
    block
}

/// Ends the process for want of so many bytes: allocates nothing, and takes no lock.
#[cold]
fn end_process(size: usize) -> ! {
    let mut line = [0; 160];
    let mut rest = &mut line[..];
    // As much of it as fits.
    let _ = writeln!(
        rest,
        "no memory for {size} bytes in a panic, and the reserve is used up: ending the process (see \
         `ulimit -v`, `ulimit -d`, vm.overcommit_memory)"
    );
    let left = rest.len();
    let said = &line[..line.len() - left];
    // Nobody is left to be told that stderr is closed.
    let _ = rustix::io::write(rustix::stdio::stderr(), said);
    std::process::abort();
}

/// Has large blocks, which are tables of a device, mapped each by itself, and unmapped when they are freed.
///
/// glibc raises the size from which it does so to that of the largest block that was ever freed. Tables of a
/// device that is opened again then come from its heaps: cleared, so that all their pages are there, and in the
/// way of each other. To be called before blocks are freed.
pub fn map_large_blocks() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it changes how glibc gets memory for blocks to come, and may be called at any time.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED);
    }
}

/// Takes the reserves that this process does not have; whether it has both now. Waits while a thread
/// starts: that has been promised what it needs.
///
/// The first call says that they are wanted.
pub fn keep_reserves() -> bool {
    // Both are tried.
    let kept = [HEAP.take(), THREADS.take()];
    kept == [true; 2]
}

/// Whether this process wants reserves.
pub fn is_kept() -> bool {
    HEAP.state.load(Ordering::Relaxed) != UNWANTED
}

/// How often a reserve was given back because the host had no other memory.
pub fn times_given_back() -> u64 {
    GIVEN_BACK.load(Ordering::Relaxed)
}

/// Whether the heap has so many bytes in one piece now, without what is in reserve: it is taken and
/// given back.
pub fn has(bytes: usize) -> bool {
    let Ok(layout) = Layout::from_size_align(bytes.max(1), align_of::<u128>()) else {
        return false;
    };
    // SAFETY: the size is not 0.
    let block = unsafe { System.alloc(layout) };
    if block.is_null() {
        return false;
    }
    // SAFETY: the block that was just allocated, and its layout.
    unsafe { System.dealloc(block, layout) };
    true
}

/// Starts a thread with so many bytes of stack, as [`threads::spawn`] does, or refuses with ENOMEM.
///
/// std ends the process when a new thread finds no room for what it needs first. So in a process with
/// reserves there has to be room for all of it, and nobody maps shared memory or takes a reserve until
/// it has begun.
///
/// # Errors
///
/// The kernel's.
pub fn start_thread<T: Send + 'static>(
    name: &str,
    stack: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    let thread = Builder::new().name(name.to_owned()).stack_size(stack);
    if !is_kept() {
        return threads::spawn(thread, work);
    }
    let (begins, has_begun) = std::sync::mpsc::sync_channel(1);
    let work = move || {
        // Whoever starts it waits.
        let _ = begins.send(());
        work()
    };
    let _large = take_large();
    let _alone = shm::no_mapping();
    let room = stack + BESIDE_STACK;
    if !(is_free(room) || THREADS.give_back() && is_free(room)) {
        return Err(Errno::NOMEM.into());
    }
    let thread = threads::spawn(thread, work)?;
    let _ = has_begun.recv();
    Ok(thread)
}

/// To be held by who takes much of the heap at once, from before it asks whether it [has] that until it
/// is done: one at a time. No thread can be started meanwhile.
pub fn take_large() -> MutexGuard<'static, ()> {
    LARGE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Addresses that are kept for when there are no others.
#[derive(Debug)]
struct Reserve {
    state: AtomicUsize,
    size: usize,
}

impl Reserve {
    const fn of(size: usize) -> Self {
        Self {
            state: AtomicUsize::new(UNWANTED),
            size,
        }
    }

    /// Whether it is, or was, given back, so that what failed for want of memory may succeed.
    #[cold]
    fn give_back(&self) -> bool {
        loop {
            match self.settled() {
                UNWANTED => return false,
                // By another thread, maybe after this one failed.
                GONE => return true,
                address => {
                    if self.change(address, CHANGING) {
                        unmap(address, self.size);
                        GIVEN_BACK.fetch_add(1, Ordering::Relaxed);
                        self.state.store(GONE, Ordering::Release);
                        return true;
                    }
                }
            }
        }
    }

    /// Whether it is there now.
    fn take(&self) -> bool {
        loop {
            let state = self.settled();
            if !matches!(state, UNWANTED | GONE) {
                return true;
            }
            let _no_thread_starts = shm::mapping();
            if self.change(state, CHANGING) {
                let address = map(self.size);
                self.state.store(address.unwrap_or(GONE), Ordering::Release);
                return address.is_some();
            }
        }
    }

    /// The state when no thread is about to change it.
    fn settled(&self) -> usize {
        loop {
            match self.state.load(Ordering::Acquire) {
                // Another thread is in mmap or munmap, which takes microseconds.
                CHANGING => std::hint::spin_loop(),
                state => return state,
            }
        }
    }

    fn change(&self, from: usize, to: usize) -> bool {
        let state = &self.state;
        let changed = state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed);
        changed.is_ok()
    }
}

/// Whether so many bytes of addresses can be had at this moment.
fn is_free(size: usize) -> bool {
    let address = map(size);
    if let Some(address) = address {
        unmap(address, size);
    }
    address.is_some()
}

/// Private and writable: limits of data and of committed memory count it too. It has no pages.
fn map(size: usize) -> Option<usize> {
    let (anywhere, access) = (std::ptr::null_mut(), ProtFlags::READ | ProtFlags::WRITE);
    // SAFETY: a new mapping at an address of the kernel's choice replaces nothing.
    let mapped = unsafe { rustix::mm::mmap_anonymous(anywhere, size, access, MapFlags::PRIVATE) };
    mapped.ok().map(|start| start.expose_provenance())
}

/// Undoes [`map`]: to be called once, by who has the address.
fn unmap(address: usize, size: usize) {
    // SAFETY: what `map` gave, which is neither used nor unmapped. A failure would leave it mapped, which
    // does no harm.
    let _ = unsafe { rustix::mm::munmap(std::ptr::with_exposed_provenance_mut(address), size) };
}

#[cfg(test)]
mod tests;
