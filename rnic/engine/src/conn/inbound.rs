//! What a connection received and its upper layer has not consumed: frames, parked without a copy.
//!
//! Pieces of frames are sorted by stream offset; those before `in_order` are contiguous. A peer that sends
//! tiny segments could hold a whole frame with each byte. So a connection switches to a bounce ring of the
//! receive window's size when it holds too many pieces, or when the shard has no frames to spare. It copies
//! into that ring until the ring has run empty.
//!
//! It never holds more than [`PIECES_MAX`] pieces and one window of bytes.

use rnic_xsk::{Frame, Umem};

use super::bounce::Bounce;
use super::early::{PLACED_AT_ONCE, Placed, PlacedList};
use super::parked_frames::{Frames, ParkedFrames, Piece};
use super::reorder_queue::PieceList;

/// Pieces of frames that one connection may hold: a window of 1 MiB in segments of 1460 bytes,
/// and some.
pub(crate) const PIECES_MAX: usize = 1024;

/// Slices that the layer above is given at a time. An FPDU that lies in more pieces is bounced.
pub(crate) const SLICES_MAX: usize = 64;

/// A part of a received frame that holds bytes never seen before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct NewRange {
    /// Place of the first byte in the stream.
    pub offset: u64,
    /// Place of the first byte in the frame.
    pub start: usize,
    /// Bytes.
    pub len: usize,
}

/// The stream bytes that are held for one connection.
#[derive(Debug)]
pub(crate) struct Inbound {
    /// Everything before this was consumed.
    consumed: u64,
    /// Everything before this has arrived.
    in_order: u64,
    /// One past the furthest byte that has arrived.
    furthest: u64,
    pieces: PieceList,
    /// What was placed ahead of its turn: no pieces any more, but bytes of the stream.
    placed: PlacedList,
    bounce: Bounce,
    window: usize,
}

/// TCP gave bytes that lie outside the window it was configured with: our own fault, and the
/// connection can't go on.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct OutsideWindow;

impl Inbound {
    /// Nothing received yet, and no memory taken yet. `window` is the receive window in bytes.
    pub fn new(window: u32) -> Self {
        Self {
            consumed: 0,
            in_order: 0,
            furthest: 0,
            pieces: PieceList::default(),
            placed: PlacedList::default(),
            bounce: Bounce::default(),
            window: window as usize,
        }
    }

    /// Bytes in order that are not consumed, up to those that were placed ahead of their turn.
    pub fn available(&self) -> usize {
        let placed = self.placed.first().map_or(u64::MAX, |placed| placed.start);
        (self.in_order.min(placed).saturating_sub(self.consumed)) as usize
    }

    /// The FPDU that was placed ahead of its turn, when that has come.
    pub fn next_placed(&self) -> Option<Placed> {
        let first = self.placed.first().copied();
        first.filter(|placed| placed.start == self.consumed && placed.end <= self.in_order)
    }

    /// Whether bytes that were placed ahead of their turn are in order now: what is
    /// [`Self::available`] before them must be whole FPDUs.
    pub fn reaches_placed(&self) -> bool {
        let first = self.placed.first();
        first.is_some_and(|placed| placed.start < self.in_order)
    }

    /// The layer above has dealt with [`Self::next_placed`].
    pub fn consume_placed(&mut self, frames: &mut Frames) {
        if self.next_placed().is_some()
            && let Some(placed) = self.placed.pop_first(&mut frames.held.placed)
        {
            self.consumed = placed.end;
            if self.is_empty() {
                self.bounce.stop(&mut frames.held.rings);
            }
        }
    }

    /// The bytes around `offset`, from at most `back` pieces before it, out of order and without a
    /// gap, as slices; where they begin, and how many slices were filled. None when they were copied,
    /// or may not be placed early.
    pub fn run<'a>(
        &'a self,
        offset: u64,
        back: usize,
        umem: &'a Umem,
        held: &'a ParkedFrames,
        out: &mut [&'a [u8]; SLICES_MAX],
    ) -> Option<(u64, usize)> {
        if self.bounce.is_active() || !self.placed.has_room(&held.placed, PLACED_AT_ONCE) {
            return None;
        }
        let run = self.pieces.run(&held.pieces, offset, back);
        let (mut start, mut next, mut filled) = (None, 0, 0);
        for (piece, slot) in run.zip(out.iter_mut()) {
            if start.is_some() && piece.offset != next {
                break;
            }
            start.get_or_insert(piece.offset);
            *slot = piece.bytes(umem, held);
            next = piece.end();
            filled += 1;
        }
        let start = start.filter(|&start| start >= self.in_order)?;
        Some((start, filled))
    }

