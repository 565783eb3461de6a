//! Deferred work of a received segment. Only the checks that decide about placement are done before its
//! payload is placed. All other work is done after the reply has left, if there is one, so that neither the
//! application nor the peer waits for it.

use std::time::Duration;

use rnic_xsk::{Frame, Port};
use userspace_net::Instant;
use userspace_tcp::{ConnId, DeferredAck};

use crate::shard::ctl::Ctl;
use crate::shard::datapath::Datapath;
use crate::shard::tx::Tx;

/// Deferred work of the last received segment, whose payload is placed: the acknowledgment that it carried,
/// what its queue pair asks for, and its frame.
#[derive(Debug, Default)]
pub(in super::super) struct DeferredRx {
    ack: Option<DeferredAck>,
    frame: Option<Frame>,
    /// When the poll began that found the segment.
    since: Instant,
}

/// For so long it waits for a reply: no time for TCP, whose clock runs on.
const PATIENCE: Duration = Duration::from_micros(100);

impl DeferredRx {
    /// Whether the segment came longer ago than its deferred work may wait for a reply.
    pub fn is_late(&self, now: Instant) -> bool {
        self.is_waiting() && now.saturating_duration_since(self.since) > PATIENCE
    }

    /// So much is left of a segment whose bytes are in their place.
    #[inline]
    pub(super) fn leave(&mut self, ack: DeferredAck, now: Instant) {
        self.ack = Some(ack);
        self.since = now;
    }

    #[inline]
    pub(super) fn keep(&mut self, frame: Option<Frame>) {
        self.frame = frame;
    }

    /// What TCP still has to do, if there is any.
    pub fn ack(&self) -> Option<&DeferredAck> {
        self.ack.as_ref()
    }

    pub fn is_waiting(&self) -> bool {
        self.ack.is_some()
    }
}

impl DeferredRx {
    /// Does what was deferred; says whether there was anything.
    #[inline]
    pub fn run<P: Port>(&mut self, dp: &mut Datapath<P>, tx: &mut Tx, ctl: &mut Ctl) -> bool {
        let conn = self.ack.as_ref().map(DeferredAck::conn);
        // Most calls find none, and cost no more than that.
        conn.is_some_and(|id| self.run_of(dp, tx, ctl, id))
    }

    #[inline(never)]
    fn run_of<P: Port>(
        &mut self,
        dp: &mut Datapath<P>,
        tx: &mut Tx,
        ctl: &mut Ctl,
        id: ConnId,
    ) -> bool {
        if let Some(frame) = self.frame.take() {
            dp.frames.pool.free(frame);
        }
        self.finish_ack(dp, tx, ctl, id);
        ctl.update_conn(dp, tx, id);
        ctl.handle_close_events(dp, tx);
        tx.make_ready(dp, id);
        true
    }

    fn finish_ack<P: Port>(
        &mut self,
        dp: &mut Datapath<P>,
        tx: &mut Tx,
        ctl: &mut Ctl,
        id: ConnId,
    ) {
        let late = self.is_late(dp.now);
        if let Some(ack) = self.ack.take() {
            // The segment may have arrived long before this poll: the owner polled late, or the poll was
            // interrupted before it found the segment. That delay is no part of a round trip.
            let ack = if late { ack.unmeasured() } else { ack };
            let conn = dp.conns.get(id);
            let consumed = conn.map_or(0, |conn| conn.inbound.consumed_to());
            dp.stack.finish(dp.now, &ack, consumed);
            ctl.handle_open_events(dp, tx);
        }
    }
}
