//! Completion queues and queue pairs.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use rnic_engine::command::{Answer, Command};
use rnic_ipc::control::{Access, QpAttributes, QpState, Refusal, Response};
use rnic_ipc::id::{CqId, QpNum};
use rnic_ipc::ring::{CqMemory, QpLayout, QpMemory};
use rnic_prm::{CqGrant, CqResize, QpGrant};

use super::{ClientSession, Granted, share};
use crate::clients::client::SessionState;
use crate::refuse;
use crate::runtime::To;

impl ClientSession {
    pub(super) fn create_cq(&self, state: &mut SessionState, depth: u32) -> Granted {
        let rings = self.core().shards.count() as u32;
        let grant = self.core().prm().create_cq(self.id(), depth, rings)?;
        match self.add_cq(state, &grant) {
            Ok(fds) => {
                let response = Response::Cq {
                    cq: *grant.cq(),
                    depth: *grant.depth(),
                };
                self.core().prm().cq_created(grant);
                Ok((response, fds))
            }
            Err(refusal) => {
                self.core().prm().cq_failed(grant);
                Err(refusal)
            }
        }
    }

    fn add_cq(&self, state: &mut SessionState, grant: &CqGrant) -> Result<Vec<OwnedFd>, Refusal> {
        let shards = &self.core().shards;
        let rings = CqMemory::create(*grant.depth(), shards.count());
        let (rings, memory) = rings.map_err(refuse::ring)?;
        let memory = share(state, memory)?;
        let (notify, notified) = rnic_ipc::wake::pair()
            .map_err(|errno| refuse::host("a socket pair for notifications", errno))?;
        let cq = *grant.cq();
        let notify = Arc::new(notify.into_fd());
        let add = |ring| Command::AddCq {
            client: self.id(),
            cq,
            ring,
            notify: notify.clone(),
        };
        shards.all_or_none(rings.into_iter().map(add), || Command::RemoveCq { cq })?;
        Ok(vec![memory, notified.into_fd()])
    }

    pub(super) fn resize_cq(&self, state: &mut SessionState, cq: CqId, depth: u32) -> Granted {
        let resize = self.core().prm().resize_cq(self.id(), cq, depth)?;
        let depth = *resize.depth();
        let replaced = self.replace_cq_ring(state, &resize);
        self.core().prm().cq_resized(resize, replaced.is_ok());
        Ok((Response::Cq { cq, depth }, vec![replaced?]))
    }

    fn replace_cq_ring(
        &self,
        state: &mut SessionState,
        resize: &CqResize,
    ) -> Result<OwnedFd, Refusal> {
        let shards = &self.core().shards;
        let rings = CqMemory::create(*resize.depth(), shards.count());
        let (rings, memory) = rings.map_err(refuse::ring)?;
        let memory = share(state, memory)?;
        let cq = *resize.cq();
        let replace = |ring| Command::ReplaceCqRing { cq, ring };
        // One that took its ring gives completions to it. Where another refused, the queue has failed there.
        let replaced =
            shards.all_or_none(rings.into_iter().map(replace), || Command::FailCq { cq });
        replaced.map(|_| memory)
    }

    pub(super) fn destroy_cq(&self, cq: CqId) -> Result<(), Refusal> {
        let removal = self.core().prm().destroy_cq(self.id(), cq)?;
        let removed = self.core().shards.all_do(|| Command::RemoveCq { cq });
        self.core().prm().cq_removed(removal);
        removed
    }

    pub(super) fn create_qp(&self, state: &mut SessionState, attributes: QpAttributes) -> Granted {
        let grant = self.core().prm().create_qp(self.id(), attributes)?;
        match self.add_qp(state, &grant) {
            Ok((layout, memory)) => {
                let response = Response::Qp {
                    qp: *grant.qp(),
                    sq_slots: layout.sq_slots,
                    rq_slots: layout.rq_slots,
                };
                self.core().prm().qp_created(grant);
                Ok((response, vec![memory]))
            }
            Err(refusal) => {
                self.core().prm().qp_failed(grant);
                Err(refusal)
            }
        }
    }

    fn add_qp(
        &self,
        state: &mut SessionState,
        grant: &QpGrant,
    ) -> Result<(QpLayout, OwnedFd), Refusal> {
        let attributes = grant.attributes();
        let slots = |depth, places| QpMemory::slots(depth, places).map_err(refuse::ring);
        let layout = QpMemory::layout(
            slots(attributes.sq_depth, attributes.send_places())?,
            slots(attributes.own_receives(), attributes.max_sge)?,
        )
        .map_err(refuse::ring)?;
        let shards = &self.core().shards;
        let pinned = attributes.srq.is_some();
        let shard = shards.placement().home(pinned);
        let (sq, rq, its_shard, memory) =
            QpMemory::create(&layout, shard as u8).map_err(refuse::ring)?;
        let memory = share(state, memory)?;
        let qp = *grant.qp();
        let add = Command::AddQp {
            client: self.id(),
            qp,
            attributes: attributes.clone(),
            sq,
            rq,
        };
        shards.run(To::Shard(shard), add)?;
        let pd = attributes.pd;
        shards.others_do(shard, || Command::AddStream { pd, qp });
        shards.placement().added((pd, qp), shard, its_shard, pinned);
        Ok((layout, memory))
    }

    pub(super) fn destroy_qp(&self, qp: QpNum) -> Result<(), Refusal> {
        let removal = self.core().prm().destroy_qp(self.id(), qp)?;
        self.core().leave_join(qp);
        let removed = self.core().shards.remove_qp(qp);
        self.core().prm().qp_removed(removal);
        removed
    }

    pub(super) fn query_qp(&self, qp: QpNum) -> Result<QpState, Refusal> {
        let granted = self.core().prm().use_qp(self.id(), qp)?;
        let qp = *granted.qp();
        let state = self.core().shards.run(To::Qp(qp), Command::QueryQp { qp });
        match state? {
            (Answer::QpState(state), _) => Ok(state),
            (answer, _) => Err(refuse::host(
                "a queue pair's state",
                format!("{answer:?} came"),
            )),
        }
    }

    pub(super) fn modify_qp(&self, qp: QpNum, state: QpState) -> Result<(), Refusal> {
        let granted = self.core().prm().use_qp(self.id(), qp)?;
        let qp = *granted.qp();
        self.core().leave_join(qp);
        let modify = Command::ModifyQp { qp, state };
        self.core().shards.run(To::Qp(qp), modify).map(|_| ())
    }

    pub(super) fn set_peer_access(&self, qp: QpNum, access: Access) -> Result<(), Refusal> {
        let granted = self.core().prm().use_qp(self.id(), qp)?;
        let qp = *granted.qp();
        let set = Command::SetPeerAccess { qp, access };
        self.core().shards.run(To::Qp(qp), set).map(|_| ())
    }
}
