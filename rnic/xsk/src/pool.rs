//! The free frames of one shard, last in first out: the frame used last is the one still in cache.

use std::num::NonZeroU32;
use std::sync::Arc;

use crate::frame::Frame;
use crate::packet::Packet;
use crate::umem::{CHUNK_HEADROOM, Chains, ChunkSize};

/// Two stacks of free [`Frame`]s of one UMEM: those of one chunk, and wide ones where the UMEM has
/// any. Never grows beyond what the UMEM has, and allocates no memory after it was made.
#[derive(Debug)]
pub struct FramePool {
    umem: NonZeroU32,
    /// Not the UMEM itself, which its owner takes away when it is time.
    chains: Arc<Chains>,
    chunk: ChunkSize,
    /// More bytes than these take a wide frame; as many as there can be where there are none.
    narrow: usize,
    single: Vec<Frame>,
    wide: Vec<Frame>,
    /// Frames on loan that their receivers are done with: not free, but their senders'.
    returned: Vec<Frame>,
}

impl FramePool {
    /// `single` and `wide` are all frames of the UMEM with this number.
    pub(crate) fn new(
        (umem, chunk): (NonZeroU32, ChunkSize),
        chains: Arc<Chains>,
        single: impl Iterator<Item = Frame>,
        wide: impl Iterator<Item = Frame>,
    ) -> Self {
        let (single, wide): (Vec<_>, Vec<_>) = (single.collect(), wide.collect());
        Self {
            umem,
            chains,
            chunk,
            narrow: match chunk.chunks() {
                1 => usize::MAX,
                _ => chunk.chunk_capacity(),
            },
            returned: Vec::with_capacity(single.len() + wide.len()),
            single,
            wide,
        }
    }

    /// Takes an empty frame of one chunk, or `None` when all are in use.
    #[inline]
    pub fn alloc(&mut self) -> Option<Frame> {
        self.single.pop().map(emptied)
    }

    /// Takes an empty frame for so many bytes: a wide one when they don't fit a chunk and the UMEM
    /// has wide ones. `None` when all of that kind are in use.
    #[inline]
    pub fn alloc_for(&mut self, bytes: usize) -> Option<Frame> {
        if self.is_wide(bytes) {
            return self.wide.pop().map(emptied);
        }
        self.alloc()
    }

    /// Whether a wide frame is what so many bytes take.
    #[inline]
    pub fn is_wide(&self, bytes: usize) -> bool {
        bytes > self.narrow
    }

    /// Gives a frame back; one on loan is kept for [`Self::take_returned`].
    ///
    /// # Panics
    ///
    /// When the frame is of another UMEM than the pool.
    #[inline]
    pub fn free(&mut self, frame: Frame) {
        assert!(frame.is_of(self.umem), "a frame of another UMEM");
        if frame.is_own_single(self.chunk.bytes()) {
            self.single.push(frame);
        } else {
            self.free_other(frame);
        }
    }

    #[inline(never)]
    fn free_other(&mut self, frame: Frame) {
        if frame.is_on_loan() {
            self.returned.push(frame);
        } else {
            self.wide.push(frame);
        }
    }

    /// Gives the frames of a packet back.
    ///
    /// # Panics
    ///
    /// As [`Self::free`].
    #[inline]
    pub fn free_packet(&mut self, packet: Packet) {
        match packet.into_single() {
            Ok(frame) => self.free(frame),
            Err(packet) => self.free_frames(packet),
        }
    }

    /// A frame that was on loan and was freed by its receiver: its sender's again, with the data that it
    /// was sent with.
    #[inline]
    pub fn take_returned(&mut self) -> Option<Frame> {
        self.returned.pop().map(Frame::returned)
    }

    /// Whether [`Self::take_returned`] has a frame.
    #[inline]
    pub fn has_returned(&self) -> bool {
        !self.returned.is_empty()
    }

    /// Gives packets back that each lie in one frame of one chunk, none of them on loan.
    ///
    /// # Panics
    ///
    /// As [`Self::free`], and when one is anything else.
    #[inline]
    pub fn free_singles(&mut self, packets: impl Iterator<Item = Packet>) {
        let (umem, chunk) = (self.umem, self.chunk.bytes());
        self.single.extend(packets.map(|packet| {
            let (first, single) = packet.into_first();
            assert!(first.is_of(umem), "a frame of another UMEM");
            assert!(
                single && first.is_own_single(chunk),
                "a packet of one chunk"
            );
            first
        }));
    }

    #[inline(never)]
    fn free_frames(&mut self, packet: Packet) {
        let chains = Arc::clone(&self.chains);
        packet
            .into_chain(&chains)
            .for_each(|frame| self.free(frame));
    }

    /// Makes a packet of another pool's frames this pool's own: `give_back` gets a free frame of this pool for each of
    /// its frames. When too few are free it gets those of the packet themselves, which is lost.
    pub(crate) fn exchange_for(
        &mut self,
        packet: Packet,
        mut give_back: impl FnMut(Frame),
    ) -> Option<Packet> {
        let chunk = self.chunk.bytes();
        let singles = packet
            .chain(&self.chains)
            .filter(|frame| frame.is_own_single(chunk))
            .count();
        let wide = packet.frame_count() - singles;
        if self.single.len() < singles || self.wide.len() < wide {
            packet.into_chain(&self.chains).for_each(give_back);
            return None;
        }
        let single = self.single.drain(self.single.len() - singles..);
        let wide = self.wide.drain(self.wide.len() - wide..);
        single
            .chain(wide)
            .for_each(|frame| give_back(emptied(frame)));
        Some(packet)
    }

    /// How many frames of one chunk are free.
    #[inline]
    pub fn available(&self) -> usize {
        self.single.len()
    }

    /// How many frames are free of the kind that [`Self::alloc_for`] takes for so many bytes.
    #[inline]
    pub fn available_for(&self, bytes: usize) -> usize {
        if self.is_wide(bytes) {
            return self.wide.len();
        }
        self.available()
    }

    /// How many chunks are free, in frames of both kinds.
    pub fn free_chunks(&self) -> usize {
        self.single.len() + self.wide.len() * self.chunk.chunks()
    }

    /// Even shares of the frames of each kind, for so many shards, each with a pool of its own. What is left over is in
    /// the first ones.
    ///
    /// # Panics
    ///
    /// When `shards` is 0.
    pub fn shares(mut self, shards: usize) -> Vec<FramePool> {
        let most = (self.single.len(), self.wide.len());
        let share = |left: usize| {
            let take = |frames: &mut Vec<Frame>, most: usize| {
                let mut part = Vec::with_capacity(most);
                part.extend(frames.drain(frames.len() - frames.len() / left..));
                part
            };
            FramePool {
                umem: self.umem,
                chains: Arc::clone(&self.chains),
                chunk: self.chunk,
                narrow: self.narrow,
                single: take(&mut self.single, most.0),
                wide: take(&mut self.wide, most.1),
                returned: Vec::with_capacity(most.0 + most.1),
            }
        };
        let mut shares: Vec<_> = (1..=shards).rev().map(share).collect();
        shares.reverse();
        shares
    }
}

#[inline]
fn emptied(mut frame: Frame) -> Frame {
    frame.set_data(CHUNK_HEADROOM, 0);
    frame
}

#[cfg(test)]
mod tests;
