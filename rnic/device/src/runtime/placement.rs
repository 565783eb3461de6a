//! Which shard has which queue pair, and which connection request.
//!
//! A queue pair is made in the shard that has the fewest. It goes to that of its connection when it connects or
//! accepts. One with a shared receive queue stays where that is: a request that it accepts comes to it.

use std::collections::HashMap;

use rnic_ipc::id::{ConnRequestId, PdId, QpNum};
use rnic_ipc::ring::QpShard;

use super::FIRST;

/// Which shard has which queue pair.
#[derive(Debug)]
pub(crate) struct Placement {
    queue_pairs: HashMap<QpNum, QpPlacement>,
    /// Waiting requests that were moved, and where they are.
    requests: HashMap<ConnRequestId, usize>,
    /// Queue pairs of each shard.
    counts: Box<[usize]>,
}

#[derive(Debug)]
struct QpPlacement {
    shard: usize,
    pd: PdId,
    /// The word in memory shared with the client that names the shard.
    client_view: QpShard,
    /// Its shared receive queue is in that shard.
    pinned: bool,
}

impl Placement {
    /// For so many shards, at least one.
    pub(super) fn new(shards: usize) -> Self {
        Self {
            queue_pairs: HashMap::new(),
            requests: HashMap::new(),
            counts: vec![0; shards].into(),
        }
    }

    /// The shard for a new queue pair.
    pub(crate) fn home(&self, pinned: bool) -> usize {
        let fewest = self
            .counts
            .iter()
            .enumerate()
            .min_by_key(|(_, count)| **count);
        fewest.filter(|_| !pinned).map_or(FIRST, |(shard, _)| shard)
    }

    /// A queue pair was made in a shard.
    pub(crate) fn added(
        &mut self,
        (pd, qp): (PdId, QpNum),
        shard: usize,
        client_view: QpShard,
        pinned: bool,
    ) {
        let place = QpPlacement {
            shard,
            pd,
            client_view,
            pinned,
        };
        self.counts[shard] += 1;
        self.queue_pairs.insert(qp, place);
    }

    /// It is gone: the shard that had it, and its domain.
    pub(crate) fn removed(&mut self, qp: QpNum) -> Option<(usize, PdId)> {
        let place = self.queue_pairs.remove(&qp)?;
        self.counts[place.shard] -= 1;
        Some((place.shard, place.pd))
    }

    /// It is another shard's from now on: its client is notified.
    pub(super) fn moved(&mut self, qp: QpNum, to: usize) {
        if let Some(place) = self.queue_pairs.get_mut(&qp) {
            self.counts[place.shard] -= 1;
            self.counts[to] += 1;
            place.shard = to;
            // There are fewer than 256.
            place.client_view.set(to as u8);
        }
    }

    /// The shard that has it; the first one for a queue pair that does not exist: its answer says so.
    pub(crate) fn shard_of(&self, qp: QpNum) -> usize {
        self.queue_pairs.get(&qp).map_or(FIRST, |place| place.shard)
    }

    /// A connection request is in another shard from now on than where it came.
    pub(super) fn request_moved(&mut self, request: ConnRequestId, to: usize) {
        self.requests.insert(request, to);
    }

    pub(super) fn moved_request(&self, request: ConnRequestId) -> Option<usize> {
        self.requests.get(&request).copied()
    }

    /// A request was answered, or is gone.
    pub(crate) fn request_over(&mut self, request: ConnRequestId) {
        self.requests.remove(&request);
    }

    /// Whether it stays where it is.
    pub(super) fn is_pinned(&self, qp: QpNum) -> bool {
        self.queue_pairs.get(&qp).is_some_and(|place| place.pinned)
    }
}
