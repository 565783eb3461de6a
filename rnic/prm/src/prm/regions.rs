//! Memory regions and their STags (RFC 5042 section 6.1.1, RFC 5041 section 8.3.1).
//!
//! All 32 bits of an STag are the kernel's random numbers, drawn at each registration: neither
//! the STags of other regions nor old ones say anything about it (RFC 5040 section 8.1.1). Its index
//! is no place in a table, so it is looked up.

use rnic_ipc::control::{Access, MemoryKind, Refusal, RefusalCode, RegionSpec};
use rnic_ipc::id::{ClientId, PdId, QpNum};
use rnic_proto::Stag;

use super::{Prm, Region};
use crate::grant::{RegionGrant, RegionRevocation};
use crate::limits::Resource;
use crate::refusal::{self, Kind};
use crate::table::Phase;

/// The most STags of a device: half of the indexes, so that every second draw at least gives a free
/// one.
pub const STAGS_MAX: u32 = Stag::INDEX_MAX / 2;

impl Prm {
    /// A new region. Whether there is such memory is for the caller to check.
    ///
    /// # Errors
    ///
    /// - `UnknownObject` for the PD or the queue pair; `WrongPd` for the latter.
    /// - `Malformed` for a length of 0, tagged offsets that wrap, or Atomic Operations on memory that is in no memfd.
    /// - `Limit`.
    /// - `Host` when the kernel has no random numbers.
    pub fn register_region(
        &mut self,
        client: ClientId,
        spec: &RegionSpec,
    ) -> Result<RegionGrant, Refusal> {
        let RegionSpec { base, length, .. } = *spec;
        if spec.memory == MemoryKind::Remote && spec.access.contains(Access::REMOTE_ATOMIC) {
            return Err(refusal::malformed(
                "Atomic Operations on memory outside of a memfd asked: they are done on memfds only"
                    .to_owned(),
            ));
        }
        self.check_pd(client, spec.pd)?;
        if let Some(qp) = spec.stream {
            self.check_stream(client, qp, spec.pd)?;
        }
        if length == 0 || base.checked_add(length).is_none() {
            return Err(refusal::malformed(format!(
                "a region of {length} bytes from tagged offset {base:#x} asked: it must have a \
                 byte and end below 2^64"
            )));
        }
        self.grant_region(client, spec)
    }

    /// Whether [`Self::register_region`] would grant a region of `length` bytes now.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn may_register(&mut self, client: ClientId, pd: PdId, length: u64) -> Result<(), Refusal> {
        self.check_pd(client, pd)?;
        self.check_quota(client, &amounts(length, MemoryKind::Memfd))
    }

    /// A new STag in `pd` for a memory window or a fast registration, which counts as a region. It
    /// has no byte of its own.
    ///
    /// # Errors
    ///
    /// `UnknownObject` for the PD; `Limit`; `Host` when the kernel has no random numbers.
    pub fn alloc_stag(&mut self, client: ClientId, pd: PdId) -> Result<RegionGrant, Refusal> {
        self.check_pd(client, pd)?;
        let none = RegionSpec {
            memory: MemoryKind::None,
            ..RegionSpec::new(pd, Access::default(), 0, 0)
        };
        self.grant_region(client, &none)
    }

    /// That the queue pair is there, the client's, and of the domain.
    fn check_stream(&self, client: ClientId, qp: QpNum, pd: PdId) -> Result<(), Refusal> {
        match self.qps.live(client, qp.0) {
            None => Err(refusal::unknown(Kind::Qp, qp)),
            Some(slot) if slot.object.attributes.pd != pd => {
                let found = slot.object.attributes.pd;
                Err(refusal::wrong_pd(Kind::Qp, qp, found, pd))
            }
            Some(_) => Ok(()),
        }
    }

    fn grant_region(
        &mut self,
        client: ClientId,
        spec: &RegionSpec,
    ) -> Result<RegionGrant, Refusal> {
        let amounts = amounts(spec.length, spec.memory);
        self.check_quota(client, &amounts)?;
        let stag = self.draw_stag()?;
        let place = self
            .regions
            .insert(
                client,
                Phase::Coming,
                Region {
                    stag,
                    pd: spec.pd,
                    length: spec.length,
                    memory: spec.memory,
                },
            )
            .ok_or_else(|| refusal::full(Kind::Region, self.limits.device.regions))?;
        self.stags.insert(stag.index(), place);
        self.charge(client, &amounts);
        self.use_pd(spec.pd);
        Ok(RegionGrant {
            client,
            stag,
            spec: *spec,
        })
    }

    /// An STag whose index is not in use, nor 0.
    fn draw_stag(&self) -> Result<Stag, Refusal> {
        loop {
            let stag = random_stag()?;
            if stag.index() != 0 && !self.stags.contains_key(&stag.index()) {
                return Ok(stag);
            }
        }
    }

    pub fn region_registered(&mut self, grant: RegionGrant) {
        let place = self.stags.get(&grant.stag.index());
        if let Some(slot) = place.and_then(|place| self.regions.get_mut(*place)) {
            slot.phase = Phase::Live;
        }
    }

    /// The region did not come about.
    pub fn region_failed(&mut self, grant: RegionGrant) {
        self.forget_region(grant.stag);
    }

    /// Begins to revoke an STag.
    ///
    /// # Errors
    ///
    /// `UnknownObject`, also for a right index with a wrong key.
    pub fn deregister_region(
        &mut self,
        client: ClientId,
        stag: u32,
    ) -> Result<RegionRevocation, Refusal> {
        let stag = Stag(stag);
        let place = self.stags.get(&stag.index());
        let slot = place.and_then(|place| self.regions.live_mut(client, *place));
        let slot = slot
            .filter(|slot| slot.object.stag == stag)
            .ok_or_else(|| refusal::unknown(Kind::Region, stag))?;
        slot.phase = Phase::Leaving;
        Ok(RegionRevocation { stag })
    }

    /// The shard touches no byte of the region any more: its index may be used again.
    pub fn region_revoked(&mut self, revocation: RegionRevocation) {
        self.forget_region(revocation.stag);
    }

    pub(super) fn forget_region(&mut self, stag: Stag) {
        let place = self.stags.remove(&stag.index());
        if let Some(slot) = place.and_then(|place| self.regions.remove(place)) {
            self.unuse_pd(slot.object.pd);
            self.discharge(slot.owner, &amounts(slot.object.length, slot.object.memory));
        }
    }
}

fn amounts(length: u64, memory: MemoryKind) -> [(Resource, u64); 3] {
    [
        (Resource::Regions, 1),
        (Resource::RegisteredBytes, length),
        (
            Resource::RemoteRegions,
            u64::from(memory == MemoryKind::Remote),
        ),
    ]
}

fn random_stag() -> Result<Stag, Refusal> {
    let mut bytes = [0; 4];
    getrandom::fill(&mut bytes).map_err(|error| Refusal {
        code: RefusalCode::Host,
        message: format!(
            "a random STag was asked of the kernel: {error}; no region can be registered until it \
             has one"
        ),
    })?;
    Ok(Stag(u32::from_ne_bytes(bytes)))
}
