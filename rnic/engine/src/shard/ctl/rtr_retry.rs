//! A responder that says nothing after our Ready-to-Receive indication (RFC 6581 section 9.2) gets a
//! few more of them.
//!
//! Linux's siw sends its MPA Reply first and takes over the socket then. What comes in between is
//! acknowledged by its TCP but looked at only when something else comes: an indication and a first
//! Send that are fast enough are never answered. A zero-length RDMA Write more does no harm to any
//! peer: it places nothing and its STag is not checked (RFC 5040 section 5.1).

use std::time::Duration;

use rnic_proto::mpa::startup::Negotiated;
use rnic_xsk::Port;
use userspace_tcp::ConnId;

use crate::conn::{Phase, Unheard};
use crate::shard::ctl::Ctl;
use crate::shard::datapath::Datapath;
use crate::shard::tx::Tx;

/// How long after the Reply, and then after each nudge, the next one comes. There are no more.
const INTERVALS: [Duration; 3] = [
    Duration::from_millis(10),
    Duration::from_millis(100),
    Duration::from_secs(1),
];

impl Ctl {
    /// We are an initiator in RDMA mode. What the responder sends in the first interval makes all
    /// this unnecessary.
    pub(in crate::shard) fn expect_responder<P: Port>(
        &mut self,
        dp: &mut Datapath<P>,
        id: ConnId,
        negotiated: &Negotiated,
    ) {
        let Some(conn) = dp.conns.get_mut(id) else {
            return;
        };
        if negotiated.rtr.is_none() || conn.closing {
            return;
        }
        conn.unheard = Some(Box::new(Unheard {
            reply_end: conn.inbound.consumed_to(),
            retries: 0,
        }));
        self.wait_to_retry(dp, id);
    }

    fn wait_to_retry<P: Port>(&mut self, dp: &mut Datapath<P>, id: ConnId) {
        let unheard = dp.conns.get(id).and_then(|conn| conn.unheard.as_deref());
        if let Some(interval) = unheard.and_then(|unheard| INTERVALS.get(unheard.retries)) {
            self.set_deadline(dp, id, *interval);
        }
    }

    /// The time has come, unless the responder was heard.
    pub(in crate::shard) fn retry_rtr<P: Port>(
        &mut self,
        dp: &mut Datapath<P>,
        tx: &mut Tx,
        id: ConnId,
    ) {
        self.indicate_again(dp, tx, id);
        self.update_conn(dp, tx, id);
    }

    fn indicate_again<P: Port>(&mut self, dp: &mut Datapath<P>, tx: &mut Tx, id: ConnId) {
        let Some(conn) = dp.conns.get_mut(id) else {
            return;
        };
        conn.deadline = None;
        let (Phase::Rdma { qp }, Some(mut unheard)) = (&conn.phase, conn.unheard.take()) else {
            return;
        };
        let heard = conn.inbound.available() > 0 || conn.inbound.consumed_to() > unheard.reply_end;
        let Some(slot) = dp.qps.get_mut(qp.0).filter(|_| !heard) else {
            return;
        };
        unheard.retries += 1;
        conn.unheard = (unheard.retries < INTERVALS.len()).then_some(unheard);
        slot.qp.indicate_again();
        tx.make_ready(dp, id);
        self.wait_to_retry(dp, id);
    }
}
