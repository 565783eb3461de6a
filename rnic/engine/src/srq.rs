//! Shared receive queues of a shard: several queue pairs of one protection domain take receives from one
//! queue, each Send the oldest entry (the S-RQ of the RDMA verbs for iWARP).
//!
//! A queue pair holds at most one receive of the queue: that of the Send which is arriving. So a peer that
//! stops in the middle of its Sends, or a queue pair that ends, withholds one receive from the others and no
//! more. A Send that finds none ends its own stream and no other, or waits for the next receive in the order in which
//! the queue pairs began to wait.

use rnic_ipc::id::{ClientId, SrqId};
use rnic_ipc::ring::{RingFault, WorkQueueConsumer, WorkRequest};

use crate::slot_table::SlotTable;

#[cfg(test)]
mod tests;

/// All the shared receive queues of a shard.
#[derive(Debug, Default)]
pub struct SrqTable {
    queues: SlotTable<Srq>,
    /// Queues that fell below their limit since the owner asked last; each at most once.
    reached: Vec<SrqId>,
}

#[derive(Debug)]
struct Srq {
    client: ClientId,
    ring: WorkQueueConsumer,
    max_sge: usize,
    /// Tell when fewer receives than that wait; 0 when nothing is to be told.
    limit: u32,
    /// It is in the table's list of those to tell of.
    told: bool,
    /// Queue pairs whose Sends wait for its next receives.
    waiting: u32,
}

impl SrqTable {
    /// An empty table that tells of up to `capacity` queues without allocating.
    pub fn new(capacity: usize) -> Self {
        Self {
            queues: SlotTable::new(capacity),
            reached: Vec::with_capacity(capacity),
        }
    }

    /// Adds a queue whose receives have up to `max_sge` elements. False, and nothing done, when
    /// there is one of this name already.
    pub fn add(
        &mut self,
        client: ClientId,
        srq: SrqId,
        max_sge: usize,
        ring: WorkQueueConsumer,
    ) -> bool {
        if self.queues.contains(srq.0) {
            return false;
        }
        let queue = Srq {
            client,
            ring,
            max_sge,
            limit: 0,
            told: false,
            waiting: 0,
        };
        self.queues.insert(srq.0, queue);
        true
    }

    /// Takes a queue away that no queue pair uses any more. False when there is none.
    pub fn remove(&mut self, srq: SrqId) -> bool {
        self.reached.retain(|other| *other != srq);
        self.queues.remove(srq.0).is_some()
    }

    /// Queues whose memory is gone, and whose they are.
    pub fn broken(&self) -> impl Iterator<Item = (ClientId, SrqId)> {
        let broken = self.queues.iter().filter(|(_, srq)| srq.ring.is_broken());
        broken.map(|(name, srq)| (srq.client, SrqId(name)))
    }

    /// Queues in the table.
    pub fn len(&self) -> usize {
        self.queues.len()
    }

    /// Are there none?
    pub fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    /// Elements that a receive of this queue may have; none when there is no such queue.
    pub fn max_sge(&self, srq: SrqId) -> Option<usize> {
        self.queues.get(srq.0).map(|queue| queue.max_sge)
    }

    /// Tells once, by [`Self::poll_limit`], when fewer than `limit` receives wait: at once when that
    /// is so now. 0 takes an earlier wish back. False when there is no such queue.
    pub fn arm(&mut self, srq: SrqId, limit: u32) -> bool {
        let Some(queue) = self.queues.get_mut(srq.0) else {
            return false;
        };
        queue.limit = limit;
        queue.watch(srq, &mut self.reached);
        true
    }

    /// Takes the oldest receive, if there is one, into `into`.
    pub(crate) fn pop(&mut self, srq: SrqId, into: &mut WorkRequest) -> Result<bool, RingFault> {
        let Some(queue) = self.queues.get_mut(srq.0) else {
            return Ok(false);
        };
        let found = queue.ring.pop(into)?;
        queue.watch(srq, &mut self.reached);
        Ok(found)
    }

    /// Whether no receive waits. A broken ring counts as one that has some: `pop` will tell.
    pub(crate) fn has_none(&self, srq: SrqId) -> bool {
        let queue = self.queues.get(srq.0);
        queue.is_none_or(|queue| queue.ring.is_empty())
    }

    /// A Send of one queue pair more waits for the next receive.
    pub(crate) fn wait(&mut self, srq: SrqId) {
        if let Some(queue) = self.queues.get_mut(srq.0) {
            queue.waiting += 1;
        }
    }

    /// One less does.
    pub(crate) fn end_wait(&mut self, srq: SrqId) {
        if let Some(queue) = self.queues.get_mut(srq.0) {
            queue.waiting = queue.waiting.saturating_sub(1);
        }
    }

    /// Whether Sends wait for the next receive.
    pub(crate) fn has_waiting(&self, srq: SrqId) -> bool {
        self.queues
            .get(srq.0)
            .is_some_and(|queue| queue.waiting > 0)
    }

    /// Whether [`Self::poll_limit`] has something to tell.
    pub fn has_notifications(&self) -> bool {
        !self.reached.is_empty()
    }

    /// The next queue that fell below its limit, and whose it is. It is disarmed.
    pub fn poll_limit(&mut self) -> Option<(ClientId, SrqId)> {
        while let Some(srq) = self.reached.pop() {
            if let Some(queue) = self.queues.get_mut(srq.0) {
                queue.told = false;
                return Some((queue.client, srq));
            }
        }
        None
    }
}

impl Srq {
    /// Looks whether the limit is reached.
    fn watch(&mut self, srq: SrqId, reached: &mut Vec<SrqId>) {
        // A broken ring is reported by the next pop.
        if self.limit == 0
            || self
                .ring
                .waiting()
                .is_ok_and(|waiting| waiting >= self.limit)
        {
            return;
        }
        self.limit = 0;
        if !std::mem::replace(&mut self.told, true) {
            reached.push(srq);
        }
    }
}
