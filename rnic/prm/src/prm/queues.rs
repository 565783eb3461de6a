//! Completion queues and queue pairs.

use rnic_ipc::control::{QpAttributes, Refusal};
use rnic_ipc::id::{ClientId, CqId, QpNum};

use super::rings::WorkQueue;
use super::{Cq, Prm, Qp};
use crate::grant::{CqGrant, CqRemoval, CqResize, QpGrant, QpRemoval, QpUse};
use crate::limits::Resource;
use crate::refusal::{self, Kind};
use crate::refused::Single;
use crate::table::Phase;

impl Prm {
    /// A new completion queue of so many rings, one for each shard, of at least `depth` entries each.
    ///
    /// # Errors
    ///
    /// `Malformed` for a depth of 0; `Limit`.
    pub fn create_cq(
        &mut self,
        client: ClientId,
        depth: u32,
        rings: u32,
    ) -> Result<CqGrant, Refusal> {
        let cq = Cq {
            depth: self.check_cq(client, depth)?,
            rings,
        };
        let Cq { depth, .. } = cq;
        let (amounts, further) = (cq.amounts(), cq.further_entries());
        let id = self
            .cqs
            .insert(client, Phase::Coming, cq)
            .ok_or_else(|| refusal::full(Kind::Cq, self.limits.device.completion_queues))?;
        self.charge(client, &amounts);
        self.further_ring_entries += further;
        Ok(CqGrant {
            client,
            cq: CqId(id),
            depth,
        })
    }

    /// That a client may have one more completion queue of this depth: the depth that it gets.
    pub(super) fn check_cq(&mut self, client: ClientId, depth: u32) -> Result<u32, Refusal> {
        let depth = self.check_cq_depth(depth)?;
        let cq = Cq { depth, rings: 1 };
        self.check_quota(client, &cq.amounts())?;
        Ok(depth)
    }

    /// The same of the depth alone.
    pub(super) fn check_cq_depth(&mut self, depth: u32) -> Result<u32, Refusal> {
        self.check_range("a completion queue", depth, Single::CqDepth)?;
        // A limit that is no power of two may be passed by rounding; one beyond 2^31 can't.
        Ok(depth.checked_next_power_of_two().unwrap_or(1 << 31))
    }

    pub fn cq_created(&mut self, grant: CqGrant) {
        if let Some(slot) = self.cqs.get_mut(grant.cq.0) {
            slot.phase = Phase::Live;
        }
    }

    /// The completion queue did not come about.
    pub fn cq_failed(&mut self, grant: CqGrant) {
        self.forget_cq(grant.cq);
    }

    /// Other rings, of at least `depth` entries and of no fewer than there are. Until they are there both count.
    ///
    /// # Errors
    ///
    /// `UnknownObject`; `Malformed` for a depth of 0 or for fewer entries than there are; `Limit`.
    pub fn resize_cq(
        &mut self,
        client: ClientId,
        cq: CqId,
        depth: u32,
    ) -> Result<CqResize, Refusal> {
        let depth = self.check_cq_depth(depth)?;
        let slot = self
            .cqs
            .live(client, cq.0)
            .ok_or_else(|| refusal::unknown(Kind::Cq, cq))?;
        let Cq { depth: has, rings } = slot.object;
        if depth < has {
            return Err(refusal::malformed(format!(
                "completion queue {cq} can't have {depth} entries in place of {has}: ask for no fewer"
            )));
        }
        let wanted = Cq { depth, rings };
        let (amounts, further) = (wanted.ring_entries(), wanted.further_entries());
        self.check_quota(client, &[amounts])?;
        self.charge(client, &[amounts]);
        self.further_ring_entries += further;
        Ok(CqResize {
            client,
            cq,
            depth,
            rings,
        })
    }

    /// The shard has the new ring, or could not take it.
    pub fn cq_resized(&mut self, resize: CqResize, done: bool) {
        let CqResize {
            client,
            cq,
            depth,
            rings,
        } = resize;
        let mut unused = Cq { depth, rings };
        if done && let Some(slot) = self.cqs.get_mut(cq.0) {
            std::mem::swap(&mut slot.object, &mut unused);
        }
        self.discharge(client, &[unused.ring_entries()]);
        self.forget_further(unused);
    }

