//! An allocator that counts, for each thread, what is allocated. It is the system's otherwise.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

thread_local! {
    static BYTES: Cell<isize> = const { Cell::new(0) };
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

fn count(bytes: isize, allocations: usize) {
    // A thread that ends frees after its counters are gone.
    let _ = BYTES.try_with(|cell| cell.set(cell.get() + bytes));
    let _ = ALLOCATIONS.try_with(|cell| cell.set(cell.get() + allocations));
}

// SAFETY: each call goes to the system's allocator as it is; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize, 1);
        // SAFETY: the caller's promises are those that are asked for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as isize), 0);
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size as isize - layout.size() as isize, 1);
        // SAFETY: as above.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

/// What was allocated while it ran.
#[derive(Debug, Default)]
pub struct Meter {
    /// Bytes allocated and not freed.
    pub bytes: isize,
    /// Times that something was allocated.
    pub allocations: usize,
}

impl Meter {
    pub fn run<T>(&mut self, what: impl FnOnce() -> T) -> T {
        let (bytes, allocations) = (BYTES.get(), ALLOCATIONS.get());
        let result = what();
        self.bytes += BYTES.get() - bytes;
        self.allocations += ALLOCATIONS.get() - allocations;
        result
    }
}
