//! The UMEM: one stretch of memory cut into chunks, each owned by a [`Frame`].
//!
//! Where frames of several chunks are wanted, the chunks behind the first half make up wide
//! [`Frame`]s of so many neighbours, which are one stretch of bytes to a writer.
//!
//! Invariants that the `unsafe` here rests on:
//! - `base` points to `frames * chunk` bytes that live as long as the `Umem` does (`backing`).
//! - For each (UMEM id, index) at most one `Frame` exists: all are made in `assemble`, none is
//!   `Clone`, and no other module makes any. A wide one has its own chunks, which no other has. So
//!   `&Frame` is a shared and `&mut Frame` an exclusive borrow of its chunks' bytes.
//! - While the kernel has a chunk its `Frame` lies in a ring's table (`xsk_port::rings`), where
//!   nobody borrows it. Of one that is sent, which the kernel only reads, it may be borrowed to be read.
//! - A `Frame`'s `index`, `start`, `len` and `limit` stay inside its chunks: they are set here, by
//!   `Frame::set_len` and by `rings`, each after checking.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use crate::error::{Request, XskError};
use crate::frame::Frame;
use crate::pool::FramePool;
use crate::prefetch::fetch_lines;

mod backing;
mod binding;
mod chains;
mod config;
mod kernel;

use backing::Backing;
pub(crate) use backing::KernelSide;
pub(crate) use binding::Binding;
pub(crate) use chains::Chains;
pub(crate) use config::check_ring;
pub use config::{
    CHUNK_HEADROOM, CHUNKS_MAX, ChunkSize, HugePages, MAX_FRAMES, PageKind, UmemConfig,
};

/// Packet memory shared with the kernel, or with nobody ([`Umem::heap`]). Cheap to clone: all
/// clones are the same memory.
#[derive(Debug, Clone)]
pub struct Umem {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    id: NonZeroU32,
    base: *mut u8,
    frames: u32,
    chunk: ChunkSize,
    pages: PageKind,
    chains: Arc<Chains>,
    backing: Backing,
}

// SAFETY: `base` is only dereferenced for chunks whose `Frame` the caller borrows, and a `Frame`
// is in one thread's hands at a time; the rest is immutable or synchronised by itself.
unsafe impl Send for Inner {}
// SAFETY: as for `Send`.
unsafe impl Sync for Inner {}

/// Each UMEM of the process has another id, so that frames never pass for another UMEM's.
static NEXT_ID: AtomicU32 = AtomicU32::new(1);

impl Umem {
    /// Registers memory with the kernel: huge pages when asked for and there are any, ordinary
    /// ones otherwise (the log says which). All frames are in the returned pool.
    ///
    /// Call it in a thread that is in the network namespace of the interface whose
    /// [`XskPort`](crate::XskPort) is opened first on it. That port's queue is not free again
    /// before the UMEM goes too.
    ///
    /// # Errors
    ///
    /// [`XskError`] when the kernel refuses or `config` can't be right.
    pub fn new(config: &UmemConfig) -> Result<(Umem, FramePool), XskError> {
        let request = || Request {
            place: None,
            asked: format!(
                "a UMEM of {} frames of {} bytes, fill ring {}, completion ring {}",
                config.frames,
                config.chunk.bytes(),
                config.fill_ring,
                config.completion_ring
            ),
        };
        config.check().map_err(|hint| XskError::Invalid {
            request: request(),
            hint,
        })?;
        let kernel::Registered {
            umem,
            descriptors,
            base,
            pages,
        } = kernel::register(config, request)?;
        log::info!(
            "UMEM: {} frames of {} bytes in {pages}",
            descriptors.len(),
            config.chunk.bytes()
        );
        let frames = descriptors.len() as u32;
        let kernel = KernelSide {
            umem,
            descriptors: descriptors.into(),
            fill_ring: config.fill_ring,
            binding: Mutex::new(Binding::new()),
        };
        Ok(Self::assemble(
            base,
            frames,
            config.chunk,
            pages,
            Backing::Kernel(kernel),
        ))
    }

    /// Memory of this process alone, for [`MemoryPort`](crate::MemoryPort), tests and simulation.
    ///
    /// # Panics
    ///
    /// When `frames` is 0 or more than [`MAX_FRAMES`].
    pub fn heap(frames: u32, chunk: ChunkSize) -> (Umem, FramePool) {
        assert!(
            (1..=MAX_FRAMES).contains(&frames),
            "{frames} frames: 1 to {MAX_FRAMES}"
        );
        let heap = backing::Heap::new(frames as usize * chunk.bytes());
        let base = heap.as_ptr();
        Self::assemble(base, frames, chunk, PageKind::Heap, Backing::Heap(heap))
    }