    /// Begins to remove a completion queue.
    ///
    /// # Errors
    ///
    /// `UnknownObject`; `Busy` while a queue pair uses it, also a leaving one.
    pub fn destroy_cq(&mut self, client: ClientId, cq: CqId) -> Result<CqRemoval, Refusal> {
        let slot = self
            .cqs
            .live_mut(client, cq.0)
            .ok_or_else(|| refusal::unknown(Kind::Cq, cq))?;
        if slot.users > 0 {
            return Err(refusal::busy(
                Kind::Cq,
                cq,
                slot.users,
                "queues of queue pairs",
            ));
        }
        slot.phase = Phase::Leaving;
        Ok(CqRemoval { cq })
    }

    /// The shard has the completion queue no more.
    pub fn cq_removed(&mut self, removal: CqRemoval) {
        self.forget_cq(removal.cq);
    }

    /// A new queue pair.
    ///
    /// # Errors
    ///
    /// - `UnknownObject` for the PD, a CQ or the shared receive queue.
    /// - `WrongPd` for the shared receive queue.
    /// - `Malformed` for a depth or a number of elements of 0.
    /// - `Limit`, also for inline data, and when no ring holds so much.
    pub fn create_qp(
        &mut self,
        client: ClientId,
        attributes: QpAttributes,
    ) -> Result<QpGrant, Refusal> {
        self.check_pd(client, attributes.pd)?;
        for cq in [attributes.send_cq, attributes.recv_cq] {
            if self.cqs.live(client, cq.0).is_none() {
                return Err(refusal::unknown(Kind::Cq, cq));
            }
        }
        if let Some(srq) = attributes.srq {
            self.check_srq(client, srq, attributes.pd)?;
        }
        let qp = self.check_qp(client, &attributes)?;
        let amounts = qp.amounts();
        let (pd, cqs) = (attributes.pd, [attributes.send_cq, attributes.recv_cq]);
        let id = self
            .qps
            .insert(client, Phase::Coming, qp)
            .ok_or_else(|| refusal::full(Kind::Qp, self.limits.device.queue_pairs))?;
        self.charge(client, &amounts);
        self.use_pd(pd);
        self.use_of_srq(attributes.srq);
        for cq in cqs {
            if let Some(slot) = self.cqs.get_mut(cq.0) {
                slot.users += 1;
            }
        }
        Ok(QpGrant {
            client,
            qp: QpNum(id),
            attributes,
        })
    }

    /// That a client may have one more queue pair with these attributes.
    pub(super) fn check_qp(
        &mut self,
        client: ClientId,
        attributes: &QpAttributes,
    ) -> Result<Qp, Refusal> {
        // Without a receive queue of its own one of any depth is asked for.
        let rq_depth = attributes.srq.map_or(attributes.rq_depth, |_| 1);
        for (what, asked, limit) in [
            ("a send queue", attributes.sq_depth, Single::QueueDepth),
            ("a receive queue", rq_depth, Single::QueueDepth),
            ("a max_sge", attributes.max_sge, Single::Sges),
        ] {
            self.check_range(what, asked, limit)?;
        }
        let most = self.limits.inline_bytes;
        if attributes.max_inline > most {
            let (limit, asked) = (Single::InlineBytes, attributes.max_inline);
            self.refused.count(limit);
            return Err(refusal::too_much(
                "inline data",
                asked.into(),
                limit.name(),
                most.into(),
            ));
        }
        let slots = self.qp_slots(attributes)?;
        let qp = Qp {
            attributes: attributes.clone(),
            slots,
        };
        self.check_quota(client, &qp.amounts())?;
        Ok(qp)
    }

