//! Looking ahead: the state of the connection that comes next is fetched into the cache while the present
//! one is worked on.

use rnic_ipc::id::QpNum;
use rnic_xsk::Port;
use userspace_tcp::{ConnId, FourTuple, Likely};

use super::Shard;
use crate::prefetch::{fetch, fetch_line};

/// By connection, the queue pair that it serves or served: known without a look at the connection.
#[derive(Debug)]
pub(super) struct Served(Box<[QpNum]>);

impl Served {
    pub fn new(connections: usize) -> Self {
        Self(vec![QpNum(0); connections].into_boxed_slice())
    }

    /// The connection serves this queue pair from now on.
    pub fn note(&mut self, id: ConnId, qp: QpNum) {
        if let Some(place) = self.0.get_mut(id.index()) {
            *place = qp;
        }
    }
}

impl<P: Port> Shard<P> {
    /// A segment of this flow was received; others before it are to be taken in first.
    pub(super) fn fetch_flow(&self, tuple: &FourTuple) -> Likely {
        let likely = self.stack.likely(tuple);
        if let Some(place) = likely.index() {
            self.fetch_conn(place);
        }
        likely
    }

    /// What there is of the connection at this place of the tables.
    pub(super) fn fetch_conn(&self, place: usize) {
        let (connection, link, deadline) = self.stack.memory_at(place);
        fetch(connection);
        fetch(link);
        fetch(deadline);
        self.fetch_turn(place);
        if let Some(qp) = self.served.0.get(place) {
            self.fetch_qp(*qp);
        }
    }

    /// What says whether it gets a turn.
    fn fetch_turn(&self, place: usize) {
        fetch(self.conns.memory_at(place));
        fetch(self.share.memory_at(place));
        fetch(self.macroflows.memory_at(place));
    }

    /// What there is of a queue pair.
    pub(super) fn fetch_qp(&self, qp: QpNum) {
        fetch(self.qps.get(&qp.0).map(Box::as_ref));
    }

    /// What a doorbell goes through, of a queue pair that was fetched a while ago. Of TCP it is next to
    /// nothing: its turn may be far off.
    pub(super) fn fetch_rung(&self, qp: QpNum) {
        if let Some(slot) = self.qps.get(&qp.0) {
            slot.qp.next_work().into_iter().for_each(fetch_line);
            if let Some(conn) = slot.conn {
                self.fetch_turn(conn.index());
            }
        }
    }

    /// What was posted for the queue pair of a connection that was fetched a while ago.
    pub(super) fn fetch_work(&self, id: ConnId) {
        let qp = self.served.0.get(id.index());
        if let Some(slot) = qp.and_then(|qp| self.qps.get(&qp.0)) {
            slot.qp.next_work().into_iter().for_each(fetch_line);
        }
    }
}
