//! Timeout for a silent peer that owes an answer.
//!
//! TCP gives up a peer that acknowledges nothing for the user timeout (RFC 9293 section 3.8.3). That timer
//! runs only while data is unacknowledged. A peer that vanishes between its ACK of a Read Request and its
//! Response, or between its ACK of our FIN and its own FIN, would be waited for forever. So the same timeout
//! runs here from the last segment of the peer, as long as the peer owes an answer. A peer that owes none may
//! be silent; only keep-alive asks whether it is still there (section 3.8.4).

use std::fmt::Write;

use rnic_ipc::control::DisconnectReason;
use rnic_xsk::Port;
use userspace_net::{Endpoint, Instant};
use userspace_tcp::ConnId;

use crate::conn::Conn;
use crate::shard::ctl::Ctl;
use crate::shard::datapath::Datapath;
use crate::shard::tx::Tx;

impl Ctl {
    /// The queue pair of this connection waits for its peer. A connection has one deadline; one for
    /// something else comes first, and then this.
    pub(in crate::shard) fn await_peer<P: Port>(&mut self, dp: &mut Datapath<P>, id: ConnId) {
        let idle = |conn: &Conn| conn.deadline.is_none() && !conn.closing;
        if dp.conns.get(id).is_some_and(idle) {
            self.set_deadline(dp, id, dp.config.tcp.user_timeout);
        }
    }

    /// The user timeout is over since the peer was first waited for, perhaps for something else.
    pub(in crate::shard) fn review_silence<P: Port>(
        &mut self,
        dp: &mut Datapath<P>,
        tx: &mut Tx,
        id: ConnId,
    ) {
        let Some(conn) = dp.conns.get_mut(id) else {
            return;
        };
        conn.deadline = None;
        let remote = conn.tuple.remote;
        let qp = conn.qp().and_then(|qp| dp.qps.get(qp.0));
        if !qp.is_some_and(|slot| slot.qp.awaits_peer()) {
            return;
        }
        match dp.given_up_at(id) {
            Some(at) if at > dp.now => {
                self.set_deadline(dp, id, at.saturating_duration_since(dp.now))
            }
            _ => {
                dp.counters.silence_timeouts += 1;
                let message = dp.describe_timeout(&remote);
                self.abort(dp, tx, id, DisconnectReason::TimedOut, Some(message));
            }
        }
    }

    /// A closing connection: the peer took too long, or is silent, or has some time left.
    pub(in crate::shard) fn review_close<P: Port>(
        &mut self,
        dp: &mut Datapath<P>,
        tx: &mut Tx,
        id: ConnId,
    ) {
        let by = dp.conns.get(id).and_then(|conn| conn.close_by);
        let silent_at = dp.given_up_at(id).unwrap_or(dp.now);
        let at = by.map_or(dp.now, |by| by.min(silent_at));
        if at > dp.now {
            return self.set_deadline(dp, id, at.saturating_duration_since(dp.now));
        }
        dp.counters.close_timeouts += 1;
        let message = dp.conns.get(id).map(|conn| {
            let remote = conn.tuple.remote;
            match by > Some(silent_at) {
                true => dp.describe_timeout(&remote),
                false => format!(
                    "{remote} did not close its half of the connection within {:?}: what it \
                     acknowledged may not have been delivered",
                    dp.config.close_timeout
                ),
            }
        });
        self.abort(dp, tx, id, DisconnectReason::TimedOut, message);
    }
}

impl<P: Port> Datapath<P> {
    /// When its peer will have been silent for the user timeout. While something is unacknowledged that
    /// is for TCP to say, and not before this time has passed from now.
    fn given_up_at(&self, id: ConnId) -> Option<Instant> {
        let heard = self.llp(self.transport(id), |llp| llp.heard(id))?;
        let since = if heard.awaits_ack { self.now } else { heard.at };
        Some(since + self.config.tcp.user_timeout)
    }

    pub(in crate::shard) fn describe_timeout(&self, peer: &Endpoint) -> String {
        let tcp = &self.config.tcp;
        let mut text = format!(
            "{peer} was waited for and silent for {:?} (user_timeout)",
            tcp.user_timeout
        );
        if let Some(keepalive) = tcp.keepalive {
            let probes = keepalive.probes;
            let _ = write!(text, ", or answered none of {probes} keep-alive probes");
        }
        text + ": it is gone, or the way to it is cut; connect again when it is back"
    }
}
