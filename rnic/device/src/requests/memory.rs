//! Registering and revoking memory.

use std::iter::repeat_with;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use rnic_engine::command::Command;
use rnic_engine::region::RegionMemory;
use rnic_engine::stag::StagWord;
use rnic_ipc::control::{MemoryKind, Refusal, RefusalCode, RegionSpec, Response, StagKind};
use rnic_ipc::id::PdId;
use rnic_ipc::shm::{SharedMemory, ShmError};
use rnic_prm::RegionGrant;

use super::ClientSession;
use crate::clients::client::{MemoryHandle, SessionState};
use crate::refuse;

mod remote;

impl ClientSession {
    /// Registers memory of which the client passes a descriptor.
    pub(super) fn register_memory(
        &self,
        state: &mut SessionState,
        spec: &RegionSpec,
        fds: &[OwnedFd],
    ) -> Result<Response, Refusal> {
        let fd = fds.first().ok_or_else(|| refuse::descriptors(1, 0))?;
        let user = self.client.credentials.uid;
        self.register(state, spec, |spec| match spec.memory {
            MemoryKind::Memfd | MemoryKind::Adopted => mapped(spec, user, fd),
            MemoryKind::Remote => remote::open(spec, fd),
            MemoryKind::None | MemoryKind::Local => Err(refuse::refusal(
                RefusalCode::Malformed,
                &format!(
                    "memory of kind {} asked: a client can register a memfd or its /proc/self/mem",
                    spec.memory.name()
                ),
            )),
        })
    }

    /// Registers the memory that `open` opens once the PRM has granted it.
    pub(super) fn register(
        &self,
        state: &mut SessionState,
        spec: &RegionSpec,
        open: impl FnOnce(&RegionSpec) -> Result<(RegionMemory, MemoryHandle), Refusal>,
    ) -> Result<Response, Refusal> {
        let begun = Instant::now();
        let grant = self.core().prm().register_region(self.id(), spec)?;
        match open(spec).and_then(|memory| self.add(&grant, memory)) {
            Ok(memory) => {
                let took = begun.elapsed();
                self.core().request_metrics.registered(spec.memory, took);
                let stag = grant.stag().0;
                state.memory.insert(stag, memory);
                self.core().prm().region_registered(grant);
                Ok(Response::Region { stag })
            }
            Err(refusal) => {
                self.core().prm().region_failed(grant);
                Err(refusal)
            }
        }
    }

    fn add(
        &self,
        grant: &RegionGrant,
        (memory, held): (RegionMemory, MemoryHandle),
    ) -> Result<MemoryHandle, Refusal> {
        let stag = *grant.stag();
        let shards = &self.core().shards;
        let word = shards.are_several().then(|| StagWord::valid(stag));
        let add = || Command::AddRegion {
            stag,
            spec: *grant.spec(),
            memory: memory.clone(),
            word: word.clone(),
        };
        shards.all_or_none(repeat_with(add), || Command::RemoveRegion { stag })?;
        Ok(held)
    }

    pub(super) fn alloc_stag(&self, pd: PdId, kind: StagKind) -> Result<Response, Refusal> {
        let grant = self.core().prm().alloc_stag(self.id(), pd)?;
        let stag = *grant.stag();
        let shards = &self.core().shards;
        let word = shards.are_several().then(StagWord::unbound);
        let add = || Command::AddStag {
            stag,
            pd,
            kind,
            word: word.clone(),
        };
        match shards.all_or_none(repeat_with(add), || Command::RemoveRegion { stag }) {
            Ok(_) => {
                self.core().prm().region_registered(grant);
                Ok(Response::Region { stag: stag.0 })
            }
            Err(refusal) => {
                self.core().prm().region_failed(grant);
                Err(refusal)
            }
        }
    }

    pub(super) fn deregister_memory(
        &self,
        state: &mut SessionState,
        stag: u32,
    ) -> Result<(), Refusal> {
        let revocation = self.core().prm().deregister_region(self.id(), stag)?;
        let stag = *revocation.stag();
        let revoked = self.core().shards.all_do(|| Command::RemoveRegion { stag });
        self.core().prm().region_revoked(revocation);
        state.memory.remove(&stag.0);
        revoked
    }
}

fn mapped(
    spec: &RegionSpec,
    user: u32,
    fd: &OwnedFd,
) -> Result<(RegionMemory, MemoryHandle), Refusal> {
    let memory = SharedMemory::map_registered(user, fd, spec.offset, spec.length);
    let memory = memory.map_err(bad_memory)?;
    let memory = Arc::new(memory);
    Ok((RegionMemory::whole(memory.clone()), memory))
}

fn bad_memory(error: ShmError) -> Refusal {
    let code = match error {
        ShmError::Host { .. } | ShmError::TooMany => RefusalCode::Host,
        ShmError::TooManyFiles { .. } => RefusalCode::Limit,
        _ => RefusalCode::BadMemory,
    };
    refuse::refusal(code, &format!("memory to register: {error}"))
}
