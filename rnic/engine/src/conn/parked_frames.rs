//! Received frames that connections hold, by their index in the UMEM.
//!
//! One frame may carry several pieces of a stream: it goes back to the pool with the last of them.

use rnic_xsk::{Frame, FramePool, Umem};

use userspace_tcp::NEW_RANGES_MAX;

use super::bounce::BounceRings;
use super::early::Placed;
use super::list::Nodes;

/// FPDUs that may be noted as placed early for each frame of the UMEM: so many small ones fit a
/// connection's window while their frames are in use again.
const PLACED_PER_FRAME: usize = 4;

/// The frames of a shard: those that are free, and those that connections hold.
#[derive(Debug)]
pub(crate) struct Frames {
    /// Their bytes.
    pub umem: Umem,
    pub pool: FramePool,
    /// Frames that connections hold.
    pub held: ParkedFrames,
}

#[derive(Debug)]
pub(crate) struct ParkedFrames {
    slots: Box<[Option<Held>]>,
    count: usize,
    /// What of them connections hold.
    pub(super) pieces: Nodes<Piece>,
    /// What connections held and placed before its turn.
    pub(super) placed: Nodes<Placed>,
    /// Where connections copy what they can't hold.
    pub(super) rings: BounceRings,
}

#[derive(Debug)]
struct Held {
    frame: Frame,
    uses: usize,
}

/// Bytes of the stream that lie in a held frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    /// Place of the first byte in the stream.
    pub offset: u64,
    /// The frame's name.
    pub held: u32,
    /// Place of the first byte in the frame.
    pub start: u32,
    pub len: u32,
}

impl Piece {
    /// The stream offset after its last byte.
    pub(super) fn end(&self) -> u64 {
        self.offset + u64::from(self.len)
    }

    pub(super) fn bytes<'a>(&self, umem: &'a Umem, held: &'a ParkedFrames) -> &'a [u8] {
        let start = self.start as usize;
        let bytes = held.bytes(umem, self.held);
        bytes.get(start..start + self.len as usize).unwrap_or(&[])
    }

    /// What of it lies before `offset`.
    pub(super) fn before(&self, offset: u64) -> Option<Self> {
        let len = offset.min(self.end()).checked_sub(self.offset)? as u32;
        (len > 0).then_some(Self { len, ..*self })
    }

    /// The part of it at `offset` and after.
    pub(super) fn from(&self, offset: u64) -> Option<Self> {
        let cut = offset.saturating_sub(self.offset);
        let len = u64::from(self.len)
            .checked_sub(cut)
            .filter(|&len| len > 0)?;
        Some(Self {
            offset: self.offset + cut,
            start: self.start + cut as u32,
            len: len as u32,
            ..*self
        })
    }
}

impl ParkedFrames {
    /// Room for every frame of a UMEM of `frames` frames, for connections whose receive windows are
    /// `window` bytes as a rule.
    pub fn new(frames: usize, window: usize) -> Self {
        let placed = frames.saturating_mul(PLACED_PER_FRAME);
        let pieces = frames.saturating_mul(NEW_RANGES_MAX);
        Self {
            slots: (0..frames).map(|_| None).collect(),
            count: 0,
            // Each FPDU that is placed may leave two pieces of one.
            pieces: Nodes::new(pieces.saturating_add(placed)),
            placed: Nodes::new(placed),
            rings: BounceRings::new(window),
        }
    }

    /// How many frames are held.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Holds a frame until it was released `uses` times (at least one); the number names it.
    pub fn hold(&mut self, frame: Frame, uses: usize) -> u32 {
        let index = frame.index();
        self.slots[index] = Some(Held { frame, uses });
        self.count += 1;
        index as u32
    }

    /// One use more of a held frame.
    pub fn share(&mut self, held: u32) {
        if let Some(Some(slot)) = self.slots.get_mut(held as usize) {
            slot.uses += 1;
        }
    }

    /// The bytes of a held frame; empty when the name is not held.
    pub fn bytes<'a>(&'a self, umem: &'a Umem, held: u32) -> &'a [u8] {
        match self.slots.get(held as usize) {
            Some(Some(slot)) => umem.bytes(&slot.frame),
            _ => &[],
        }
    }

    /// One use less; the last one frees the frame.
    pub fn release(&mut self, held: u32, pool: &mut FramePool) {
        let Some(slot) = self.slots.get_mut(held as usize) else {
            return;
        };
        let Some(Held { uses, .. }) = slot else {
            return;
        };
        *uses -= 1;
        if *uses == 0
            && let Some(held) = slot.take()
        {
            self.count -= 1;
            pool.free(held.frame);
        }
    }
}
