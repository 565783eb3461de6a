//! A received packet: one Ethernet frame in the chunks that it was received into.

use crate::frame::Frame;
use crate::pool::FramePool;
use crate::umem::{CHUNKS_MAX, Umem};

/// One Ethernet frame as it was received: in one [`Frame`], or, when it is larger than a chunk
/// takes, in several, each with the bytes that follow those of the one before.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "frames that are dropped are lost: give them back to a pool"]
pub struct Packet {
    first: Frame,
    rest: [Option<Frame>; CHUNKS_MAX - 1],
}

impl From<Frame> for Packet {
    fn from(first: Frame) -> Self {
        Self {
            first,
            rest: [const { None }; CHUNKS_MAX - 1],
        }
    }
}

impl Packet {
    /// How many frames of one chunk, which takes `most`, so many bytes are received in.
    #[inline]
    pub(crate) fn frames_for(bytes: usize, most: usize) -> usize {
        bytes.div_ceil(most).max(1)
    }

    /// Bytes from a link in memory, in frames of which the pool has [enough](Self::frames_for). `None` when
    /// they are more than the UMEM's frames take.
    // Each port has it in its loop.
    #[inline(always)]
    pub(crate) fn from_bytes(umem: &Umem, pool: &mut FramePool, bytes: &[u8]) -> Option<Self> {
        let most = umem.chunk().chunk_capacity();
        let mut frame_of = |part: &[u8]| {
            let mut frame = pool.alloc()?;
            umem.bytes_mut(&mut frame)[..part.len()].copy_from_slice(part);
            frame.set_len(part.len());
            Some(frame)
        };
        let (first, rest) = bytes.split_at(bytes.len().min(most));
        let mut packet = Packet::from(frame_of(first)?);
        for part in rest.chunks(most) {
            packet.push(frame_of(part)?).ok()?;
        }
        Some(packet)
    }

    /// Adds the frame with the bytes that follow.
    ///
    /// # Errors
    ///
    /// The frame itself when the packet has [`CHUNKS_MAX`] already.
    pub(crate) fn push(&mut self, frame: Frame) -> Result<(), Frame> {
        match self.rest.iter_mut().find(|place| place.is_none()) {
            Some(place) => {
                *place = Some(frame);
                Ok(())
            }
            None => Err(frame),
        }
    }

    /// The frame that it begins in, with all headers in any sane packet.
    #[inline]
    pub fn first(&self) -> &Frame {
        &self.first
    }

    /// Whether it lies in one frame.
    #[inline]
    pub fn is_single(&self) -> bool {
        self.rest[0].is_none()
    }

    /// The frame of a packet that lies in one.
    ///
    /// # Errors
    ///
    /// The packet itself when it lies in several.
    #[inline]
    pub fn into_single(self) -> Result<Frame, Self> {
        if self.is_single() {
            Ok(self.first)
        } else {
            Err(self)
        }
    }

    /// The frame that it begins in, and whether there is no other, which would be lost.
    #[inline]
    pub(crate) fn into_first(self) -> (Frame, bool) {
        let single = self.is_single();
        (self.first, single)
    }

    /// Bytes.
    #[inline]
    pub fn len(&self) -> usize {
        if self.is_single() {
            return self.first.len();
        }
        self.frames().map(Frame::len).sum()
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Its frames, in the order of its bytes.
    pub fn frames(&self) -> impl Iterator<Item = &Frame> {
        std::iter::once(&self.first).chain(self.rest.iter().flatten())
    }

    /// Its frames, in the order of its bytes.
    pub fn into_frames(self) -> impl Iterator<Item = Frame> {
        std::iter::once(self.first).chain(self.rest.into_iter().flatten())
    }

    /// Its bytes as one slice for each frame: as many of `out` as it has frames.
    pub fn slices<'a, 'out>(
        &'a self,
        umem: &'a Umem,
        out: &'out mut [&'a [u8]; CHUNKS_MAX],
    ) -> &'out [&'a [u8]] {
        let mut count = 0;
        for (slot, frame) in out.iter_mut().zip(self.frames()) {
            *slot = umem.bytes(frame);
            count += 1;
        }
        &out[..count]
    }

    /// The bytes of the frame that it begins in, and of each frame behind it.
    #[inline]
    pub fn first_and_rest<'a, 'out>(
        &'a self,
        umem: &'a Umem,
        out: &'out mut [&'a [u8]; CHUNKS_MAX],
    ) -> (&'a [u8], &'out [&'a [u8]]) {
        let rest = match self.is_single() {
            true => &[],
            false => &self.slices(umem, out)[1..],
        };
        (umem.bytes(&self.first), rest)
    }

    /// All bytes in one frame: its own, or a wide one that they are copied into. `None`, and its
    /// frames are free again, when there is no such frame.
    pub fn into_frame(self, umem: &Umem, pool: &mut FramePool) -> Option<Frame> {
        if self.is_single() {
            return Some(self.first);
        }
        self.copied(umem, pool)
    }

    /// All bytes in one frame of the largest kind that the UMEM has: its own, or one that they are
    /// copied into. `None`, and its frames are free again, when there is no such frame.
    pub fn into_widest(self, umem: &Umem, pool: &mut FramePool) -> Option<Frame> {
        if umem.chunk().chunks() == 1 {
            return self.into_frame(umem, pool);
        }
        self.copied(umem, pool)
    }

    fn copied(self, umem: &Umem, pool: &mut FramePool) -> Option<Frame> {
        let mut widest = pool.alloc_for(umem.frame_capacity());
        if let Some(widest) = &mut widest {
            let mut at = 0;
            let bytes = umem.bytes_mut(widest);
            for frame in self.frames() {
                bytes[at..at + frame.len()].copy_from_slice(umem.bytes(frame));
                at += frame.len();
            }
            widest.set_len(at);
        }
        pool.free_packet(self);
        widest
    }
}

#[cfg(test)]
mod tests;
