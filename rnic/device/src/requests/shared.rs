//! Shared receive queues.

use std::os::fd::OwnedFd;

use rnic_engine::command::Command;
use rnic_ipc::control::{Refusal, Response};
use rnic_ipc::id::{PdId, SrqId};
use rnic_ipc::ring::{QpMemory, SrqMemory};
use rnic_prm::SrqGrant;

use super::{ClientSession, Granted, share};
use crate::clients::client::SessionState;
use crate::refuse;
use crate::runtime::{FIRST, To};

impl ClientSession {
    pub(super) fn create_srq(
        &self,
        state: &mut SessionState,
        pd: PdId,
        depth: u32,
        max_sge: u32,
    ) -> Granted {
        let grant = self
            .core()
            .prm()
            .create_srq(self.id(), pd, depth, max_sge)?;
        match self.add_srq(state, &grant) {
            Ok((slots, memory)) => {
                let srq = *grant.srq();
                self.core().prm().srq_created(grant);
                Ok((Response::Srq { srq, slots }, vec![memory]))
            }
            Err(refusal) => {
                self.core().prm().srq_failed(grant);
                Err(refusal)
            }
        }
    }

    fn add_srq(
        &self,
        state: &mut SessionState,
        grant: &SrqGrant,
    ) -> Result<(u32, OwnedFd), Refusal> {
        let max_sge = *grant.max_sge();
        let slots = QpMemory::slots(*grant.depth(), max_sge).map_err(refuse::ring)?;
        let (ring, memory) = SrqMemory::create(slots, max_sge).map_err(refuse::ring)?;
        let memory = share(state, memory)?;
        let add = Command::AddSrq {
            client: self.id(),
            srq: *grant.srq(),
            max_sge,
            ring,
        };
        self.core().shards.run(To::Shard(FIRST), add)?;
        Ok((slots, memory))
    }

    pub(super) fn arm_srq(&self, srq: SrqId, limit: u32) -> Result<(), Refusal> {
        let granted = self.core().prm().use_srq(self.id(), srq)?;
        let srq = *granted.srq();
        let arm = Command::ArmSrq { srq, limit };
        self.core().shards.run(To::Shard(FIRST), arm).map(|_| ())
    }

    pub(super) fn destroy_srq(&self, srq: SrqId) -> Result<(), Refusal> {
        let removal = self.core().prm().destroy_srq(self.id(), srq)?;
        let removed = self
            .core()
            .shards
            .run(To::Shard(FIRST), Command::RemoveSrq { srq });
        self.core().prm().srq_removed(removal);
        removed.map(|_| ())
    }
}
