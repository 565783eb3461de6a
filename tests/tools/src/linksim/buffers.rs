//! The frames of the link: where copies and answers come from, and where what is lost goes.

use rnic_xsk::{Frame, FramePool, Packet, Umem};

/// The memory of all frames, and those that are free.
#[derive(Debug)]
pub struct Buffers {
    pub umem: Umem,
    pub pool: FramePool,
    /// So many frames must stay free for receiving: a direction drops before it takes them.
    pub reserve: usize,
}

impl Buffers {
    pub fn bytes<'a>(&'a self, frame: &'a Frame) -> &'a [u8] {
        self.umem.bytes(frame)
    }

    /// The frame's bytes, to be changed in place.
    pub fn bytes_mut<'a>(&'a self, frame: &'a mut Frame) -> &'a mut [u8] {
        let length = frame.len();
        &mut self.umem.bytes_mut(frame)[..length]
    }

    /// A received packet as one frame: what lies in several is copied. `None`, and what it had is
    /// free again, when no frame is.
    pub fn whole(&mut self, packet: Packet) -> Option<Frame> {
        packet.into_frame(&self.umem, &mut self.pool)
    }

    /// Whether a frame may be kept, or another taken.
    pub fn plenty(&self) -> bool {
        self.pool.available() > self.reserve
    }

    /// A frame of `length` bytes, if one is free and large enough; what is in it is left over.
    pub fn alloc(&mut self, length: usize) -> Option<Frame> {
        if !self.plenty() {
            return None;
        }
        let mut frame = self.pool.alloc_for(length)?;
        if frame.capacity() < length {
            self.pool.free(frame);
            return None;
        }
        frame.set_len(length);
        Some(frame)
    }

    /// A new frame with these bytes, if one is free and large enough.
    pub fn frame(&mut self, bytes: &[u8]) -> Option<Frame> {
        let mut frame = self.alloc(bytes.len())?;
        self.bytes_mut(&mut frame).copy_from_slice(bytes);
        Some(frame)
    }

    /// A copy of a frame, if one is free.
    pub fn copy(&mut self, of: &Frame) -> Option<Frame> {
        let mut frame = self.alloc(of.len())?;
        let umem = &self.umem;
        umem.bytes_mut(&mut frame)[..of.len()].copy_from_slice(umem.bytes(of));
        Some(frame)
    }

    /// Gives a frame back.
    pub fn free(&mut self, frame: Frame) {
        self.pool.free(frame);
    }
}
