//! What the queue pairs of a shard borrow: memory for their queues, and a work request to look into.

use rnic_ipc::ring::WorkRequest;
use rnic_proto::enhanced::MAX_READ_DEPTH;

use super::pending::Entry;
use super::response::Response;
use super::spares::Spares;

/// Memory that the queue pairs of a shard borrow.
#[derive(Debug, Default)]
pub struct QueuePool {
    pub(super) pending: Spares<Entry>,
    pub(super) responses: Spares<Response>,
    /// A receive that is looked at and not taken.
    pub(super) receive: WorkRequest,
}

impl QueuePool {
    /// A queue pair was made whose send queue has `sq_depth` work requests at most.
    pub(super) fn queue_pair_added(&mut self, sq_depth: usize) {
        self.pending.expect(sq_depth);
        self.responses.expect(RESPONSES_MAX);
    }

    /// Queues that have memory.
    pub fn count(&self) -> usize {
        self.pending.lent() + self.responses.lent()
    }

    /// One of these is gone.
    pub(super) fn queue_pair_removed(&mut self, sq_depth: usize) {
        self.pending.forget(sq_depth);
        self.responses.forget(RESPONSES_MAX);
    }
}

/// Requests of a peer's that wait to be answered: Reads, and beside them as many Atomic Operations.
pub(super) const RESPONSES_MAX: usize = 2 * MAX_READ_DEPTH as usize;
