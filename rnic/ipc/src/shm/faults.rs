//! Faults of shared memory (SIGBUS), contained.
//!
//! Neither registered memory nor rings can get holes (`shm/files.rs`). But the host may fail to read
//! back a page that it swapped out, or find it damaged. Then the access faults, in whatever thread.
//! The handler puts private zeroed memory where the mapping was and marks it as broken; the access goes
//! on and harms nobody, and whoever made it asks
//! [`SharedMemory::is_broken`](super::SharedMemory::is_broken) before it believes in it. A fault
//! anywhere else ends the process, as ever.
//!
//! The handler may interrupt any instruction: it allocates nothing, takes no lock, and calls the
//! kernel directly. A filter on system calls must allow it `mmap` and `rt_sigreturn`, and for
//! the end of the process `write`, `rt_sigaction`, `getpid`, `gettid` and `tgkill`.
//!
//! Invariants of the `unsafe` here. An entry of [`TABLE`] is made after its mapping and ends before it
//! ([`Watch`]). So what a handler finds in the table is mapped by this module's parent and by nobody else.
//! Entries are changed under a lock, with a sequence number that readers check, so that no handler takes the
//! start of one mapping for that of another.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, compiler_fence, fence};
use std::sync::{Mutex, PoisonError};

use nix::libc::siginfo_t;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal};
use rustix::mm::{MapFlags, ProtFlags};

use super::ShmError;

/// Shared mappings that a process may have; about as many as the kernel lets it have of all kinds
/// (`vm.max_map_count`). Miri looks at the whole table for each entry.
pub const MAPPINGS_MAX: usize = if cfg!(miri) { 1 << 6 } else { 1 << 16 };

static TABLE: [Entry; MAPPINGS_MAX] = [const { Entry::new() }; MAPPINGS_MAX];
/// Entries that have ever been used: further ones are not looked at.
static USED: AtomicUsize = AtomicUsize::new(0);
/// Entries among those that are free.
static FREE: Mutex<Vec<usize>> = Mutex::new(Vec::new());
/// Faults that were contained.
static FAULTS: AtomicU64 = AtomicU64::new(0);
/// Contains faults of shared memory in all threads of this process from now on. Meant for the start
/// of a daemon; a second call changes nothing.
///
/// # Errors
///
/// The kernel's.
pub fn contain_faults() -> Result<(), ShmError> {
    static ONCE: Mutex<bool> = Mutex::new(false);
    let mut done = ONCE.lock().unwrap_or_else(PoisonError::into_inner);
    if *done {
        return Ok(());
    }
    let action = SigAction::new(
        SigHandler::SigAction(on_sigbus),
        SaFlags::SA_SIGINFO,
        SigSet::empty(),
    );
    // SAFETY: the handler does nothing that may not be done at any instruction: atomics and system
    // calls only. That of std, which it replaces, is about stacks that overflow; those are told by
    // SIGSEGV on Linux.
    unsafe { nix::sys::signal::sigaction(Signal::SIGBUS, &action) }.map_err(|errno| {
        ShmError::Host {
            call: "sigaction(SIGBUS)",
            errno: rustix::io::Errno::from_raw_os_error(errno as i32),
        }
    })?;
    *done = true;
    Ok(())
}

/// Counts an access to a client's memory that failed in another way than by a fault.
pub fn count_fault() {
    FAULTS.fetch_add(1, Ordering::Release);
}

/// How many faults were contained until now, and others counted. Cheap: when it has changed, mappings may be broken.
#[inline]
pub fn faults_contained() -> u64 {
    // A fault of this thread's own came before this line, whatever the compiler thinks of the order.
    compiler_fence(Ordering::SeqCst);
    FAULTS.load(Ordering::Acquire)
}

/// A mapping in the table.
#[derive(Debug)]
pub(super) struct Watch {
    index: usize,
}

impl Watch {
    /// Enters a mapping that was just made. None when the table is full.
    pub(super) fn begin(start: *mut u8, len: usize) -> Option<Self> {
        let mut free = FREE.lock().unwrap_or_else(PoisonError::into_inner);
        let used = USED.load(Ordering::Relaxed);
        let index = match free.pop() {
            Some(index) => index,
            None if used < MAPPINGS_MAX => used,
            None => return None,
        };
        let entry = TABLE.get(index)?;
        entry.broken.store(false, Ordering::Relaxed);
        // The handler makes a pointer of it again.
        entry.change(start.expose_provenance(), len);
        USED.store(used.max(index + 1), Ordering::Release);
        Some(Self { index })
    }