    fn assemble(
        base: *mut u8,
        frames: u32,
        chunk: ChunkSize,
        pages: PageKind,
        backing: Backing,
    ) -> (Umem, FramePool) {
        let id = NonZeroU32::new(NEXT_ID.fetch_add(1, Ordering::Relaxed))
            .expect("fewer than 2^32 UMEMs are made in the life of a process");
        let umem = Umem {
            inner: Arc::new(Inner {
                id,
                base,
                frames,
                chunk,
                pages,
                chains: Arc::new(Chains::new(id, frames)),
                backing,
            }),
        };
        let frame = |index, limit: usize| Frame::new(id, index, CHUNK_HEADROOM, limit as u16);
        let narrow = chunk.narrow(frames);
        // Lowest index on top of the stack.
        let single = (0..narrow).rev().map(|index| frame(index, chunk.bytes()));
        let wide = (narrow..frames)
            .step_by(chunk.chunks())
            .map(|index| frame(index, usize::from(CHUNK_HEADROOM) + chunk.frame_capacity()));
        let chains = Arc::clone(&umem.inner.chains);
        let pool = FramePool::new((id, chunk), chains, single, wide);
        (umem, pool)
    }

    /// How many chunks there are, in pools, rings and hands together: each is a frame, or a part of
    /// a wide one.
    pub fn frames(&self) -> usize {
        self.inner.frames as usize
    }

    /// The first chunk that belongs to a wide frame; those behind it do too.
    pub(crate) fn first_wide(&self) -> usize {
        self.inner.chunk.narrow(self.inner.frames) as usize
    }

    pub fn chunk(&self) -> ChunkSize {
        self.inner.chunk
    }

    /// The most bytes of one Ethernet frame that the largest frame carries.
    pub fn frame_capacity(&self) -> usize {
        self.inner.chunk.frame_capacity()
    }

    /// What the memory is made of.
    pub fn pages(&self) -> PageKind {
        self.inner.pages
    }

    /// The frame's data: `frame.len()` bytes.
    ///
    /// # Panics
    ///
    /// When the frame is of another UMEM.
    #[inline]
    pub fn bytes<'a>(&'a self, frame: &'a Frame) -> &'a [u8] {
        let data = self.data(frame);
        // SAFETY: `data` points to at least `limit - start >= len` bytes of the frame's chunks (`data`), which
        // live as long as `self`. `frame` is borrowed as long as the slice, so nobody has the chunks mutably,
        // and the kernel does not have them.
        unsafe { std::slice::from_raw_parts(data, frame.len()) }
    }

    /// The whole area for data, whatever the frame's length is: `frame.capacity()` bytes. What is
    /// beyond the length is left over from an earlier use.
    ///
    /// # Panics
    ///
    /// When the frame is of another UMEM.
    #[inline]
    pub fn bytes_mut<'a>(&'a self, frame: &'a mut Frame) -> &'a mut [u8] {
        let data = self.data(frame);
        // SAFETY: as in `bytes`, and `frame` is borrowed mutably as long as the slice.
        unsafe { std::slice::from_raw_parts_mut(data, frame.capacity()) }
    }

    /// Where the frame's data begins; `frame.capacity()` bytes from there are its chunks'.
    #[inline]
    fn data(&self, frame: &Frame) -> *mut u8 {
        assert!(frame.is_of(self.inner.id), "a frame of another UMEM");
        let offset = frame.index() * self.inner.chunk.bytes() + usize::from(frame.start());
        // SAFETY: a frame of this UMEM has `index < frames` and `start <= limit`, and its chunks have `limit`
        // bytes. So the offset is inside the memory that `base` points to, or at its end for an empty rest.
        unsafe { self.inner.base.add(offset) }
    }

    /// Which frame follows which in packets of several.
    #[inline]
    pub(crate) fn chains(&self) -> &Chains {
        &self.inner.chains
    }

    /// Asks the processor for the cache lines of headers and a short message that begin so many bytes
    /// from the UMEM's beginning, wherever that is. Nothing waits for them.
    #[inline]
    pub(crate) fn fetch(&self, at: usize) {
        fetch_lines::<3>(self.inner.base.wrapping_add(at));
    }

    /// Moves the frame's data so that it begins `start` bytes into the chunk.
    ///
    /// # Panics
    ///
    /// When it does not fit there, or the frame is of another UMEM.
    pub(crate) fn move_data_to(&self, frame: &mut Frame, start: u16) {
        let (old, len) = (frame.start(), frame.len());
        if old == start {
            return;
        }
        assert!(
            len <= usize::from(frame.limit() - start),
            "the data fits from {start} on"
        );
        let first = old.min(start);
        // `len` bytes end before the limit from either place on.
        frame.set_data(first, len as u16);
        let from = usize::from(old - first);
        self.bytes_mut(frame)
            .copy_within(from..from + len, usize::from(start - first));
        frame.set_data(start, len as u16);
    }

