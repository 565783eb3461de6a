//! Shared receive queues.

use rnic_ipc::control::Refusal;
use rnic_ipc::id::{ClientId, PdId, SrqId};

use super::rings::WorkQueue;
use super::{Prm, Srq};
use crate::grant::{SrqGrant, SrqRemoval, SrqUse};
use crate::limits::Resource;
use crate::refusal::{self, Kind};
use crate::refused::Single;
use crate::table::Phase;

impl Prm {
    /// A new shared receive queue.
    ///
    /// # Errors
    ///
    /// `UnknownObject` for the PD; `Malformed` for a depth or a number of elements of 0; `Limit`.
    pub fn create_srq(
        &mut self,
        client: ClientId,
        pd: PdId,
        depth: u32,
        max_sge: u32,
    ) -> Result<SrqGrant, Refusal> {
        self.check_pd(client, pd)?;
        let srq = self.check_new_srq(client, pd, depth, max_sge)?;
        let amounts = srq.amounts();
        let most = self.limits.device.shared_receive_queues;
        let id = self
            .srqs
            .insert(client, Phase::Coming, srq)
            .ok_or_else(|| refusal::full(Kind::Srq, most))?;
        self.charge(client, &amounts);
        self.use_pd(pd);
        Ok(SrqGrant {
            client,
            srq: SrqId(id),
            depth,
            max_sge,
        })
    }

    /// That a client may have one more shared receive queue with this depth and max_sge.
    pub(super) fn check_new_srq(
        &mut self,
        client: ClientId,
        pd: PdId,
        depth: u32,
        max_sge: u32,
    ) -> Result<Srq, Refusal> {
        self.check_range("a shared receive queue", depth, Single::QueueDepth)?;
        self.check_range("a max_sge", max_sge, Single::Sges)?;
        let slots = self.check_ring(&WorkQueue {
            what: "a shared receive queue",
            depth,
            places: max_sge,
            because: format!("max_sge {max_sge}"),
        })?;
        let srq = Srq { pd, depth, slots };
        self.check_quota(client, &srq.amounts())?;
        Ok(srq)
    }

    /// The shard has the shared receive queue.
    pub fn srq_created(&mut self, grant: SrqGrant) {
        if let Some(slot) = self.srqs.get_mut(grant.srq.0) {
            slot.phase = Phase::Live;
        }
    }

    /// The shared receive queue did not come about.
    pub fn srq_failed(&mut self, grant: SrqGrant) {
        self.forget_srq(grant.srq);
    }

    /// Leave to arm a shared receive queue's limit.
    ///
    /// # Errors
    ///
    /// `UnknownObject`.
    pub fn use_srq(&self, client: ClientId, srq: SrqId) -> Result<SrqUse, Refusal> {
        match self.srqs.live(client, srq.0) {
            Some(_) => Ok(SrqUse { srq }),
            None => Err(refusal::unknown(Kind::Srq, srq)),
        }
    }

    /// Begins to remove a shared receive queue.
    ///
    /// # Errors
    ///
    /// `UnknownObject`; `Busy` while a queue pair takes from it, also a leaving one.
    pub fn destroy_srq(&mut self, client: ClientId, srq: SrqId) -> Result<SrqRemoval, Refusal> {
        let slot = self
            .srqs
            .live_mut(client, srq.0)
            .ok_or_else(|| refusal::unknown(Kind::Srq, srq))?;
        if slot.users > 0 {
            return Err(refusal::busy(Kind::Srq, srq, slot.users, "queue pairs"));
        }
        slot.phase = Phase::Leaving;
        Ok(SrqRemoval { srq })
    }

    /// The shard has the shared receive queue no more.
    pub fn srq_removed(&mut self, removal: SrqRemoval) {
        self.forget_srq(removal.srq);
    }

    /// That a queue pair of this domain may take from the queue: it is the client's and of the same
    /// domain, so that its receives' memory is the queue pair's too.
    pub(super) fn check_srq(&self, client: ClientId, srq: SrqId, pd: PdId) -> Result<(), Refusal> {
        let slot = self
            .srqs
            .live(client, srq.0)
            .ok_or_else(|| refusal::unknown(Kind::Srq, srq))?;
        if slot.object.pd == pd {
            return Ok(());
        }
        Err(refusal::wrong_pd(Kind::Srq, srq, slot.object.pd, pd))
    }

    pub(super) fn use_of_srq(&mut self, srq: Option<SrqId>) {
        if let Some(slot) = srq.and_then(|srq| self.srqs.get_mut(srq.0)) {
            slot.users += 1;
        }
    }

    pub(super) fn end_of_use_of_srq(&mut self, srq: Option<SrqId>) {
        if let Some(slot) = srq.and_then(|srq| self.srqs.get_mut(srq.0)) {
            slot.users = slot.users.saturating_sub(1);
        }
    }

    pub(super) fn forget_srq(&mut self, srq: SrqId) {
        if let Some(slot) = self.srqs.remove(srq.0) {
            self.unuse_pd(slot.object.pd);
            self.discharge(slot.owner, &slot.object.amounts());
        }
    }
}

impl Srq {
    fn amounts(&self) -> [(Resource, u64); 3] {
        [
            (Resource::SharedReceiveQueues, 1),
            (Resource::RingEntries, self.slots),
            (Resource::OutstandingWork, self.depth.into()),
        ]
    }
}
