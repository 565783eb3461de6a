//! An initiator that would rather have Markers, and a responder that rejects who asks for them.
//!
//! A responder has to send Markers to who asks (RFC 5044 section 4.3), but Linux's siw has none: it
//! answers such a request with a rejection before any application sees it. The RFC has no word for
//! why a request is rejected, so one without private data is taken for a lack of Markers, and the
//! queue pair connects once more without; with private data it is an application's. The TCP
//! connection is of no use to either end by then, so it is reset, and the new one has the same ends:
//! what the host has reserved for this queue pair stays what it is.

use rnic_ipc::id::QpNum;
use rnic_proto::mpa::startup::Initiator;
use rnic_xsk::Port;
use userspace_tcp::{ConnId, ConnOptions};

use crate::conn::{Conn, Phase};
use crate::shard::ctl::Ctl;
use crate::shard::datapath::Datapath;
use crate::shard::tx::Tx;

impl Ctl {
    /// Begins a queue pair's start-up anew, as this initiator.
    pub(in crate::shard) fn ask_without_markers<P: Port>(
        &mut self,
        dp: &mut Datapath<P>,
        tx: &mut Tx,
        rejected: ConnId,
        qp: QpNum,
        initiator: Box<Initiator>,
    ) {
        let Some(mut before) = dp.conns.remove(rejected) else {
            return;
        };
        before.inbound.clear(&mut dp.frames);
        tx.scheduler.let_go(rejected);
        dp.stack.abort(rejected);
        let port = before.port();
        let Conn {
            tuple, path, phase, ..
        } = before;
        let Phase::Requesting { opened, .. } = phase else {
            return;
        };
        tx.link.remember(tuple, path, port);
        // The reset leaves ahead of the SYN: behind it, the peer would take the SYN for one of the
        // connection that is over.
        tx.transmit(dp);
        let options = ConnOptions {
            mss: path.mss(tuple.remote.addr),
        };
        let Ok(id) = dp.stack.connect(dp.now, tuple, options) else {
            self.release(dp, tuple.local);
            return self.tell_rejected(dp, qp, None, Vec::new());
        };
        log::debug!("{} rejects: asking it without Markers", tuple.remote);
        let phase = Phase::Requesting {
            qp,
            initiator,
            opened,
            unmarked: None,
        };
        let window = dp.config.tcp.receive_window;
        let conn = Conn::new(id, tuple, path, port, window, phase);
        if let Some(slot) = dp.qps.get_mut(qp.0) {
            slot.conn = Some(id);
        }
        self.adopt(dp, tx, conn);
        dp.counters.active_opens += 1;
        dp.counters.markers_refused += 1;
    }
}