    /// Spreads the data of a wide frame, which begins behind the headroom, over its chunks: behind
    /// each one's headroom, as much as it takes. The kernel's descriptors begin there and nowhere
    /// else. Says how many chunks have data.
    pub(crate) fn spread(&self, frame: &mut Frame) -> usize {
        let (len, parts) = (frame.len(), self.parts(frame));
        let memory = self.wide_mut(frame);
        for part in (1..parts).rev() {
            let (from, to) = self.places(part);
            memory.copy_within(from..from + self.part_len(len, part), to);
        }
        parts
    }

    /// Makes the data of a wide frame that was [spread](Self::spread) one stretch again.
    pub(crate) fn gather(&self, frame: &mut Frame) {
        let (len, parts) = (frame.len(), self.parts(frame));
        let memory = self.wide_mut(frame);
        for part in 1..parts {
            let (to, from) = self.places(part);
            memory.copy_within(from..from + self.part_len(len, part), to);
        }
    }

    /// A copy, as one stretch, of a frame whose data is [spread](Self::spread) if it needs several chunks.
    pub(crate) fn copy_spread(&self, from: &Frame, pool: &mut FramePool) -> Option<Frame> {
        let (len, parts) = (from.len(), self.parts(from));
        if parts == 1 {
            return self.copy(from, pool);
        }
        let mut copy = pool.alloc_for(len)?;
        let (memory, to) = (self.wide(from), self.bytes_mut(&mut copy));
        for part in 0..parts {
            let (place, spread) = self.places(part);
            let at = place - usize::from(CHUNK_HEADROOM);
            let part_len = self.part_len(len, part);
            to[at..at + part_len].copy_from_slice(&memory[spread..spread + part_len]);
        }
        copy.set_len(len);
        Some(copy)
    }

    pub(crate) fn copy(&self, from: &Frame, pool: &mut FramePool) -> Option<Frame> {
        let bytes = self.bytes(from);
        let mut copy = pool.alloc_for(bytes.len())?;
        self.bytes_mut(&mut copy)[..bytes.len()].copy_from_slice(bytes);
        copy.set_len(bytes.len());
        Some(copy)
    }

    /// How many chunks a frame's data lies in once it is spread.
    pub(crate) fn parts(&self, frame: &Frame) -> usize {
        let most = self.inner.chunk.chunk_capacity();
        if frame.len() <= most {
            return 1;
        }
        frame.len().div_ceil(most)
    }

    /// Of `len` bytes of data, how many lie in one of the chunks once they are spread.
    pub(crate) fn part_len(&self, len: usize, part: usize) -> usize {
        let most = self.inner.chunk.chunk_capacity();
        len.saturating_sub(part * most).min(most)
    }

    /// Where a part begins within the memory of a wide frame: in one stretch, and spread.
    fn places(&self, part: usize) -> (usize, usize) {
        let chunk = self.inner.chunk;
        let headroom = usize::from(CHUNK_HEADROOM);
        (
            headroom + part * chunk.chunk_capacity(),
            headroom + part * chunk.bytes(),
        )
    }

    /// All bytes of a frame's chunks.
    fn wide<'a>(&'a self, frame: &'a Frame) -> &'a [u8] {
        let (first, len) = self.chunks_of(frame);
        // SAFETY: `len` bytes from `first` on are the frame's chunks (`chunks_of`), which live as long as `self`. Nobody
        // has them mutably while `frame` is borrowed.
        unsafe { std::slice::from_raw_parts(first, len) }
    }

    /// The same, to be changed.
    fn wide_mut<'a>(&'a self, frame: &'a mut Frame) -> &'a mut [u8] {
        let (first, len) = self.chunks_of(frame);
        // SAFETY: as in `wide`, and nobody else has them while `frame` is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(first, len) }
    }

    /// Where a frame's chunks begin, and their bytes.
    fn chunks_of(&self, frame: &Frame) -> (*mut u8, usize) {
        assert!(frame.is_of(self.inner.id), "a frame of another UMEM");
        let chunk = self.inner.chunk;
        let wide = frame.index() >= self.first_wide();
        let chunks = if wide { chunk.chunks() } else { 1 };
        // SAFETY: a frame's chunks are within the memory that `base` points to (`assemble`).
        let first = unsafe { self.inner.base.add(frame.index() * chunk.bytes()) };
        (first, chunks * chunk.bytes())
    }

    /// Whether `frame` is of this UMEM.
    pub fn owns(&self, frame: &Frame) -> bool {
        frame.is_of(self.inner.id)
    }

    /// The same memory as xsk-rs knows it; `None` for a heap UMEM.
    pub(crate) fn kernel_side(&self) -> Option<&KernelSide> {
        match &self.inner.backing {
            Backing::Kernel(kernel) => Some(kernel),
            Backing::Heap(_) => None,
        }
    }
}

#[cfg(test)]
mod tests;