    /// Slots of both queues' rings.
    fn qp_slots(&mut self, attributes: &QpAttributes) -> Result<u64, Refusal> {
        let (sges, inline) = (attributes.max_sge, attributes.max_inline);
        let send = self.check_ring(&WorkQueue {
            what: "a send queue",
            depth: attributes.sq_depth,
            places: attributes.send_places(),
            because: format!("max_sge {sges} and max_inline {inline}"),
        })?;
        let receive = self.check_ring(&WorkQueue {
            what: "a receive queue",
            depth: attributes.own_receives(),
            places: sges,
            because: format!("max_sge {sges}"),
        })?;
        Ok(send.saturating_add(receive))
    }

    pub fn qp_created(&mut self, grant: QpGrant) {
        if let Some(slot) = self.qps.get_mut(grant.qp.0) {
            slot.phase = Phase::Live;
        }
    }

    /// The queue pair did not come about.
    pub fn qp_failed(&mut self, grant: QpGrant) {
        self.forget_qp(grant.qp);
    }

    /// Leave to query, connect or disconnect a queue pair.
    ///
    /// # Errors
    ///
    /// `UnknownObject`.
    pub fn use_qp(&self, client: ClientId, qp: QpNum) -> Result<QpUse, Refusal> {
        match self.qps.live(client, qp.0) {
            Some(_) => Ok(QpUse { qp }),
            None => Err(refusal::unknown(Kind::Qp, qp)),
        }
    }

    pub fn queue_pairs(&self, client: ClientId) -> Vec<QpNum> {
        self.qps.live_of(client).map(QpNum).collect()
    }

    /// Begins to remove a queue pair.
    ///
    /// # Errors
    ///
    /// `UnknownObject`.
    pub fn destroy_qp(&mut self, client: ClientId, qp: QpNum) -> Result<QpRemoval, Refusal> {
        let slot = self
            .qps
            .live_mut(client, qp.0)
            .ok_or_else(|| refusal::unknown(Kind::Qp, qp))?;
        slot.phase = Phase::Leaving;
        Ok(QpRemoval { qp })
    }

    /// The shard has the queue pair no more.
    pub fn qp_removed(&mut self, removal: QpRemoval) {
        self.forget_qp(removal.qp);
    }

    pub(super) fn forget_cq(&mut self, cq: CqId) {
        if let Some(slot) = self.cqs.remove(cq.0) {
            self.discharge(slot.owner, &slot.object.amounts());
            self.forget_further(slot.object);
        }
    }

    fn forget_further(&mut self, cq: Cq) {
        let entries = cq.further_entries();
        self.further_ring_entries = self.further_ring_entries.saturating_sub(entries);
    }

    pub(super) fn forget_qp(&mut self, qp: QpNum) {
        let Some(slot) = self.qps.remove(qp.0) else {
            return;
        };
        let amounts = slot.object.amounts();
        let attributes = slot.object.attributes;
        self.unuse_pd(attributes.pd);
        self.end_of_use_of_srq(attributes.srq);
        for cq in [attributes.send_cq, attributes.recv_cq] {
            if let Some(cq) = self.cqs.get_mut(cq.0) {
                cq.users = cq.users.saturating_sub(1);
            }
        }
        self.discharge(slot.owner, &amounts);
    }
}

impl Cq {
    fn amounts(&self) -> [(Resource, u64); 2] {
        [(Resource::CompletionQueues, 1), self.ring_entries()]
    }

    /// Of one ring: what a client may have does not depend on how many shards there are.
    fn ring_entries(&self) -> (Resource, u64) {
        (Resource::RingEntries, self.depth.into())
    }

    /// Entries of the other rings.
    fn further_entries(&self) -> u64 {
        u64::from(self.depth) * u64::from(self.rings.saturating_sub(1))
    }
}

impl Qp {
    fn amounts(&self) -> [(Resource, u64); 3] {
        let attributes = &self.attributes;
        let work = u64::from(attributes.sq_depth) + u64::from(attributes.own_receives());
        [
            (Resource::QueuePairs, 1),
            (Resource::RingEntries, self.slots),
            (Resource::OutstandingWork, work),
        ]
    }
}
