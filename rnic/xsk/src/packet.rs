//! A received packet: one Ethernet frame in the chunks that it was received into.
//!
//! It is three words, whatever its length: of several frames the UMEM knows which follows which.

use crate::frame::Frame;
use crate::pool::FramePool;
use crate::umem::{CHUNKS_MAX, Chains, Umem};

/// One Ethernet frame as it was received: in one [`Frame`], or, when it is larger than a chunk
/// takes, in several, at most [`CHUNKS_MAX`], each with the bytes that follow those of the one before.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "frames that are dropped are lost: give them back to a pool"]
pub struct Packet {
    first: Frame,
    /// Frames behind the first.
    behind: usize,
}

impl From<Frame> for Packet {
    fn from(first: Frame) -> Self {
        Self { first, behind: 0 }
    }
}

impl Packet {
    /// How many frames of one chunk, which takes `most`, so many bytes are received in.
    #[inline]
    pub(crate) fn frames_for(bytes: usize, most: usize) -> usize {
        bytes.div_ceil(most).max(1)
    }

    /// Bytes from a link in memory, in frames of which the pool has [enough](Self::frames_for). `None` when
    /// they are more than a packet's frames take.
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
        if rest.is_empty() {
            return frame_of(first).map(Packet::from);
        }
        let mut frames = [const { None }; CHUNKS_MAX];
        if bytes.len() > CHUNKS_MAX * most {
            return None;
        }
        for (place, part) in frames.iter_mut().zip(bytes.chunks(most)) {
            *place = Some(frame_of(part)?);
        }
        Self::of(umem, &mut frames)
    }

    /// The packet that lies in these frames, which are taken out, up to the first place without one.
    pub(crate) fn of(umem: &Umem, frames: &mut [Option<Frame>]) -> Option<Self> {
        let count = frames.iter().take_while(|frame| frame.is_some()).count();
        let mut following = None;
        for place in frames[..count].iter_mut().rev() {
            let mut frame = place.take()?;
            umem.chains().set_following(&mut frame, following);
            following = Some(frame);
        }
        let behind = count.checked_sub(1)?;
        following.map(|first| Self { first, behind })
    }

    /// The frame that it begins in, with all headers in any sane packet.
    #[inline]
    pub fn first(&self) -> &Frame {
        &self.first
    }

    /// Whether it lies in one frame.
    #[inline]
    pub fn is_single(&self) -> bool {
        self.behind == 0
    }

    #[inline]
    pub fn frame_count(&self) -> usize {
        self.behind + 1
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
    pub fn len(&self, umem: &Umem) -> usize {
        if self.is_single() {
            return self.first.len();
        }
        self.frames(umem).map(Frame::len).sum()
    }

    /// Its frames, in the order of its bytes.
    pub fn frames<'a>(&'a self, umem: &'a Umem) -> impl Iterator<Item = &'a Frame> + Clone {
        self.chain(umem.chains())
    }

    /// Its frames, in the order of its bytes.
    pub fn into_frames(self, umem: &Umem) -> impl Iterator<Item = Frame> {
        self.into_chain(umem.chains())
    }

    pub(crate) fn chain<'a>(
        &'a self,
        chains: &'a Chains,
    ) -> impl Iterator<Item = &'a Frame> + Clone {
        std::iter::once(&self.first).chain(self.rest(chains))
    }

    /// The frames behind the first.
    #[inline]
    fn rest<'a>(&'a self, chains: &'a Chains) -> impl Iterator<Item = &'a Frame> + Clone {
        let second = match self.is_single() {
            true => None,
            false => chains.following(&self.first),
        };
        std::iter::successors(second, |frame| chains.following(frame)).take(self.behind)
    }

    pub(crate) fn into_chain(self, chains: &Chains) -> impl Iterator<Item = Frame> {
        let mut next = Some(self.first);
        let mut behind = self.behind;
        std::iter::from_fn(move || {
            let mut frame = next.take()?;
            if behind > 0 {
                behind -= 1;
                next = chains.set_following(&mut frame, None);
            }
            Some(frame)
        })
    }

    /// The bytes of each of its frames.
    pub fn slices<'a>(&'a self, umem: &'a Umem) -> impl Iterator<Item = &'a [u8]> + Clone {
        self.frames(umem).map(|frame| umem.bytes(frame))
    }

    /// The bytes of the frame that it begins in, and of each frame behind it.
    #[inline]
    pub fn first_and_rest<'a>(
        &'a self,
        umem: &'a Umem,
    ) -> (&'a [u8], impl Iterator<Item = &'a [u8]> + Clone) {
        let rest = self.rest(umem.chains());
        let rest = rest.map(|frame| umem.bytes(frame));
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
        let fits = self.len(umem) <= umem.frame_capacity();
        let mut widest = match fits {
            true => pool.alloc_for(umem.frame_capacity()),
            false => None,
        };
        if let Some(widest) = &mut widest {
            let mut at = 0;
            let bytes = umem.bytes_mut(widest);
            for part in self.slices(umem) {
                bytes[at..at + part.len()].copy_from_slice(part);
                at += part.len();
            }
            widest.set_len(at);
        }
        pool.free_packet(self);
        widest
    }
}

#[cfg(test)]
mod tests;
