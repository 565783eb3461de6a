//! Pieces of received frames, in stream order. The table is allocated once, because the number of pieces is
//! bounded. There are [`NEW_RANGES_MAX`] for each frame of the UMEM when it arrives, and one more for each FPDU that
//! is placed early in the middle of one.

#[cfg(doc)]
use userspace_tcp::NEW_RANGES_MAX;

use super::list::{List, NONE, Nodes};
use super::parked_frames::{ParkedFrames, Piece};

/// The pieces of one connection, in the order of the stream.
#[derive(Debug, Default)]
pub(super) struct PieceList {
    list: List,
}

impl PieceList {
    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    /// Puts a piece where it belongs; most belong at the end.
    pub(super) fn insert(&mut self, pieces: &mut Nodes<Piece>, piece: Piece) {
        let previous = self.last_before(pieces, piece.offset);
        self.list.insert_behind(pieces, previous, piece);
    }

    /// The last piece that begins at `offset` or before.
    fn last_before(&self, pieces: &Nodes<Piece>, offset: u64) -> u32 {
        self.list.last_that(pieces, |piece| piece.offset <= offset)
    }

    /// The pieces from the one at `offset` on, and at most `back` before it that lead to it without
    /// a gap.
    pub(super) fn run<'a>(
        &self,
        pieces: &'a Nodes<Piece>,
        offset: u64,
        back: usize,
    ) -> impl Iterator<Item = &'a Piece> {
        let mut first = self.last_before(pieces, offset);
        for _ in 0..back {
            let before = pieces.before(first);
            let leads = match (pieces.get(before), pieces.get(first)) {
                (Some(before), Some(this)) => before.end() == this.offset,
                _ => false,
            };
            if !leads {
                break;
            }
            first = before;
        }
        pieces.from(first)
    }

    /// Takes the bytes from `start` to `end` out; `release` is notified of each frame that holds none
    /// of a piece any more.
    pub(super) fn cut_out(
        &mut self,
        held: &mut ParkedFrames,
        start: u64,
        end: u64,
        mut release: impl FnMut(&mut ParkedFrames, u32),
    ) {
        let mut index = self.last_before(&held.pieces, end.saturating_sub(1));
        while index != NONE {
            let previous = held.pieces.before(index);
            let Some(slot) = held.pieces.get_mut(index) else {
                return;
            };
            let piece = *slot;
            if piece.end() <= start {
                return;
            }
            match (piece.before(start), piece.from(end)) {
                (None, None) => {
                    self.list.remove(&mut held.pieces, index);
                    release(held, piece.held);
                }
                (Some(rest), None) | (None, Some(rest)) => *slot = rest,
                (Some(before), Some(behind)) => {
                    *slot = before;
                    self.list.insert_behind(&mut held.pieces, index, behind);
                    held.share(piece.held);
                }
            }
            index = previous;
        }
    }

    pub(super) fn front_mut<'a>(&self, pieces: &'a mut Nodes<Piece>) -> Option<&'a mut Piece> {
        pieces.get_mut(self.list.first())
    }

    pub(super) fn pop_front(&mut self, pieces: &mut Nodes<Piece>) -> Option<Piece> {
        self.list.remove(pieces, self.list.first())
    }

    pub(super) fn iter<'a>(&self, pieces: &'a Nodes<Piece>) -> impl Iterator<Item = &'a Piece> {
        pieces.from(self.list.first())
    }
}
