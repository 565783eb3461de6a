//! The owned UMEM frame.
//!
//! Invariant that the whole crate rests on: for one UMEM and one chunk index there is at most one
//! `Frame` value in existence. Only `Umem` makes them, once, at its creation; they are neither
//! `Clone` nor `Copy`, and a ring keeps the very value while the kernel has the chunk.

use std::fmt;
use std::num::{NonZeroU32, NonZeroU64};

/// One chunk of a [`Umem`](crate::Umem), owned; or, as a wide frame, several neighbouring ones, which
/// carry one stretch of bytes that is larger than a chunk.
///
/// Its bytes are read and written through [`Umem::bytes`](crate::Umem::bytes) and
/// [`Umem::bytes_mut`](crate::Umem::bytes_mut). A frame that is dropped rather than given back to
/// a [`FramePool`](crate::FramePool) is lost until its UMEM goes.
///
/// It is two words, which move in registers, because a frame passes through half a dozen functions. With five
/// narrow fields, each move right after a change of one field would stall until all earlier stores (a payload,
/// as a rule) have left the processor.
#[derive(PartialEq, Eq)]
#[must_use = "a frame that is dropped is lost: give it to a ring or back to a pool"]
pub struct Frame {
    /// Which UMEM (the high half), and which chunk of it, the first of a wide frame.
    place: NonZeroU64,
    /// From the lowest 16 bits up: where the data begins, how much there is, and where it must end;
    /// bytes, the first and the last from the chunk's start. `start + len <= limit` always. Then one
    /// bit: it is on loan.
    extent: u64,
}

const LEN_SHIFT: u32 = 16;
const LIMIT_SHIFT: u32 = 32;
const ON_LOAN: u64 = 1 << 48;

impl Frame {
    /// The frame of a chunk, or of several, that may have data from `start` on and before `limit`.
    /// One for each chunk, once: see the invariant above.
    pub(crate) fn new(umem: NonZeroU32, index: u32, start: u16, limit: u16) -> Self {
        let place = u64::from(umem.get()) << u32::BITS | u64::from(index);
        Self {
            place: NonZeroU64::new(place).expect("no UMEM has the number 0"),
            extent: u64::from(start) | u64::from(limit) << LIMIT_SHIFT,
        }
    }

    /// Bytes of data in the frame.
    #[inline]
    pub fn len(&self) -> usize {
        usize::from((self.extent >> LEN_SHIFT) as u16)
    }

    /// Whether the frame has no data.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The most bytes of data that the frame can have from where its data begins.
    #[inline]
    pub fn capacity(&self) -> usize {
        usize::from(self.limit() - self.start())
    }

    /// Which chunk of the UMEM this is, or begins with; below [`Umem::frames`](crate::Umem::frames).
    /// For tables by frame.
    #[inline]
    pub fn index(&self) -> usize {
        self.place.get() as u32 as usize
    }

    /// Says how many bytes, from the start of the data, are data.
    ///
    /// # Panics
    ///
    /// When `len` is more than [`capacity`](Self::capacity).
    #[inline]
    pub fn set_len(&mut self, len: usize) {
        let capacity = self.capacity();
        assert!(
            len <= capacity,
            "{len} bytes do not fit a frame of {capacity}"
        );
        self.set_data(self.start(), len as u16);
    }

    /// A frame that its receiver must give back to its sender, which needs its data as it is: what a
    /// loopback link does with a transmitted frame. [`FramePool::free`](crate::FramePool::free) keeps
    /// it for [`FramePool::take_returned`](crate::FramePool::take_returned).
    #[inline]
    pub fn lend(mut self) -> Self {
        self.extent |= ON_LOAN;
        self
    }

    /// Whether it is its sender's. Nothing may be written into it.
    #[inline]
    pub fn is_on_loan(&self) -> bool {
        self.extent & ON_LOAN != 0
    }

    /// It is back in its owner's hands.
    #[inline]
    pub(crate) fn returned(mut self) -> Self {
        self.extent &= !ON_LOAN;
        self
    }

    #[inline]
    pub(crate) fn is_of(&self, umem: NonZeroU32) -> bool {
        (self.place.get() >> u32::BITS) as u32 == umem.get()
    }

    /// Where the data begins, bytes from the chunk's start.
    #[inline]
    pub(crate) fn start(&self) -> u16 {
        self.extent as u16
    }

    /// Where data must end, bytes from the chunk's start.
    #[inline]
    pub(crate) fn limit(&self) -> u16 {
        (self.extent >> LIMIT_SHIFT) as u16
    }

    /// Whether it is one chunk of so many bytes, and not on loan.
    #[inline]
    pub(crate) fn is_own_single(&self, chunk: usize) -> bool {
        // The bit for a loan is above the limit: one comparison sees both.
        const { assert!(ON_LOAN > (u16::MAX as u64) << LIMIT_SHIFT) };
        self.extent >> LIMIT_SHIFT <= chunk as u64
    }

    /// Says where the data is: `start + len` does not exceed the limit.
    #[inline]
    pub(crate) fn set_data(&mut self, start: u16, len: u16) {
        debug_assert!(
            u32::from(start) + u32::from(len) <= u32::from(self.limit()),
            "{len} bytes from {start} on end behind {}",
            self.limit()
        );
        let limit = self.extent >> LIMIT_SHIFT << LIMIT_SHIFT;
        self.extent = limit | u64::from(start) | u64::from(len) << LEN_SHIFT;
    }
}

impl fmt::Debug for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Frame")
            .field("umem", &(self.place.get() >> u32::BITS))
            .field("index", &self.index())
            .field("start", &self.start())
            .field("len", &self.len())
            .field("limit", &self.limit())
            .finish()
    }
}
