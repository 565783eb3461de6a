//! Connections of queue pairs that are joined by number (`docs/architecture/join.md`). Joins go over TCP.

use rnic_ipc::id::QpNum;
use rnic_xsk::Port;
use userspace_tcp::ConnId;

use super::datapath::Datapath;

impl<P: Port> Datapath<P> {
    /// Completes what TCP's peer has acknowledged, and has TCP acknowledge what came: the peer's program waits for that.
    #[inline(never)]
    pub fn complete_acknowledged(&mut self, id: ConnId, qp: QpNum) {
        let Some(slot) = self.qps.get_mut(qp.0) else {
            return;
        };
        let unacknowledged = self.stack.unacknowledged(id);
        let context = &mut self.tables.context(slot.tally, self.now);
        slot.qp.acknowledged(context, unacknowledged);
        slot.queue_update(&mut self.pending_updates);
        self.stack.acknowledge_at_once(id);
    }
}
