//! Registering and revoking memory.

use std::iter::repeat_with;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use rnic_engine::command::Command;
use rnic_engine::region::RegionMemory;
use rnic_engine::stag::StagWord;
use rnic_ipc::control::{Access, MemoryKind, Refusal, RefusalCode, Response, StagKind};
use rnic_ipc::id::{PdId, QpNum};
use rnic_ipc::shm::{SharedMemory, ShmError};
use rnic_prm::RegionGrant;

use super::ClientSession;
use crate::clients::client::{MemoryHandle, SessionState};
use crate::refuse;

mod remote;

/// What a client wants registered.
pub(super) struct Wanted {
    pub(super) pd: PdId,
    pub(super) stream: Option<QpNum>,
    pub(super) access: Access,
    pub(super) base: u64,
    pub(super) offset: u64,
    pub(super) length: u64,
    pub(super) adopted: bool,
}

impl ClientSession {
    pub(super) fn register_memory(
        &self,
        state: &mut SessionState,
        wanted: &Wanted,
        fds: &[OwnedFd],
    ) -> Result<Response, Refusal> {
        let begun = Instant::now();
        let &Wanted {
            pd,
            stream,
            access,
            base,
            offset,
            length,
            adopted,
        } = wanted;
        let grant =
            self.core()
                .prm()
                .register_region(self.id(), pd, stream, access, base, length)?;
        let memory = match adopted {
            true => MemoryKind::Adopted,
            false => MemoryKind::Memfd,
        };
        self.core().prm().note_memory(&grant, memory);
        let user = self.client.credentials.uid;
        let added = mapped(&grant, user, offset, fds).and_then(|memory| self.add(&grant, memory));
        self.finish_registration(state, (grant, memory), added, begun)
    }

    /// Memory that is in no memfd.
    pub(super) fn register_remote(
        &self,
        state: &mut SessionState,
        wanted: &Wanted,
        fds: &[OwnedFd],
    ) -> Result<Response, Refusal> {
        let begun = Instant::now();
        let &Wanted {
            pd,
            stream,
            access,
            base,
            length,
            ..
        } = wanted;
        let grant = self.core().prm().register_remote_region(
            self.id(),
            pd,
            stream,
            access,
            base,
            length,
        )?;
        let added = remote::open(&grant, fds).and_then(|memory| self.add(&grant, memory));
        self.finish_registration(state, (grant, MemoryKind::Remote), added, begun)
    }

    /// Memory of this process.
    pub(super) fn register_own(
        &self,
        state: &mut SessionState,
        (pd, stream, access): (PdId, Option<QpNum>, Access),
        memory: Arc<SharedMemory>,
    ) -> Result<Response, Refusal> {
        let begun = Instant::now();
        let (base, length) = (memory.as_ptr().addr() as u64, memory.len() as u64);
        let grant =
            self.core()
                .prm()
                .register_region(self.id(), pd, stream, access, base, length)?;
        self.core().prm().note_memory(&grant, MemoryKind::Local);
        let region = RegionMemory::whole(memory.clone());
        let added = self.add(&grant, (region, memory));
        self.finish_registration(state, (grant, MemoryKind::Local), added, begun)
    }

    fn finish_registration(
        &self,
        state: &mut SessionState,
        (grant, kind): (RegionGrant, MemoryKind),
        added: Result<MemoryHandle, Refusal>,
        begun: Instant,
    ) -> Result<Response, Refusal> {
        match added {
            Ok(memory) => {
                self.core()
                    .request_metrics
                    .registered(kind, begun.elapsed());
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
            pd: *grant.pd(),
            stream: *grant.stream(),
            access: *grant.access(),
            base: *grant.base(),
            memory: memory.clone(),
            word: word.clone(),
        };
        shards.all_or_none(repeat_with(add), || Command::RemoveRegion { stag })?;
        Ok(held)
    }

    pub(super) fn alloc_stag(&self, pd: PdId, kind: StagKind) -> Result<Response, Refusal> {
        let grant = self.core().prm().alloc_stag(self.id(), pd)?;
        let (stag, pd) = (*grant.stag(), *grant.pd());
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
    grant: &RegionGrant,
    user: u32,
    offset: u64,
    fds: &[OwnedFd],
) -> Result<(RegionMemory, MemoryHandle), Refusal> {
    let fd = fds.first().ok_or_else(|| refuse::descriptors(1, 0))?;
    let memory = SharedMemory::map_registered(user, fd, offset, *grant.length());
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
