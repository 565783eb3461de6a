//! FPDUs that were placed before the bytes ahead of them in the stream arrived. Their frames are free again;
//! only what Delivery needs is kept of each.
//!
//! Three bounds hold: the receive window, [`PLACED_MAX`], and the table that all connections of a shard
//! share. An FPDU that is placed early takes its bytes of the receive window until it is delivered, and has
//! at least [`FPDU_MIN`] bytes.

use super::list::{List, NONE, Nodes};

/// FPDUs that one look places at most.
pub(crate) const PLACED_AT_ONCE: usize = 8;

/// Bytes of a DDP Segment's header: the longer of the two.
pub(crate) const DDP_HEADER_MAX: usize = 18;

/// Bytes of the shortest FPDU that is worth a note: a tagged header and one byte.
pub(crate) const FPDU_MIN: usize = 24;

/// FPDUs of one connection that may be noted at a time; those beyond wait in their frames.
const PLACED_MAX: usize = 4096;

/// An FPDU whose payload is where it belongs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Placed {
    /// Its first byte in the stream.
    pub start: u64,
    /// The stream offset after its last byte.
    pub end: u64,
    /// Its DDP Segment's header, and the RDMAP header after it.
    pub header: [u8; DDP_HEADER_MAX],
    /// Bytes of its ULPDU; [`DELIVERED`] when it was delivered too.
    pub ulpdu_len: u16,
}

/// The ULPDU length of an FPDU that was delivered before its turn. No ULPDU is that short.
pub(crate) const DELIVERED: u16 = 0;

/// The FPDUs of one connection that were placed early, in the order of the stream.
#[derive(Debug, Default)]
pub(crate) struct PlacedList {
    list: List,
    /// A copy of the first, which is looked at for every segment in order.
    first: Option<Placed>,
}

impl PlacedList {
    /// Whether there may be so many more.
    pub(super) fn has_room(&self, table: &Nodes<Placed>, more: usize) -> bool {
        self.list.len() + more <= PLACED_MAX && table.has_room(more)
    }

    /// Adds one that overlaps none of the others; there is room for it.
    pub(super) fn insert(&mut self, table: &mut Nodes<Placed>, placed: Placed) {
        let previous = self
            .list
            .last_that(table, |other| other.start < placed.start);
        self.list.insert_behind(table, previous, placed);
        self.find_first(table);
    }

    fn find_first(&mut self, table: &Nodes<Placed>) {
        self.first = table.get(self.list.first()).copied();
    }

    pub(super) fn first(&self) -> Option<&Placed> {
        self.first.as_ref()
    }

    /// Takes the first away.
    pub(super) fn pop_first(&mut self, table: &mut Nodes<Placed>) -> Option<Placed> {
        let first = self.list.remove(table, self.list.first());
        self.find_first(table);
        first
    }

    /// Whether one ends right here: then the next FPDU begins here.
    pub(super) fn ends_at(&self, table: &Nodes<Placed>, offset: u64) -> bool {
        let before = self.list.last_that(table, |other| other.end <= offset);
        table.get(before).is_some_and(|placed| placed.end == offset)
    }

    /// The first that begins at `offset` or behind it.
    pub(super) fn first_from(&self, table: &Nodes<Placed>, offset: u64) -> Option<Placed> {
        let before = self.list.last_that(table, |other| other.start < offset);
        let from = match before {
            NONE => self.list.first(),
            before => before,
        };
        let mut placed = table.from(from);
        placed.find(|placed| placed.start >= offset).copied()
    }

    /// The one that begins at `offset` was delivered too.
    pub(super) fn delivered(&mut self, table: &mut Nodes<Placed>, offset: u64) {
        let at = self.list.last_that(table, |other| other.start <= offset);
        if let Some(placed) = table.get_mut(at)
            && placed.start == offset
        {
            placed.ulpdu_len = DELIVERED;
        }
        self.find_first(table);
    }

    /// Forgets all.
    pub(super) fn clear(&mut self, table: &mut Nodes<Placed>) {
        while self.pop_first(table).is_some() {}
    }
}
