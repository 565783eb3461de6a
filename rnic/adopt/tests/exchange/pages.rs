//! Pages of a test, what others see of them, and children that use them.

use std::ffi::c_void;
use std::ops::Range;
use std::ptr;
use std::sync::atomic::AtomicU64;

use rnic_adopt::{Needed, Neighbours, NotAdopted, Place};
use rustix::mm::{Advice, MapFlags, ProtFlags};

pub const PAGE: usize = 4096;
pub const READ_WRITE: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);

/// Private pages of the test's.
pub struct Pages {
    pub start: *mut c_void,
    pub len: usize,
}

impl Pages {
    pub fn new(len: usize) -> Self {
        // SAFETY: replaces nothing.
        let start = unsafe {
            rustix::mm::mmap_anonymous(ptr::null_mut(), len, READ_WRITE, MapFlags::PRIVATE)
        };
        Self {
            start: start.unwrap(),
            len,
        }
    }

    pub fn address(&self) -> usize {
        self.start.expose_provenance()
    }

    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: mapped, zeroed at first, and only atomics are made of it.
        unsafe { std::slice::from_raw_parts(self.start.cast(), self.len / 8) }
    }

    /// Puts a part into a memfd.
    pub fn place(&self, part: Range<usize>) -> Result<Place, NotAdopted> {
        assert!(part.end <= self.len);
        // SAFETY: the pages stay mapped as long as this lives, unless a test says otherwise.
        unsafe {
            rnic_adopt::place(
                self.address() + part.start,
                part.len(),
                Needed::ReadAndWrite,
                Neighbours::Exchanged,
            )
        }
    }

    /// Unmaps a part, and puts fresh pages there.
    pub fn map_again(&self, part: Range<usize>) {
        // SAFETY: pages of this alone, which tests reach by atomics.
        unsafe {
            let start = self.start.byte_add(part.start);
            rustix::mm::munmap(start, part.len()).unwrap();
            let flags = MapFlags::PRIVATE | MapFlags::FIXED;
            rustix::mm::mmap_anonymous(start, part.len(), READ_WRITE, flags).unwrap();
        }
    }

    pub fn advise(&self, part: Range<usize>, advice: Advice) {
        // SAFETY: as above.
        unsafe {
            rustix::mm::madvise(self.start.byte_add(part.start), part.len(), advice).unwrap();
        }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: what `new` mapped.
        unsafe { rustix::mm::munmap(self.start, self.len) }.unwrap();
    }
}

// SAFETY: an address of memory that is reached by atomics.
unsafe impl Sync for Pages {}

/// What another process sees of it: `len` bytes of the memfd.
pub fn seen(place: &Place, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    let count = rustix::io::pread(place.fd(), &mut bytes[..], place.offset()).unwrap();
    assert_eq!(count, len);
    bytes
}

pub fn sum(place: &Place, len: usize) -> u64 {
    let bytes = seen(place, len);
    let words = bytes.chunks_exact(8);
    words
        .map(|word| u64::from_ne_bytes(word.try_into().unwrap()))
        .sum()
}

pub fn adopted(place: Result<Place, NotAdopted>) -> (Place, u64) {
    let place = place.unwrap();
    assert!(place.is_adopted());
    let offset = place.offset();
    (place, offset)
}

/// Runs `test` in a child, which ends by `_exit`.
pub fn in_child(test: impl FnOnce() -> bool) {
    // SAFETY: the child does nothing that needs another thread.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(test));
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(i32::from(!done.unwrap_or(false))) };
    }
    let mut status = 0;
    // SAFETY: a child of this process.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0);
}
