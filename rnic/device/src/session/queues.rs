//! Completion queues and queue pairs.

use std::os::fd::OwnedFd;

use rnic_engine::command::{Answer, Command};
use rnic_ipc::control::{QpAttributes, QpState, Refusal, Response};
use rnic_ipc::id::{CqId, QpNum};
use rnic_ipc::ring::{CqProducer, QpLayout, QpMemory};
use rnic_prm::{CqGrant, CqResize, QpGrant};

use super::{ClientSession, Granted, share};
use crate::client::Turn;
use crate::refuse;

impl ClientSession {
    pub(super) fn create_cq(&self, turn: &mut Turn, depth: u32) -> Granted {
        let grant = self.core().prm().create_cq(self.id(), depth)?;
        match self.add_cq(turn, &grant) {
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

    fn add_cq(&self, turn: &mut Turn, grant: &CqGrant) -> Result<Vec<OwnedFd>, Refusal> {
        let (ring, memory) = CqProducer::create(*grant.depth()).map_err(refuse::ring)?;
        let memory = share(turn, memory)?;
        let (notify, notified) = rnic_ipc::wake::pair()
            .map_err(|errno| refuse::host("a socket pair for notifications", errno))?;
        self.core().execute(Command::AddCq {
            client: self.id(),
            cq: *grant.cq(),
            ring,
            notify: notify.into_fd(),
        })?;
        Ok(vec![memory, notified.into_fd()])
    }

    pub(super) fn resize_cq(&self, turn: &mut Turn, cq: CqId, depth: u32) -> Granted {
        let resize = self.core().prm().resize_cq(self.id(), cq, depth)?;
        let depth = *resize.depth();
        let replaced = self.replace_cq_ring(turn, &resize);
        self.core().prm().cq_resized(resize, replaced.is_ok());
        Ok((Response::Cq { cq, depth }, vec![replaced?]))
    }

    fn replace_cq_ring(&self, turn: &mut Turn, resize: &CqResize) -> Result<OwnedFd, Refusal> {
        let (ring, memory) = CqProducer::create(*resize.depth()).map_err(refuse::ring)?;
        let memory = share(turn, memory)?;
        let cq = *resize.cq();
        self.core()
            .execute(Command::ReplaceCqRing { cq, ring })
            .map(|_| memory)
    }

    pub(super) fn destroy_cq(&self, cq: CqId) -> Result<(), Refusal> {
        let removal = self.core().prm().destroy_cq(self.id(), cq)?;
        let removed = self.core().execute(Command::RemoveCq { cq });
        self.core().prm().cq_removed(removal);
        removed.map(|_| ())
    }

    pub(super) fn create_qp(&self, turn: &mut Turn, attributes: QpAttributes) -> Granted {
        let grant = self.core().prm().create_qp(self.id(), attributes)?;
        match self.add_qp(turn, &grant) {
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

    fn add_qp(&self, turn: &mut Turn, grant: &QpGrant) -> Result<(QpLayout, OwnedFd), Refusal> {
        let attributes = grant.attributes();
        let slots = |depth, places| QpMemory::slots(depth, places).map_err(refuse::ring);
        let layout = QpMemory::layout(
            slots(attributes.sq_depth, attributes.send_places())?,
            slots(attributes.own_receives(), attributes.max_sge)?,
        )
        .map_err(refuse::ring)?;
        let (sq, rq, memory) = QpMemory::create(&layout).map_err(refuse::ring)?;
        let memory = share(turn, memory)?;
        self.core().execute(Command::AddQp {
            client: self.id(),
            qp: *grant.qp(),
            attributes: attributes.clone(),
            sq,
            rq,
        })?;
        Ok((layout, memory))
    }

    pub(super) fn destroy_qp(&self, qp: QpNum) -> Result<(), Refusal> {
        let removal = self.core().prm().destroy_qp(self.id(), qp)?;
        let removed = self.core().execute(Command::RemoveQp { qp });
        self.core().prm().qp_removed(removal);
        removed.map(|_| ())
    }

    pub(super) fn query_qp(&self, qp: QpNum) -> Result<QpState, Refusal> {
        let granted = self.core().prm().use_qp(self.id(), qp)?;
        match self
            .core()
            .execute(Command::QueryQp { qp: *granted.qp() })?
        {
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
        self.core()
            .execute(Command::ModifyQp { qp, state })
            .map(|_| ())
    }
}
