//! What is to be taken away when a client goes, and in which order.

use rnic_ipc::id::{ClientId, CqId, PdId, QpNum, SrqId};

use super::Prm;
use crate::grant::{
    CqRemoval, ListenerRemoval, QpRemoval, RegionRevocation, SrqRemoval, Step, Teardown,
};
use crate::table::Phase;

impl Prm {
    /// Begins to take away a client and all of its objects; from now on it can name none of them.
    /// Listeners first, so that nothing new comes in; then queue pairs, so that nothing uses the
    /// rest; then regions, shared receive queues and completion queues. No grant of the client may
    /// be under way any more. A second call finds nothing.
    pub fn client_gone(&mut self, client: ClientId) -> Teardown {
        if let Some(slot) = self.clients.live_mut(client, client.0) {
            slot.phase = Phase::Leaving;
        }
        let mut steps = Vec::new();
        for (id, slot) in self.listeners.leave_all(client) {
            if let Some(local) = slot.object.local {
                let listener = rnic_ipc::id::ListenerId(id);
                let transport = slot.object.transport;
                steps.push(Step::Listener(ListenerRemoval {
                    listener,
                    transport,
                    local,
                }));
            }
        }
        for (id, _) in self.qps.leave_all(client) {
            steps.push(Step::Qp(QpRemoval { qp: QpNum(id) }));
        }
        for (_, slot) in self.regions.leave_all(client) {
            let stag = slot.object.stag;
            steps.push(Step::Region(RegionRevocation { stag }));
        }
        for (id, _) in self.srqs.leave_all(client) {
            steps.push(Step::Srq(SrqRemoval { srq: SrqId(id) }));
        }
        for (id, _) in self.cqs.leave_all(client) {
            steps.push(Step::Cq(CqRemoval { cq: CqId(id) }));
        }
        Teardown { client, steps }
    }

    /// The shard has done all steps: the client's objects, its domains and the client are no more.
    pub fn client_removed(&mut self, teardown: Teardown) {
        let client = teardown.client;
        for step in teardown.steps {
            match step {
                Step::Listener(removal) => self.unlistened(removal),
                Step::Qp(removal) => self.qp_removed(removal),
                Step::Region(revocation) => self.region_revoked(revocation),
                Step::Srq(removal) => self.srq_removed(removal),
                Step::Cq(removal) => self.cq_removed(removal),
            }
        }
        self.forget_requests_of(client);
        let listeners: Vec<u32> = self.listeners.of(client).map(|(id, _)| id).collect();
        for id in listeners {
            self.forget_listener(rnic_ipc::id::ListenerId(id));
        }
        let pds: Vec<PdId> = self.pds.of(client).map(|(id, _)| PdId(id)).collect();
        for pd in pds {
            self.forget_pd(pd);
        }
        if let Some(slot) = self.clients.remove(client.0) {
            self.client_of_user_gone(slot.object.credentials.uid);
        }
    }
}
