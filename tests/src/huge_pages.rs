//! Huge pages of the host, borrowed for a test.

use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};

/// Bytes of one.
pub const HUGE_PAGE: usize = 2 << 20;

const NUMBER: &str = "/proc/sys/vm/nr_hugepages";

/// Huge pages that the host has more than before. Dropping it puts the number back.
#[derive(Debug)]
pub struct HugePages {
    before: u64,
    _alone: MutexGuard<'static, ()>,
}

impl HugePages {
    /// Has the host reserve so many more. Of this process's threads one at a time has some.
    ///
    /// # Panics
    ///
    /// When it can't, with the reason.
    #[must_use]
    pub fn more(count: u64) -> Self {
        static ALONE: Mutex<()> = Mutex::new(());
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let before = number();
        let this = Self {
            before,
            _alone: alone,
        };
        set(before + count);
        let found = number();
        assert!(
            found >= before + count,
            "{count} more huge pages were asked of the host beside {before}, but it gave {}: its \
             memory is used up or in pieces",
            found.saturating_sub(before)
        );
        this
    }
}

impl Drop for HugePages {
    fn drop(&mut self) {
        set(self.before);
    }
}

fn number() -> u64 {
    let found = std::fs::read_to_string(NUMBER);
    let found = found.unwrap_or_else(|error| panic!("{NUMBER} can't be read: {error}"));
    found.trim().parse().expect("a number")
}

fn set(number: u64) {
    let written = std::fs::write(NUMBER, number.to_string());
    written.unwrap_or_else(|error| panic!("{number} can't be written to {NUMBER}: {error}"));
}

/// A memfd of so many huge pages that can't shrink. None of them is taken yet.
#[must_use]
pub fn memfd(pages: usize) -> OwnedFd {
    let flags = MemfdFlags::CLOEXEC
        | MemfdFlags::ALLOW_SEALING
        | MemfdFlags::HUGETLB
        | MemfdFlags::HUGE_2MB;
    let fd = rustix::fs::memfd_create("rnic-tests", flags).expect("the kernel has huge pages");
    rustix::fs::ftruncate(&fd, (pages * HUGE_PAGE) as u64).expect("a size");
    rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK).expect("a seal");
    fd
}

/// Takes all huge pages that nobody has, as long as what is returned lives.
#[must_use]
pub fn take_all() -> OwnedFd {
    let most = 1 << 16;
    let fd = memfd(most);
    for page in 0..most {
        let (from, len) = ((page * HUGE_PAGE) as u64, HUGE_PAGE as u64);
        if rustix::fs::fallocate(&fd, FallocateFlags::empty(), from, len).is_err() {
            break;
        }
    }
    fd
}