    /// Whether an FPDU begins at `offset`, because one that was placed ends there.
    pub fn begins_at(&self, held: &ParkedFrames, offset: u64) -> bool {
        self.placed.ends_at(&held.placed, offset)
    }

    /// An FPDU out of a [`Self::run`] was placed: its pieces are needed no more. At most
    /// [`PLACED_AT_ONCE`] for each run.
    pub fn placed(&mut self, placed: Placed, frames: &mut Frames) {
        let Frames { held, pool, .. } = frames;
        self.pieces
            .cut_out(held, placed.start, placed.end, |held, frame| {
                held.release(frame, pool);
            });
        self.placed.insert(&mut held.placed, placed);
    }

    /// What lies in order from `offset` on, which is not before what was consumed: an FPDU that was placed ahead of
    /// its turn, or slices, with how many were filled.
    pub fn behind<'a>(
        &'a self,
        offset: u64,
        umem: &'a Umem,
        held: &'a ParkedFrames,
        out: &mut [&'a [u8]; SLICES_MAX],
    ) -> Result<Placed, usize> {
        let placed = self.placed.first_from(&held.placed, offset);
        let end = match placed {
            Some(placed) if placed.start == offset && placed.end <= self.in_order => {
                return Ok(placed);
            }
            Some(placed) => placed.start.min(self.in_order),
            None => self.in_order,
        };
        let len = end.saturating_sub(offset);
        if len == 0 {
            return Err(0);
        }
        if self.bounce.is_active() {
            let (first, second) = self.bounce.get(offset, len as usize);
            out[0] = first;
            out[1] = second;
            return Err(if second.is_empty() { 1 } else { 2 });
        }
        let mut filled = 0;
        for (piece, slot) in self
            .pieces
            .run(&held.pieces, offset, 0)
            .filter_map(|piece| piece.from(offset))
            .filter_map(|piece| piece.before(end))
            .zip(out.iter_mut())
        {
            *slot = piece.bytes(umem, held);
            filled += 1;
        }
        Err(filled)
    }

    /// Whether one FPDU more may be noted as [placed](Self::placed).
    pub fn can_note(&self, held: &ParkedFrames) -> bool {
        self.placed.has_room(&held.placed, 1)
    }

    /// The FPDU that was placed ahead of its turn at `offset` was delivered too.
    pub fn placed_delivered(&mut self, offset: u64, held: &mut ParkedFrames) {
        self.placed.delivered(&mut held.placed, offset);
    }

    /// Where the stream was consumed to.
    pub fn consumed_to(&self) -> u64 {
        self.consumed
    }

    /// Bytes in order that are not consumed, those that were placed ahead of their turn too.
    pub fn waiting(&self) -> u64 {
        self.in_order.saturating_sub(self.consumed)
    }

    /// Pieces of frames that are held.
    pub fn pieces(&self) -> usize {
        self.pieces.len()
    }

    /// Whether received bytes are copied at present.
    pub fn is_bouncing(&self) -> bool {
        self.bounce.is_active()
    }

    /// Whether nothing at all is held, so that in-order bytes may be shown to the layer above
    /// straight from their frame ([`Self::pass`]).
    pub fn is_empty(&self) -> bool {
        self.furthest == self.consumed
    }

    /// Bytes that were consumed from their frame without ever being held. Only when
    /// [`Self::is_empty`].
    pub fn pass(&mut self, bytes: usize) {
        debug_assert!(self.is_empty());
        self.consumed += bytes as u64;
        self.in_order = self.consumed;
        self.furthest = self.consumed;
    }

