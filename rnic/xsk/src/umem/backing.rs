//! Who keeps a UMEM's memory: xsk-rs (mapped and registered with the kernel) or the heap.
//!
//! Invariant: `Heap` frees exactly what it allocated, once, when nobody can reach it any more.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::sync::Mutex;

use xsk_rs::umem::frame::FrameDesc;

use super::binding::Binding;

/// Chunks never straddle a page, as in kernel memory.
const ALIGN: usize = 4096;

/// Keeps the memory alive, and what is needed to use it.
#[derive(Debug)]
pub(super) enum Backing {
    /// Mapped, registered and unmapped by xsk-rs.
    Kernel(KernelSide),
    /// Held only for its `Drop`.
    Heap(#[expect(dead_code, reason = "held for its Drop")] Heap),
}

/// A UMEM as xsk-rs knows it.
#[derive(Debug)]
pub(crate) struct KernelSide {
    pub(crate) umem: xsk_rs::Umem,
    /// By chunk index: the descriptor with the address of its data.
    pub(crate) descriptors: Box<[FrameDesc]>,
    /// Entries of each queue's fill ring.
    pub(crate) fill_ring: u32,
    /// Locked only while a port opens or closes.
    pub(crate) binding: Mutex<Binding>,
}

/// Zeroed, page-aligned heap memory.
#[derive(Debug)]
pub(super) struct Heap {
    memory: *mut u8,
    layout: Layout,
}

impl Heap {
    /// `bytes` is not 0.
    pub(super) fn new(bytes: usize) -> Heap {
        let layout = Layout::from_size_align(bytes, ALIGN)
            .expect("at most MAX_FRAMES chunks: far below isize::MAX");
        assert!(bytes > 0);
        // SAFETY: the layout's size is not zero.
        let memory = unsafe { alloc_zeroed(layout) };
        if memory.is_null() {
            handle_alloc_error(layout);
        }
        Heap { memory, layout }
    }

    pub(super) fn as_ptr(&self) -> *mut u8 {
        self.memory
    }
}

impl Drop for Heap {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout, and freed only here.
        unsafe { dealloc(self.memory, self.layout) }
    }
}
