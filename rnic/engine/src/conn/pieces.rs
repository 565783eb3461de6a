//! Pieces of received frames, of all connections of a shard, in one table: a connection that holds
//! none has no memory for them. There are at most [`NEW_RANGES_MAX`] for each frame of the UMEM, so
//! the table is made once.

use userspace_tcp::NEW_RANGES_MAX;

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
        let (mut previous, mut next) = (self.last, NONE);
        while let Some(node) = pieces.node(previous)
            && node.piece.offset > piece.offset
        {
            (previous, next) = (node.previous, previous);
        }
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

    pub(super) fn front_mut<'a>(&self, pieces: &'a mut Pieces) -> Option<&'a mut Piece> {
        pieces.node(self.first).map(|node| &mut node.piece)
    }

    pub(super) fn pop_front(&mut self, pieces: &mut Pieces) -> Option<Piece> {
        let index = self.first;
        let vacant = pieces.vacant;
        let node = pieces.node(index)?;
        let (piece, next) = (node.piece, node.next);
        node.next = vacant;
        pieces.vacant = index;
        self.first = next;
        match pieces.node(next) {
            Some(node) => node.previous = NONE,
            None => self.last = NONE,
        }
        self.len -= 1;
        Some(piece)
    }

    pub(super) fn iter<'a>(&self, pieces: &'a Pieces) -> impl Iterator<Item = &'a Piece> {
        let node = |index: u32| pieces.nodes.get(index as usize);
        let nodes = std::iter::successors(node(self.first), move |last| node(last.next));
        nodes.map(|node| &node.piece)
    }
}
