//! Looking ahead: the state of the connection that comes next is fetched into the cache while the present
//! one is worked on.

use rnic_ipc::id::{ClientId, QpNum};
use rnic_xsk::Port;
use userspace_tcp::{ConnId, FlowHint, FourTuple};

use super::Shard;
use crate::prefetch::{fetch, fetch_line};

/// By connection, the queue pair that it serves or served, and the client that this is of: known without
/// a look at either.
#[derive(Debug)]
pub(super) struct ConnQpMap(Box<[(QpNum, ClientId)]>);

impl ConnQpMap {
    pub fn new(connections: usize) -> Self {
        Self(vec![(QpNum(0), ClientId(0)); connections].into_boxed_slice())
    }

    /// The connection serves this queue pair from now on.
    pub fn note(&mut self, id: ConnId, qp: QpNum, client: ClientId) {
        if let Some(place) = self.0.get_mut(id.index()) {
            *place = (qp, client);
        }
    }

    /// The client that the queue pair is of which this connection serves, while it is in
    /// [`Phase::Rdma`](crate::conn::Phase); else it is another's.
    pub fn client(&self, id: ConnId) -> Option<ClientId> {
        self.0.get(id.index()).map(|(_, client)| *client)
    }

    /// The queue pair of the connection at this place of the tables.
    fn qp(&self, place: usize) -> Option<QpNum> {
        self.0.get(place).map(|(qp, _)| *qp)
    }
}

impl<P: Port> Shard<P> {
    /// A segment of this flow with so many bytes was received; others before it are to be taken in first.
    pub(super) fn fetch_flow(&self, tuple: &FourTuple, bytes: usize) -> FlowHint {
        let hint = self.stack.flow_hint(tuple);
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
        if let Some(qp) = self.served.qp(place) {
            self.fetch_qp(qp);
        }
    }

    /// The same without its queue pair.
    fn fetch_tcp(&self, place: usize) {
        let (connection, link, deadline) = self.stack.memory_at(place);
        fetch(connection);
        fetch(link);
        fetch(deadline);
        self.fetch_turn(place);
    }

    /// What says whether it gets a turn.
    fn fetch_turn(&self, place: usize) {
        fetch(self.conns.memory_at(place));
        fetch(self.share.memory_at(place));
        fetch(self.macroflows.memory_at(place));
    }

    /// What there is of a queue pair.
    pub(super) fn fetch_qp(&self, qp: QpNum) {
        fetch(self.qps.get(qp.0).map(Box::as_ref));
    }

    /// What a doorbell goes through, of a queue pair that was fetched a while ago. Of TCP it is next to
    /// nothing: its turn may be far off.
    pub(super) fn fetch_rung(&self, qp: QpNum) {
        if let Some(slot) = self.qps.get(qp.0) {
            slot.qp.next_work().into_iter().for_each(fetch_line);
            if let Some(conn) = slot.conn {
                self.fetch_turn(conn.index());
            }
        }
    }

    /// What was posted for the queue pair of a connection that was fetched a while ago.
    pub(super) fn fetch_work(&self, id: ConnId) {
        let qp = self.served.qp(id.index());
        if let Some(slot) = qp.and_then(|qp| self.qps.get(qp.0)) {
            slot.qp.next_work().into_iter().for_each(fetch_line);
        }
    }
}
