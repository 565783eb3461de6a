//! An initiator that prefers Markers, and a responder that rejects a request for them.
//!
//! A responder must send Markers when asked (RFC 5044 section 4.3), but Linux's siw has none. It rejects such
//! a request before any application sees it. A rejection carries no reason. So one without private data is
//! taken for a lack of Markers, and the queue pair connects once more without; one with private data is the
//! application's.
//!
//! The rejected TCP connection is useless to both ends by then and is reset. The new one has the same
//! addresses and ports, so that the host's reservation for this queue pair stays valid.

use rnic_ipc::control::Transport;
use rnic_ipc::id::QpNum;
use rnic_proto::mpa::startup::Initiator;
use rnic_xsk::Port;
use userspace_tcp::{ConnId, ConnOptions};

use crate::conn::{Asking, Conn, Phase};
use crate::shard::ctl::Ctl;
use crate::shard::datapath::Datapath;
use crate::shard::tx::Tx;
use crate::shard::tx::return_paths::ReturnPath;

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
        tx.link
            .return_paths
            .remember(tuple, ReturnPath::Open(path, port));
        // The reset leaves before the SYN. After it, the peer would take the SYN for a segment of the old
        // connection.
        tx.transmit(dp);
        let options = ConnOptions {
            mss: path.mss(tuple.remote.addr),
        };
        let Ok(id) = dp.stack.connect(dp.now, tuple, options) else {
            self.release(dp, Transport::Tcp, tuple.local);
            return self.tell_rejected(dp, qp, None, Vec::new());
        };
        log::debug!("{} rejects: asking it without Markers", tuple.remote);
        let phase = Phase::Requesting {
            qp,
            asking: Asking::Mpa {
                initiator,
                unmarked: None,
            },
            opened,
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
