//! Connections of queue pairs that are joined by number (`docs/architecture/join.md`).

use rnic_ipc::id::QpNum;
use rnic_xsk::Port;
use userspace_tcp::ConnId;

use super::datapath::Datapath;

impl<P: Port> Datapath<P> {
    /// Completes what the peer has acknowledged, and acknowledges what came: the peer's program waits for that.
    #[inline(never)]
    pub fn complete_acknowledged(&mut self, id: ConnId, qp: QpNum) {
        let transport = self.transport(id);
        let unacknowledged = self.llp(transport, |llp| llp.unacknowledged(id));
        let Some(slot) = self.qps.get_mut(qp.0) else {
            return;
        };
        let context = &mut self.tables.context(slot.tally, self.now);
        slot.qp.acknowledged(context, unacknowledged);
        slot.queue_update(&mut self.pending_updates);
        self.llp_mut(transport, |llp, _| llp.acknowledge_at_once(id));
    }
}
