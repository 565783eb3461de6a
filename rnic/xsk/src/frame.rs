//! The owned UMEM frame.
//!
//! Invariant that the whole crate rests on: for one UMEM and one chunk index there is at most one
//! `Frame` value in existence. Only `Umem` makes them, once, at its creation; they are neither
//! `Clone` nor `Copy`, and a ring keeps the very value while the kernel has the chunk.

use std::num::NonZeroU32;

/// One chunk of a [`Umem`](crate::Umem), owned; or, as a wide frame, several neighbouring ones, which
/// carry one stretch of octets that is larger than a chunk.
///
/// Its octets are read and written through [`Umem::bytes`](crate::Umem::bytes) and
/// [`Umem::bytes_mut`](crate::Umem::bytes_mut). A frame that is dropped rather than given back to
/// a [`FramePool`](crate::FramePool) is lost until its UMEM goes.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a frame that is dropped is lost: give it to a ring or back to a pool"]
pub struct Frame {
    /// Which UMEM.
    pub(crate) umem: NonZeroU32,
    /// Which chunk of it, the first of a wide frame.
    pub(crate) index: u32,
    /// Where the data begins, octets from the chunk's start.
    pub(crate) start: u16,
    /// How much data there is, octets. `start + len <= limit` always.
    pub(crate) len: u16,
    /// Where data must end, octets from the chunk's start.
    pub(crate) limit: u16,
}

impl Frame {
    /// Octets of data in the frame.
    pub fn len(&self) -> usize {
        usize::from(self.len)
    }

    /// Whether the frame has no data.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The most octets of data that the frame can have from where its data begins.
    pub fn capacity(&self) -> usize {
        usize::from(self.limit - self.start)
    }

    /// Which chunk of the UMEM this is, or begins with; below [`Umem::frames`](crate::Umem::frames).
    /// For tables by frame.
    pub fn index(&self) -> usize {
        self.index as usize
    }

    /// Says how many octets, from the start of the data, are data.
    ///
    /// # Panics
    ///
    /// When `len` is more than [`capacity`](Self::capacity).
    pub fn set_len(&mut self, len: usize) {
        assert!(
            len <= self.capacity(),
            "{len} octets do not fit a frame of {}",
            self.capacity()
        );
        self.len = len as u16;
    }
}