    /// Takes a frame with at least one new range. `spare` is false when the shard can't leave the
    /// frame here. `in_order` is how far the stream is complete with it.
    pub fn arrived(
        &mut self,
        frame: Frame,
        ranges: &[NewRange],
        in_order: u64,
        spare: bool,
        frames: &mut Frames,
    ) -> Result<(), OutsideWindow> {
        let end = self.consumed + self.window as u64;
        let inside = ranges.iter().all(|range| {
            range.offset >= self.consumed
                && range
                    .offset
                    .checked_add(range.len as u64)
                    .is_some_and(|last| last <= end)
        });
        if !inside || in_order < self.in_order {
            frames.pool.free(frame);
            return Err(OutsideWindow);
        }
        for range in ranges {
            self.furthest = self.furthest.max(range.offset + range.len as u64);
        }
        self.in_order = in_order;
        if !self.bounce.is_active() && (!spare || self.pieces.len() + ranges.len() > PIECES_MAX) {
            self.start_bouncing(frames);
        }
        if self.bounce.is_active() {
            let bytes = frames.umem.bytes(&frame);
            for range in ranges {
                if let Some(source) = bytes.get(range.start..range.start + range.len) {
                    self.bounce.put(range.offset, source);
                }
            }
            frames.pool.free(frame);
            return Ok(());
        }
        let held = frames.held.hold(frame, ranges.len());
        for range in ranges {
            let piece = Piece {
                offset: range.offset,
                held,
                start: range.start as u32,
                len: range.len as u32,
            };
            self.pieces.insert(&mut frames.held.pieces, piece);
        }
        Ok(())
    }

    /// The bytes in order, as slices; says how many slices were filled.
    pub fn slices<'a>(
        &'a self,
        umem: &'a Umem,
        held: &'a ParkedFrames,
        out: &mut [&'a [u8]; SLICES_MAX],
    ) -> usize {
        if self.bounce.is_active() {
            let (first, second) = self.bounce.get(self.consumed, self.available());
            out[0] = first;
            out[1] = second;
            return if second.is_empty() { 1 } else { 2 };
        }
        // No piece lies over the beginning of what was placed.
        let end = self.consumed + self.available() as u64;
        let mut filled = 0;
        for (piece, slot) in self.pieces.iter(&held.pieces).zip(out.iter_mut()) {
            if piece.offset >= end {
                break;
            }
            *slot = piece.bytes(umem, held);
            filled += 1;
        }
        filled
    }

    /// The layer above needs the first `bytes` in order no more.
    pub fn consume(&mut self, bytes: usize, frames: &mut Frames) {
        let bytes = bytes.min(self.available());
        self.consumed += bytes as u64;
        while let Some(piece) = self.pieces.front_mut(&mut frames.held.pieces) {
            let before = self.consumed.saturating_sub(piece.offset);
            if before < u64::from(piece.len) {
                piece.offset += before;
                piece.start += before as u32;
                piece.len -= before as u32;
                break;
            }
            let held = piece.held;
            self.pieces.pop_front(&mut frames.held.pieces);
            frames.held.release(held, &mut frames.pool);
        }
        if self.is_empty() {
            self.bounce.stop(&mut frames.held.rings);
        }
    }

    /// Copies all parked data to the bounce ring; data that arrives from now on is copied too.
    pub fn start_bouncing(&mut self, frames: &mut Frames) {
        self.bounce.start(&mut frames.held.rings, self.window);
        while let Some(piece) = self.pieces.pop_front(&mut frames.held.pieces) {
            let bytes = piece.bytes(&frames.umem, &frames.held);
            self.bounce.put(piece.offset, bytes);
            frames.held.release(piece.held, &mut frames.pool);
        }
    }

    /// Drops everything that is held; nothing more is expected.
    pub fn clear(&mut self, frames: &mut Frames) {
        while let Some(piece) = self.pieces.pop_front(&mut frames.held.pieces) {
            frames.held.release(piece.held, &mut frames.pool);
        }
        self.placed.clear(&mut frames.held.placed);
        self.consumed = self.furthest;
        self.in_order = self.furthest;
        self.bounce.stop(&mut frames.held.rings);
    }
}
