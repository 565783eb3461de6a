//! Looking ahead: the state of the connection that comes next is fetched into the cache while the present
//! one is worked on.

use rnic_ipc::id::QpNum;
use rnic_xsk::Port;
use userspace_tcp::{ConnId, FlowHint, FourTuple};

use super::Shard;
use crate::prefetch::{fetch, fetch_line};

impl<P: Port> Shard<P> {
    /// A segment of this flow with so many bytes was received; others before it are to be taken in first.
    pub(super) fn fetch_flow(&self, tuple: &FourTuple, bytes: usize) -> FlowHint {
        let hint = self.dp.stack.flow_hint(tuple);
        match hint.index() {
            Some(place) if bytes > 0 => self.fetch_conn(place),
            // An acknowledgment is TCP's alone where a queue pair waits for other connections, as most
            // do where there are many.
            Some(place) => self.fetch_tcp(place),
            None => {}
        }
        hint
    }

    /// What there is of the connection at this place of the tables.
    pub(super) fn fetch_conn(&self, place: usize) {
        self.fetch_tcp(place);
        if let Some(qp) = self.dp.served.qp(place) {
            self.fetch_qp(qp);
        }
    }

    /// The same without its queue pair.
    fn fetch_tcp(&self, place: usize) {
        let (connection, link, deadline) = self.dp.stack.memory_at(place);
        fetch(connection);
        fetch(link);
        fetch(deadline);
        self.fetch_turn(place);
    }

    /// What says whether it gets a turn.
    fn fetch_turn(&self, place: usize) {
        fetch(self.dp.conns.memory_at(place));
        fetch(self.share.memory_at(place));
        fetch(self.macroflows.memory_at(place));
    }

    /// What there is of a queue pair.
    pub(super) fn fetch_qp(&self, qp: QpNum) {
        fetch(self.dp.qps.get(qp.0).map(Box::as_ref));
    }

    /// What a doorbell goes through, of a queue pair that was fetched a while ago. Of TCP it is next to
    /// nothing: its turn may be far off.
    pub(super) fn fetch_rung(&self, qp: QpNum) {
        if let Some(slot) = self.dp.qps.get(qp.0) {
            slot.qp.next_work().into_iter().for_each(fetch_line);
            if let Some(conn) = slot.conn {
                self.fetch_turn(conn.index());
            }
        }
    }

    /// What was posted for the queue pair of a connection that was fetched a while ago.
    pub(super) fn fetch_work(&self, id: ConnId) {
        let qp = self.dp.served.qp(id.index());
        if let Some(slot) = qp.and_then(|qp| self.dp.qps.get(qp.0)) {
            slot.qp.next_work().into_iter().for_each(fetch_line);
        }
    }
}
