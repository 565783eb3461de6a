//! How an input ends: a sound peer takes over, and nothing is left behind.

use std::time::Duration;

use userspace_net::Ecn;
use userspace_tcp::{ConnId, ResourceUsage, SeqNum, State};

use super::super::peer;
use super::{World, local};

/// Rounds in which a sound peer has to bring everything to an end.
const ROUNDS_MAX: usize = 4000;

impl World<'_> {
    /// A sound peer takes over, if nothing odd was said before: everything arrives, or the
    /// connection is given up. Then all buffers are back.
    pub(super) fn finish(&mut self) {
        self.keeps = false;
        self.stalled = false;
        self.drain();
        if let Some(conn) = self.conn.filter(|_| !self.model.odd) {
            self.come_to_an_end(conn);
        }
        self.known.extend(self.conn);
        for conn in std::mem::take(&mut self.known) {
            self.stack.abort(conn);
        }
        self.drain();
        let resource_usage = self.stack.resource_usage();
        assert_eq!(
            resource_usage.connections, resource_usage.half_open,
            "who is that?"
        );
        self.stack.unlisten(local());
        self.drain();
        assert_eq!(self.stack.resource_usage(), ResourceUsage::default());
        assert_eq!(self.buffers.alive(), 0, "a buffer is missing");
        assert_eq!(self.buffers.dropped(), 0, "a buffer was dropped");
    }

    fn come_to_an_end(&mut self, conn: ConnId) {
        let established = self
            .stack
            .info(conn)
            .is_some_and(|info| !matches!(info.state, State::SynSent | State::SynReceived));
        if !established {
            return;
        }
        self.stack.close(conn);
        // From here on there is no reason to give up.
        let patience = Duration::from_secs(1 << 30);
        self.stack.set_user_timeout(conn, self.now, patience);
        self.stack.set_keepalive(conn, self.now, None);
        self.given_up = false;
        self.consume(self.model.in_order);
        for _ in 0..ROUNDS_MAX {
            self.drain();
            // In FIN-WAIT-2 it may: the peer never closes.
            let done = self.model.all_acked();
            assert!(done || !self.given_up, "given up although a peer is there");
            if self.stack.info(conn).is_none() {
                return;
            }
            let info = self.stack.info(conn);
            if info.is_some_and(|info| info.queued_segments == 0) && self.model.all_acked() {
                return;
            }
            let mut header = peer::sound(&self.model);
            header.seq = SeqNum(self.model.peer_seq(self.model.in_order));
            let missing = self.model.peer_sent - self.model.in_order;
            if missing > 0 {
                let len = missing.min(1000) as usize;
                self.give(header, len, Ecn::NotEct);
                self.consume(self.model.in_order);
            } else {
                self.give(header, 0, Ecn::NotEct);
                self.drain();
                self.pass_to_deadline();
            }
        }
        panic!(
            "a sound peer can't bring it to an end: {:?}",
            self.stack.info(conn)
        );
    }
}
