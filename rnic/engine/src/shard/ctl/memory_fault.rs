//! Memory that a client took away while the RNIC uses it. The access found a fault, which the process
//! contained ([`rnic_ipc::shm::contain_faults`]), or nothing (remote memory). No data of such memory was used
//! meanwhile: the copy that faulted, and each after it, ended its stream.
//!
//! A region loses its rights, and its client goes on with all else. A client whose rings are gone is removed.

use rnic_ipc::control::RefusalCode;
use rnic_ipc::id::{ClientId, PdId};
use rnic_ipc::shm::faults_contained;
use rnic_xsk::Port;

use crate::command::ShardEvent;
use crate::shard::ctl::Ctl;
use crate::shard::datapath::Datapath;

impl Ctl {
    /// Whether a fault was contained since that was looked into.
    #[inline]
    pub(in crate::shard) fn has_new_faults(&self) -> bool {
        faults_contained() != self.faults_seen
    }

    /// Looks at everything when a fault was contained since the last time, by whatever shard.
    pub(in crate::shard) fn check_memory_faults<P: Port>(&mut self, dp: &mut Datapath<P>) {
        if !self.has_new_faults() {
            return;
        }
        self.faults_seen = faults_contained();
        for (stag, pd) in dp.tables.stags.revoke_broken() {
            dp.counters.memory_faults += 1;
            // Only a queue pair of the same domain can have found out.
            if let Some(client) = dp.owner_of_domain(pd) {
                self.events
                    .push_back(ShardEvent::RegionFault { client, stag });
            }
        }
        for (client, what) in self.broken_rings(dp) {
            dp.counters.memory_faults += 1;
            let message = format!(
                "the memory of {what} is gone: it was unmapped, or a hole was punched into it and the \
                 host had no page to fill it; leave memory as it is while the RNIC has it"
            );
            self.client_fault(dp, client, RefusalCode::MemoryFault, message);
        }
    }

    /// The rings that are broken, and whose they are.
    fn broken_rings<P: Port>(&self, dp: &Datapath<P>) -> Vec<(ClientId, String)> {
        let clients = self.clients.iter().filter(|entry| !entry.faulted);
        let doorbells = clients.filter(|entry| entry.doorbells.is_broken());
        let doorbells = doorbells.map(|entry| (entry.id, "the doorbell ring".to_owned()));
        let cqs = dp.tables.cqs.broken();
        let cqs = cqs.map(|(client, cq)| (client, format!("completion queue {cq}")));
        let srqs = dp.tables.srqs.broken();
        let srqs = srqs.map(|(client, srq)| (client, format!("shared receive queue {srq}")));
        let qps = dp.qps.values().filter(|slot| slot.qp.has_broken_rings());
        let qps = qps.map(|slot| (slot.qp.client(), format!("queue pair {}", slot.qp.num())));
        doorbells.chain(cqs).chain(srqs).chain(qps).collect()
    }
}

impl<P: Port> Datapath<P> {
    fn owner_of_domain(&self, pd: PdId) -> Option<ClientId> {
        let mut slots = self.qps.values();
        let slot = slots.find(|slot| slot.qp.user().pd == pd)?;
        Some(slot.qp.client())
    }
}
