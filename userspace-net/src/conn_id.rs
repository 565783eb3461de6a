//! The name of a connection.

/// Names a connection of one stack. A name is never used again: after the connection is gone every call with it says
/// so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnId {
    /// Its place, which no other living connection has.
    pub index: u32,
    /// Tells it from those that had the place before.
    pub generation: u32,
}

impl ConnId {
    /// Its place, as an index for the caller's own table. Compare the whole name before trusting an entry.
    pub const fn index(self) -> usize {
        self.index as usize
    }
}
