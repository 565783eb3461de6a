//! Pieces of received frames, of all connections of a shard, in one table: a connection that holds
//! none has no memory for them. There are at most [`NEW_RANGES_MAX`] for each frame of the UMEM when
//! it comes, so the table is made once; only where FPDUs in the middle of frames are placed early,
//! and their neighbours are not, can there be more.

use rnic_xsk::Umem;
use userspace_tcp::NEW_RANGES_MAX;

use super::held::HeldFrames;

/// No piece.
const NONE: u32 = u32::MAX;

/// Octets of the stream that lie in a held frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    /// Place of the first octet in the stream.
    pub offset: u64,
    /// The frame's name.
    pub held: u32,
    /// Place of the first octet in the frame.
    pub start: u32,
    pub len: u32,
}

impl Piece {
    /// Behind its last octet.
    pub(super) fn end(&self) -> u64 {
        self.offset + u64::from(self.len)
    }

    pub(super) fn octets<'a>(&self, umem: &'a Umem, held: &'a HeldFrames) -> &'a [u8] {
        let start = self.start as usize;
        let octets = held.bytes(umem, self.held);
        octets.get(start..start + self.len as usize).unwrap_or(&[])
    }

    /// What of it lies before `offset`.
    fn before(&self, offset: u64) -> Option<Self> {
        let len = offset.min(self.end()).checked_sub(self.offset)? as u32;
        (len > 0).then_some(Self { len, ..*self })
    }

    /// What of it lies at `offset` and behind.
    fn from(&self, offset: u64) -> Option<Self> {
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

/// The table.
#[derive(Debug)]
pub(super) struct Pieces {
    nodes: Vec<Node>,
    /// The first vacant node, linked by `next`.
    vacant: u32,
}

#[derive(Debug)]
struct Node {
    piece: Piece,
    previous: u32,
    next: u32,
}

/// The pieces of one connection, in the order of the stream.
#[derive(Debug)]
pub(super) struct PieceList {
    first: u32,
    last: u32,
    len: usize,
}

impl Pieces {
    /// Room for the pieces of so many frames.
    pub(super) fn new(frames: usize) -> Self {
        Self {
            nodes: Vec::with_capacity(frames.saturating_mul(NEW_RANGES_MAX)),
            vacant: NONE,
        }
    }

    fn node(&mut self, index: u32) -> Option<&mut Node> {
        self.nodes.get_mut(index as usize)
    }

    fn take(&mut self, node: Node) -> u32 {
        let index = self.vacant;
        if let Some(vacant) = self.nodes.get_mut(index as usize) {
            self.vacant = vacant.next;
            *vacant = node;
            return index;
        }
        self.nodes.push(node);
        self.nodes.len() as u32 - 1
    }
}

impl PieceList {
    pub(super) const fn new() -> Self {
        Self {
            first: NONE,
            last: NONE,
            len: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Puts a piece where it belongs; most belong at the end.
    pub(super) fn insert(&mut self, pieces: &mut Pieces, piece: Piece) {
        let previous = self.last_before(pieces, piece.offset);
        self.insert_behind(pieces, previous, piece);
    }

    /// The last piece that begins at `offset` or before.
    fn last_before(&self, pieces: &Pieces, offset: u64) -> u32 {
        let mut index = self.last;
        while let Some(node) = pieces.nodes.get(index as usize)
            && node.piece.offset > offset
        {
            index = node.previous;
        }
        index
    }

    fn insert_behind(&mut self, pieces: &mut Pieces, previous: u32, piece: Piece) {
        let next = match pieces.node(previous) {
            Some(node) => node.next,
            None => self.first,
        };
        let index = pieces.take(Node {
            piece,
            previous,
            next,
        });
        match pieces.node(previous) {
            Some(node) => node.next = index,
            None => self.first = index,
        }
        match pieces.node(next) {
            Some(node) => node.previous = index,
            None => self.last = index,
        }
        self.len += 1;
    }

    fn remove(&mut self, pieces: &mut Pieces, index: u32) {
        let vacant = pieces.vacant;
        let Some(node) = pieces.node(index) else {
            return;
        };
        let (previous, next) = (node.previous, node.next);
        node.next = vacant;
        pieces.vacant = index;
        match pieces.node(previous) {
            Some(node) => node.next = next,
            None => self.first = next,
        }
        match pieces.node(next) {
            Some(node) => node.previous = previous,
            None => self.last = previous,
        }
        self.len -= 1;
    }

    /// The pieces from the one at `offset` on, and at most `back` before it that lead to it without
    /// a gap.
    pub(super) fn run<'a>(
        &self,
        pieces: &'a Pieces,
        offset: u64,
        back: usize,
    ) -> impl Iterator<Item = &'a Piece> {
        let node = |index: u32| pieces.nodes.get(index as usize);
        let mut first = node(self.last_before(pieces, offset));
        for _ in 0..back {
            let before = first.and_then(|this| {
                node(this.previous).filter(|before| before.piece.end() == this.piece.offset)
            });
            let Some(before) = before else { break };
            first = Some(before);
        }
        let nodes = std::iter::successors(first, move |last| node(last.next));
        nodes.map(|node| &node.piece)
    }

    /// Takes the octets from `start` to `end` out; `release` is told of each frame that holds none
    /// of a piece any more.
    pub(super) fn cut_out(
        &mut self,
        held: &mut HeldFrames,
        start: u64,
        end: u64,
        mut release: impl FnMut(&mut HeldFrames, u32),
    ) {
        let mut index = self.last_before(&held.pieces, end.saturating_sub(1));
        while let Some(node) = held.pieces.node(index) {
            let (piece, previous) = (node.piece, node.previous);
            if piece.end() <= start {
                return;
            }
            match (piece.before(start), piece.from(end)) {
                (None, None) => {
                    self.remove(&mut held.pieces, index);
                    release(held, piece.held);
                }
                (Some(rest), None) | (None, Some(rest)) => node.piece = rest,
                (Some(before), Some(behind)) => {
                    node.piece = before;
                    self.insert_behind(&mut held.pieces, index, behind);
                    held.share(piece.held);
                }
            }
            index = previous;
        }
    }

    pub(super) fn front_mut<'a>(&self, pieces: &'a mut Pieces) -> Option<&'a mut Piece> {
        pieces.node(self.first).map(|node| &mut node.piece)
    }

    pub(super) fn pop_front(&mut self, pieces: &mut Pieces) -> Option<Piece> {
        let index = self.first;
        let piece = pieces.node(index)?.piece;
        self.remove(pieces, index);
        Some(piece)
    }

    pub(super) fn iter<'a>(&self, pieces: &'a Pieces) -> impl Iterator<Item = &'a Piece> {
        let node = |index: u32| pieces.nodes.get(index as usize);
        let nodes = std::iter::successors(node(self.first), move |last| node(last.next));
        nodes.map(|node| &node.piece)
    }
}
