//! Protection domains. No shard knows them but as a number in regions and queue pairs.

use rnic_ipc::control::Refusal;
use rnic_ipc::id::{ClientId, PdId};

use super::{Pd, Prm};
use crate::limits::Resource;
use crate::refusal::{self, Kind};
use crate::table::Phase;

const ONE: [(Resource, u64); 1] = [(Resource::ProtectionDomains, 1)];

impl Prm {
    /// A new protection domain.
    ///
    /// # Errors
    ///
    /// `Limit`.
    pub fn alloc_pd(&mut self, client: ClientId) -> Result<PdId, Refusal> {
        self.check_quota(client, &ONE)?;
        let id = self
            .pds
            .insert(client, Phase::Live, Pd)
            .ok_or_else(|| refusal::full(Kind::Pd, self.limits.device.protection_domains))?;
        self.charge(client, &ONE);
        Ok(PdId(id))
    }

    /// Removes a protection domain.
    ///
    /// # Errors
    ///
    /// `UnknownObject`; `Busy` while it has regions, queue pairs or shared receive queues, also
    /// leaving ones.
    pub fn dealloc_pd(&mut self, client: ClientId, pd: PdId) -> Result<(), Refusal> {
        let slot = self
            .pds
            .live(client, pd.0)
            .ok_or_else(|| refusal::unknown(Kind::Pd, pd))?;
        if slot.users > 0 {
            let by = "regions, queue pairs or shared receive queues";
            return Err(refusal::busy(Kind::Pd, pd, slot.users, by));
        }
        self.forget_pd(pd);
        Ok(())
    }

    pub(super) fn forget_pd(&mut self, pd: PdId) {
        if let Some(slot) = self.pds.remove(pd.0) {
            self.discharge(slot.owner, &ONE);
        }
    }

    /// That the domain is there and the client's.
    pub(super) fn check_pd(&self, client: ClientId, pd: PdId) -> Result<(), Refusal> {
        match self.pds.live(client, pd.0) {
            Some(_) => Ok(()),
            None => Err(refusal::unknown(Kind::Pd, pd)),
        }
    }

    pub(super) fn use_pd(&mut self, pd: PdId) {
        if let Some(slot) = self.pds.get_mut(pd.0) {
            slot.users += 1;
        }
    }

    pub(super) fn unuse_pd(&mut self, pd: PdId) {
        if let Some(slot) = self.pds.get_mut(pd.0) {
            slot.users = slot.users.saturating_sub(1);
        }
    }
}
