//! How much of a ring a work queue takes: what the device will make, and what is charged for it.

use rnic_ipc::control::{Refusal, Request};
use rnic_ipc::id::ClientId;
use rnic_ipc::ring::{QpMemory, RING_SLOTS_MAX, slots_for};

use super::Prm;
use crate::refusal;
use crate::refused::Single;

/// A work queue as a client asks for it.
pub(super) struct WorkQueue {
    pub(super) what: &'static str,
    pub(super) depth: u32,
    /// Places of elements that each of its work requests may take.
    pub(super) places: u32,
    /// What makes them so many, for people.
    pub(super) because: String,
}

impl Prm {
    /// That what a request asks for is within the limits, before anything is looked for to make it from. That
    /// its objects are there is checked when it is granted.
    ///
    /// # Errors
    ///
    /// As of what grants it, for its sizes and numbers: `Malformed`, `Limit`.
    pub fn check_limits(&mut self, client: ClientId, request: &Request) -> Result<(), Refusal> {
        match request {
            Request::CreateCq { depth } => self.check_cq(client, *depth).map(drop),
            Request::ResizeCq { depth, .. } => self.check_cq_depth(*depth).map(drop),
            Request::CreateSrq { pd, depth, max_sge } => {
                let checked = self.check_new_srq(client, *pd, *depth, *max_sge);
                checked.map(drop)
            }
            Request::CreateQp(attributes) => self.check_qp(client, attributes).map(drop),
            Request::Listen(spec) => self.check_backlog(spec.backlog),
            _ => Ok(()),
        }
    }

    /// Slots of the ring that the queue gets: a power of two, so up to twice what it needs.
    pub(super) fn check_ring(&mut self, queue: &WorkQueue) -> Result<u64, Refusal> {
        if let Ok(slots) = QpMemory::slots(queue.depth, queue.places) {
            return Ok(slots.into());
        }
        self.refused.count(Single::QueueDepth);
        let each = slots_for(queue.places as usize);
        Err(refusal::limit(format!(
            "{what} of depth {depth} with {because} asked, but then each work request takes {each} \
             slots of a ring, which has {RING_SLOTS_MAX} at most: ask for a depth of at most {most}, or \
             for less in each",
            what = queue.what,
            depth = queue.depth,
            because = queue.because,
            most = RING_SLOTS_MAX / each,
        )))
    }
}
