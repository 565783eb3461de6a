//! The shard's own timeouts of connections: start-up, answer, close. TCP has timers of its own.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use userspace_net::Instant;
use userspace_tcp::ConnId;

/// A heap of deadlines. An entry that its connection has replaced since is skipped when it comes
/// up; when there are too many of those, [`Deadlines::compact`] drops them.
#[derive(Debug)]
pub(in crate::shard) struct Deadlines {
    heap: BinaryHeap<Reverse<(Instant, ConnId)>>,
    bound: usize,
}

impl Deadlines {
    pub fn new(connections: usize) -> Self {
        let bound = 2 * connections + 1;
        Self {
            heap: BinaryHeap::with_capacity(bound),
            bound,
        }
    }

    pub fn set(&mut self, at: Instant, conn: ConnId) {
        self.heap.push(Reverse((at, conn)));
    }

    /// More entries than connections can account for.
    pub fn is_crowded(&self) -> bool {
        self.heap.len() >= self.bound
    }

    /// Keeps the entries that are still meant: at most one for each connection, if
    /// [`Self::is_crowded`] is asked before each [`Self::set`].
    pub fn compact(&mut self, is_meant: impl Fn(Instant, ConnId) -> bool) {
        self.heap.retain(|Reverse((at, conn))| is_meant(*at, *conn));
    }

    pub fn next(&self) -> Option<Instant> {
        self.heap.peek().map(|Reverse((at, _))| *at)
    }

    /// A connection whose deadline may have come, and that deadline.
    pub fn expired(&mut self, now: Instant) -> Option<(Instant, ConnId)> {
        self.next().filter(|at| *at <= now)?;
        self.heap.pop().map(|Reverse(entry)| entry)
    }
}
