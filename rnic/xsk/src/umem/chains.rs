//! Which frame follows which in packets of several.
//!
//! Invariant: the place of a frame's index is that frame's as its bytes are. Whoever borrows the `Frame` borrows its
//! place, and there is one `Frame` for each index.

use std::cell::UnsafeCell;
use std::num::NonZeroU32;

use crate::frame::Frame;

/// A place for each frame of one UMEM.
#[derive(Debug)]
pub(crate) struct Chains {
    umem: NonZeroU32,
    following: Box<[UnsafeCell<Option<Frame>>]>,
}

// SAFETY: a place is only read by the borrower of its `Frame`, which is in one thread's hands at a time.
unsafe impl Sync for Chains {}

impl Chains {
    /// Of the UMEM of this number, with so many chunks.
    pub(super) fn new(umem: NonZeroU32, frames: u32) -> Self {
        let places = std::iter::repeat_with(UnsafeCell::default);
        Self {
            umem,
            following: places.take(frames as usize).collect(),
        }
    }

    /// The frame behind this one.
    ///
    /// # Panics
    ///
    /// When the frame is of another UMEM.
    #[inline]
    pub(crate) fn following<'a>(&'a self, frame: &'a Frame) -> Option<&'a Frame> {
        // SAFETY: the place is the frame's, which is borrowed as long as what is in it.
        unsafe { (*self.place(frame)).as_ref() }
    }

    /// Puts a frame, or none, behind this one; gives the one that was there.
    ///
    /// # Panics
    ///
    /// As [`following`](Self::following).
    #[inline]
    pub(crate) fn set_following(
        &self,
        frame: &mut Frame,
        following: Option<Frame>,
    ) -> Option<Frame> {
        // SAFETY: the place is the frame's, which is borrowed mutably: nobody else has it.
        unsafe { std::mem::replace(&mut *self.place(frame), following) }
    }

    #[inline]
    fn place(&self, frame: &Frame) -> *mut Option<Frame> {
        assert!(frame.is_of(self.umem), "a frame of another UMEM");
        self.following[frame.index()].get()
    }
}
