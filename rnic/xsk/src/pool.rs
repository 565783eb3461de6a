//! The free frames of one shard, last in first out: the frame used last is the one still in cache.

use std::num::NonZeroU32;

use crate::frame::Frame;
use crate::umem::CHUNK_HEADROOM;

/// A stack of free [`Frame`]s of one UMEM. Never grows beyond the UMEM's number of frames, and
/// allocates no memory after it was made.
#[derive(Debug)]
pub struct FramePool {
    umem: NonZeroU32,
    free: Vec<Frame>,
}

impl FramePool {
    /// `frames` are all of the UMEM `umem`, which has `total` frames.
    pub(crate) fn new(umem: NonZeroU32, frames: impl Iterator<Item = Frame>, total: usize) -> Self {
        let mut free = Vec::with_capacity(total);
        free.extend(frames);
        Self { umem, free }
    }

    /// Takes an empty frame, or `None` when all are in use.
    pub fn alloc(&mut self) -> Option<Frame> {
        let mut frame = self.free.pop()?;
        frame.start = CHUNK_HEADROOM;
        frame.len = 0;
        Some(frame)
    }

    /// Gives a frame back.
    ///
    /// # Panics
    ///
    /// When the frame is of another UMEM than the pool.
    pub fn free(&mut self, frame: Frame) {
        assert_eq!(frame.umem, self.umem, "a frame of another UMEM");
        self.free.push(frame);
    }

    /// How many frames are free.
    pub fn available(&self) -> usize {
        self.free.len()
    }

    /// Takes up to `count` frames out into a pool of their own: each shard has one.
    pub fn split(&mut self, count: usize) -> FramePool {
        let total = self.free.capacity();
        let at = self.free.len().saturating_sub(count);
        FramePool::new(self.umem, self.free.drain(at..), total)
    }
}

#[cfg(test)]
mod tests;