    /// Takes it out again: before it is unmapped.
    pub(super) fn end(&self) {
        let mut free = FREE.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = TABLE.get(self.index) {
            entry.change(0, 0);
        }
        free.push(self.index);
    }

    pub(super) fn is_broken(&self) -> bool {
        let entry = TABLE.get(self.index);
        entry.is_some_and(|entry| entry.broken.load(Ordering::Relaxed))
    }
}

#[derive(Debug)]
struct Entry {
    /// Odd while the others change.
    turn: AtomicUsize,
    start: AtomicUsize,
    /// 0 when there is none.
    len: AtomicUsize,
    broken: AtomicBool,
}

impl Entry {
    const fn new() -> Self {
        Self {
            turn: AtomicUsize::new(0),
            start: AtomicUsize::new(0),
            len: AtomicUsize::new(0),
            broken: AtomicBool::new(false),
        }
    }

    /// Only with `FREE` locked.
    fn change(&self, start: usize, len: usize) {
        let turn = self.turn.load(Ordering::Relaxed);
        self.turn.store(turn.wrapping_add(1), Ordering::Relaxed);
        fence(Ordering::Release);
        self.start.store(start, Ordering::Relaxed);
        self.len.store(len, Ordering::Relaxed);
        self.turn.store(turn.wrapping_add(2), Ordering::Release);
    }

    /// Start and length as they were at one moment. None while they change: then it is not the mapping
    /// that the interrupted thread uses, because it can use that only between `begin` and `end`.
    fn read(&self) -> Option<(usize, usize)> {
        let before = self.turn.load(Ordering::Acquire);
        let found = (
            self.start.load(Ordering::Relaxed),
            self.len.load(Ordering::Relaxed),
        );
        fence(Ordering::Acquire);
        let after = self.turn.load(Ordering::Relaxed);
        (before == after && before.is_multiple_of(2)).then_some(found)
    }
}

extern "C" fn on_sigbus(_: c_int, info: *mut siginfo_t, _: *mut c_void) {
    // SAFETY: the kernel gives a handler that is set with SA_SIGINFO a siginfo_t of its own.
    let info = unsafe { &*info };
    // A signal of kill(2) has a code that is not positive, and no address.
    let faulted = info.si_code > 0;
    // SAFETY: for SIGBUS by a fault the kernel sets the address.
    let address = unsafe { info.si_addr() }.addr();
    if !(faulted && contain(address)) {
        end_process();
    }
}

/// Whether memory was put at the address for the access to go on with.
fn contain(address: usize) -> bool {
    let used = USED.load(Ordering::Acquire);
    for entry in TABLE.iter().take(used) {
        let Some((start, len)) = entry.read() else {
            continue;
        };
        let at = address.wrapping_sub(start);
        if at < len {
            entry.broken.store(true, Ordering::Relaxed);
            FAULTS.fetch_add(1, Ordering::Release);
            return replace_all(start, len);
        }
    }
    false
}

/// One fault for a mapping is enough, and mappings that are cut in pieces would be too many soon.
fn replace_all(start: usize, len: usize) -> bool {
    // SAFETY: exactly a mapping of this module's parent, which stays mapped so, and nothing else is
    // there. Nobody has a reference into it, atomics excepted.
    let replaced = unsafe {
        rustix::mm::mmap_anonymous(
            ptr::with_exposed_provenance_mut(start),
            len,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::PRIVATE | MapFlags::FIXED | MapFlags::NORESERVE,
        )
    };
    replaced.is_ok()
}

/// What would have happened without a handler, and a word about it.
fn end_process() {
    let word =
        b"SIGBUS outside of shared memory, or beyond what can be contained: ending the process\n";
    // Standard error may be closed, or anything else: then the word is lost.
    let _ = rustix::io::write(rustix::stdio::stderr(), word);
    let action = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
    // SAFETY: the default action runs no code of ours.
    let _ = unsafe { nix::sys::signal::sigaction(Signal::SIGBUS, &action) };
    // A fault comes again by itself when the handler returns; this is for a signal that was sent.
    let _ = nix::sys::signal::raise(Signal::SIGBUS);
}

#[cfg(test)]
mod tests;
