//! What a stack holds at a moment, counted piece by piece: a leak of any table, timer or lent storage
//! shows here. Counting walks through everything.

/// What a [`crate::Stack`] holds. With nothing connected, and everything fetched that there was to
/// fetch, every number is 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ResourceUsage {
    /// Connections, those in TIME-WAIT included.
    pub connections: usize,
    /// Entries of the flow table, and marks of flows that stand behind their place.
    pub flows: usize,
    /// Local ends in use, and marks as above.
    pub local_ends: usize,
    /// Connections that wait for their turn to send.
    pub ready: usize,
    /// Connections in the SYN queues of all listeners.
    pub half_open: usize,
    /// Connections in TIME-WAIT.
    pub time_waits: usize,
    /// Deadlines in the timing wheel.
    pub deadlines: usize,
    /// Send queues lent.
    pub send_queues: usize,
    /// Sets of out-of-order ranges lent.
    pub range_sets: usize,
    /// Events, buffers and answers to unknown flows that nobody has fetched.
    pub unfetched: usize,
}
