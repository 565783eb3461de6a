//! UMEM frames as the buffers of the byte streams.

use rnic_xsk::{Frame, FramePool, Umem};
use userspace_tcp::stream::Memory;

/// All frames that nobody else has.
#[derive(Debug)]
pub(super) struct Frames {
    pub(super) umem: Umem,
    pub(super) pool: FramePool,
    /// Bytes of all headers in front of a payload that we send.
    pub(super) header_room: usize,
}

impl Memory<Frame> for Frames {
    fn alloc(&mut self) -> Option<Frame> {
        self.pool.alloc_for(self.umem.frame_capacity())
    }

    fn free(&mut self, frame: Frame) {
        self.pool.free(frame);
    }

    fn bytes<'a>(&'a self, frame: &'a Frame) -> &'a [u8] {
        self.umem.bytes(frame)
    }

    fn payload_mut<'a>(&'a self, frame: &'a mut Frame) -> &'a mut [u8] {
        let bytes = self.umem.bytes_mut(frame);
        bytes.get_mut(self.header_room..).unwrap_or(&mut [])
    }
}
