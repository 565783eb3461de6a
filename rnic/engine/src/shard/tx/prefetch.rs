//! Looking ahead: the state of the connection that comes next is fetched into the cache while the present
//! one is worked on.

use rnic_ipc::id::QpNum;
use rnic_xsk::Port;
use userspace_net::FourTuple;
use userspace_tcp::{ConnId, FlowHint};

use crate::prefetch::{fetch, fetch_line};
use crate::shard::datapath::Datapath;
use crate::shard::tx::Tx;

impl Tx {
    /// A segment of this flow with so many bytes was received; others before it are to be taken in first.
    pub(in crate::shard) fn fetch_flow<P: Port>(
        &self,
        dp: &Datapath<P>,
        tuple: &FourTuple,
        bytes: usize,
    ) -> FlowHint {
        let hint = dp.stack.flow_hint(tuple);
        match hint.index() {
            Some(place) if bytes > 0 => self.fetch_conn(dp, place),
            // An acknowledgment is TCP's alone where a queue pair waits for other connections, as most
            // do where there are many.
            Some(place) => self.fetch_tcp(dp, place),
            None => {}
        }
        hint
    }

    /// What there is of the connection at this place of the tables.
    pub(super) fn fetch_conn<P: Port>(&self, dp: &Datapath<P>, place: usize) {
        self.fetch_tcp(dp, place);
        if let Some(qp) = dp.served.qp(place) {
            dp.fetch_qp(qp);
        }
    }

    /// The same without its queue pair.
    fn fetch_tcp<P: Port>(&self, dp: &Datapath<P>, place: usize) {
        let (connection, link, deadline) = dp.stack.memory_at(place);
        fetch(connection);
        fetch(link);
        fetch(deadline);
        self.fetch_turn(dp, place);
    }

    /// What says whether it gets a turn.
    fn fetch_turn<P: Port>(&self, dp: &Datapath<P>, place: usize) {
        fetch(dp.conns.memory_at(place));
        fetch(self.scheduler.memory_at(place));
        fetch(self.macroflows.memory_at(place));
    }

    /// What a doorbell goes through, of a queue pair that was fetched a while ago. Of TCP it is next to
    /// nothing: its turn may be far off.
    pub(super) fn fetch_rung<P: Port>(&self, dp: &Datapath<P>, qp: QpNum) {
        if let Some(slot) = dp.qps.get(qp.0) {
            slot.qp.next_work().into_iter().for_each(fetch_line);
            if let Some(conn) = slot.conn {
                self.fetch_turn(dp, conn.index());
            }
        }
    }
}

impl<P: Port> Datapath<P> {
    pub(super) fn fetch_qp(&self, qp: QpNum) {
        fetch(self.qps.get(qp.0).map(Box::as_ref));
    }

    /// What was posted for the queue pair of a connection that was fetched a while ago.
    pub(super) fn fetch_work(&self, id: ConnId) {
        let qp = self.served.qp(id.index());
        if let Some(slot) = qp.and_then(|qp| self.qps.get(qp.0)) {
            slot.qp.next_work().into_iter().for_each(fetch_line);
        }
    }
}
