//! FPDUs that were placed before those ahead of them in the stream had come. Their frames are free
//! again; what is left of each is what delivering it takes.
//!
//! Bounded by the receive window: an FPDU that is placed early takes its octets of it until it is
//! delivered, and the smallest is [`FPDU_MIN`] octets long.

use std::collections::VecDeque;

/// Octets of a DDP Segment's header: the longer of the two.
pub(crate) const DDP_HEADER_MAX: usize = 18;

/// Octets of the shortest FPDU that is worth a note: a tagged header and one octet.
pub(crate) const FPDU_MIN: usize = 24;

/// FPDUs of one connection that may be noted at a time; those beyond wait in their frames.
const PLACED_MAX: usize = 4096;

/// An FPDU whose payload is where it belongs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Placed {
    /// Its first octet in the stream.
    pub start: u64,
    /// Behind its last octet.
    pub end: u64,
    /// Its DDP Segment's header, and what is behind it.
    pub header: [u8; DDP_HEADER_MAX],
    /// Octets of its ULPDU.
    pub ulpdu_len: u16,
}

/// The FPDUs of one connection that were placed early, in the order of the stream.
#[derive(Debug, Default)]
pub(crate) struct PlacedList {
    list: VecDeque<Placed>,
}

impl PlacedList {
    /// Whether there may be one more.
    pub fn has_room(&self) -> bool {
        self.list.len() < PLACED_MAX
    }

    /// Adds one that overlaps none of the others.
    pub fn insert(&mut self, placed: Placed) {
        let at = self
            .list
            .partition_point(|other| other.start < placed.start);
        self.list.insert(at, placed);
    }

    /// The first.
    pub fn first(&self) -> Option<&Placed> {
        self.list.front()
    }

    /// Takes the first away.
    pub fn pop_first(&mut self) -> Option<Placed> {
        self.list.pop_front()
    }

    /// Whether one ends right here: then the next FPDU begins here.
    pub fn ends_at(&self, offset: u64) -> bool {
        let at = self.list.partition_point(|placed| placed.end < offset);
        self.list.get(at).is_some_and(|placed| placed.end == offset)
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.list = VecDeque::new();
    }
}
