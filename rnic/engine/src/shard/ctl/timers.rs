//! What time brings: TCP's timers, and what a connection's deadline means in its phase.

use std::time::Duration;

use rnic_ipc::control::DisconnectReason;
use rnic_xsk::Port;
use userspace_tcp::ConnId;

use crate::conn::{Asking, Phase};
use crate::shard::ctl::Ctl;
use crate::shard::datapath::Datapath;
use crate::shard::tx::Tx;

impl Ctl {
    pub(in crate::shard) fn set_deadline<P: Port>(
        &mut self,
        dp: &mut Datapath<P>,
        id: ConnId,
        patience: Duration,
    ) {
        if self.deadlines.is_crowded() {
            let conns = &dp.conns;
            let meant = |at, id| conns.get(id).is_some_and(|conn| conn.deadline == Some(at));
            self.deadlines.compact(meant);
        }
        let Some(conn) = dp.conns.get_mut(id) else {
            return;
        };
        let at = dp.now + patience;
        if conn.deadline != Some(at) {
            conn.deadline = Some(at);
            self.deadlines.set(at, id);
        }
    }

    /// TCP's timers and our own.
    pub(in crate::shard) fn run_timers<P: Port>(
        &mut self,
        dp: &mut Datapath<P>,
        tx: &mut Tx,
    ) -> bool {
        let mut worked = false;
        if dp.stack.next_deadline().is_some_and(|at| at <= dp.now) {
            worked = true;
            dp.stack.advance(dp.now);
            self.handle_open_events(dp, tx);
            self.handle_close_events(dp, tx);
        }
        if dp.sctp.is_due(dp.now) {
            worked = true;
            dp.sctp.stack.advance(dp.now);
            self.handle_association_events(dp, tx, None);
        }
        while let Some((at, id)) = self.deadlines.expired(dp.now) {
            if dp
                .conns
                .get(id)
                .is_some_and(|conn| conn.deadline == Some(at))
            {
                worked = true;
                self.out_of_patience(dp, tx, id);
            }
        }
        worked
    }

    fn out_of_patience<P: Port>(&mut self, dp: &mut Datapath<P>, tx: &mut Tx, id: ConnId) {
        let Some(conn) = dp.conns.get(id) else {
            return;
        };
        let (count, message) = match &conn.phase {
            Phase::Requesting { asking, .. } => (
                &mut dp.counters.startup_timeouts,
                Some(format!(
                    "no answer to the {} from {} within {:?}: it may not speak iWARP on this port",
                    match asking {
                        Asking::Mpa { .. } => "MPA Request",
                        Asking::Session => "DDP Stream Session Initiate",
                    },
                    conn.tuple.remote,
                    dp.config.startup_timeout
                )),
            ),
            Phase::HalfOpen => return self.review_half_open(dp, id),
            Phase::AwaitRequest { whole_by, .. } => {
                if conn.inbound.consumed_to() > 0 && dp.now < *whole_by {
                    // It has begun to speak in time.
                    let rest = whole_by.saturating_duration_since(dp.now);
                    return self.set_deadline(dp, id, rest);
                }
                (&mut dp.counters.startup_timeouts, None)
            }
            Phase::Requested { .. } => (&mut dp.counters.answer_timeouts, None),
            Phase::Rdma { .. } if conn.unheard.is_some() => return self.retry_rtr(dp, tx, id),
            Phase::Rdma { .. } | Phase::Over if conn.close_by.is_some() => {
                return self.review_close(dp, tx, id);
            }
            Phase::Rdma { .. } => return self.review_silence(dp, tx, id),
            Phase::Over => (&mut dp.counters.close_timeouts, None),
        };
        *count += 1;
        self.abort(dp, tx, id, DisconnectReason::TimedOut, message);
    }

    /// TCP has its own timeout for half-open connections, and drops them without an event.
    fn review_half_open<P: Port>(&mut self, dp: &mut Datapath<P>, id: ConnId) {
        if dp.stack.info(id).is_some() {
            self.set_deadline(dp, id, dp.config.startup_timeout);
        } else if let Some(mut conn) = dp.conns.remove(id) {
            conn.inbound.clear(&mut dp.frames);
        }
    }
}
