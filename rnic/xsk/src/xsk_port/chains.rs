//! Frames of several chunks (multi-buffer): what was received of one that is not all here yet, and
//! which chunks of a sent one the kernel still has.

use crate::frame::Frame;
use crate::packet::Packet;
use crate::pool::FramePool;
use crate::umem::{CHUNKS_MAX, Umem};

/// The descriptor's option of all chunks of a packet but the last (linux/if_xdp.h).
pub(super) const XDP_PKT_CONTD: u32 = 1 << 0;

/// The packet that is being received, chunk by chunk. What the kernel says is not trusted: a packet
/// ends where its chain does, and one that is too long, or has a chunk that can't be used, is lost
/// as a whole.
#[derive(Debug, Default)]
pub(super) struct Gathering {
    /// Its chunks so far, the first `count` places; none of a packet that is lost.
    frames: [Option<Frame>; CHUNKS_MAX],
    count: usize,
    /// The chain is not at its end yet.
    open: bool,
    /// A chunk was bad, or was one too many.
    lost: bool,
}

/// The state after one more chunk.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Gathered {
    /// There is more to come of its packet.
    Waiting,
    Whole(Packet),
    /// It was the last of a packet that is lost.
    Lost,
}

impl Gathering {
    /// Whether the next chunk begins a packet.
    pub(super) fn is_idle(&self) -> bool {
        !self.open
    }

    /// Takes the next chunk of the packet, `None` for one that can't be used; `more` says that it is
    /// not the last. Frames of a packet that is lost go to `pool`.
    pub(super) fn add(
        &mut self,
        frame: Option<Frame>,
        more: bool,
        umem: &Umem,
        pool: &mut FramePool,
    ) -> Gathered {
        self.open = more;
        match (frame, self.frames.get_mut(self.count)) {
            (Some(frame), Some(place)) if !self.lost => {
                *place = Some(frame);
                self.count += 1;
            }
            (frame, _) => {
                self.lost = true;
                let before = self.frames[..self.count].iter_mut();
                before
                    .filter_map(Option::take)
                    .chain(frame)
                    .for_each(|frame| pool.free(frame));
                self.count = 0;
            }
        }
        if more {
            return Gathered::Waiting;
        }
        self.count = 0;
        self.lost = false;
        match Packet::of(umem, &mut self.frames) {
            Some(packet) => Gathered::Whole(packet),
            None => Gathered::Lost,
        }
    }
}

/// By wide frame: the chunks of it that the kernel has, a bit each.
#[derive(Debug)]
pub(super) struct Parts {
    /// The first chunk of the first wide frame.
    first: usize,
    chunks: usize,
    out: Box<[u8]>,
}

impl Parts {
    /// For a UMEM of so many chunks, whose wide frames have `chunks` each from the chunk `first` on.
    pub(super) fn new(frames: usize, first: usize, chunks: usize) -> Self {
        Self {
            first,
            chunks,
            out: vec![0; (frames - first) / chunks].into(),
        }
    }

    /// Chunks that a frame may take.
    pub(super) fn chunks(&self) -> usize {
        self.chunks
    }

    /// The kernel has the first `parts` chunks of the frame that begins with the chunk `index`.
    pub(super) fn sent(&mut self, index: usize, parts: usize) {
        if let Some(out) = self.of(index) {
            *out = (1 << parts) - 1;
        }
    }

    /// The kernel is done with the chunk `index`: the first chunk of its frame, when that was the
    /// last. A frame of one chunk is always done with.
    pub(super) fn done(&mut self, index: usize) -> Done {
        let Some(beyond) = index.checked_sub(self.first) else {
            return Done::Frame(index);
        };
        let part = beyond % self.chunks;
        let first = index - part;
        match self.of(first) {
            Some(out) if *out & (1 << part) != 0 => {
                *out &= !(1 << part);
                if *out == 0 {
                    Done::Frame(first)
                } else {
                    Done::Part
                }
            }
            _ => Done::Never,
        }
    }

    fn of(&mut self, index: usize) -> Option<&mut u8> {
        let beyond = index.checked_sub(self.first)?;
        self.out.get_mut(beyond / self.chunks)
    }
}

/// What a chunk that the kernel gave back makes of its frame.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Done {
    /// The kernel has nothing of the frame that begins with this chunk, if it had that.
    Frame(usize),
    /// It has others of the frame.
    Part,
    /// It did not have this one.
    Never,
}

#[cfg(test)]
mod tests;
