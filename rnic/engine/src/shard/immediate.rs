//! What is posted while nothing is under way leaves in the call that posts it, for who drives the shard
//! in the same thread.

use rnic_ipc::id::{ClientId, QpNum};
use rnic_xsk::Port;
use userspace_net::Instant;
use userspace_tcp::ConnId;

use super::Shard;
use super::ctl::Client;
use super::tx::drr_scheduler::Allowed;

impl<P: Port> Shard<P> {
    /// Sends what the client has just posted to this queue pair, without a doorbell, when the caller drives
    /// the shard in the same thread. It is done only if the shard is idle: no client has data in flight or
    /// waiting, so the next poll would have nothing else to do first.
    ///
    /// When it returns false nothing was done, and the caller rings a doorbell. Work that is posted until the
    /// next poll then leaves together.
    ///
    /// The clock is read as in [`Self::poll_by`].
    pub fn transmit_posted(
        &mut self,
        client: ClientId,
        qp: QpNum,
        clock: impl Fn() -> Instant,
    ) -> bool {
        let Some((id, allowed)) = self.next_alone(client, qp) else {
            return false;
        };
        self.dp.advance(clock());
        self.quiet_until = None;
        if self.rx.deferred().is_late(self.dp.now) {
            return false;
        }
        if !self.tx.run_quantum_alone(&mut self.dp, id, client, allowed) {
            self.tx.schedule(&mut self.dp, id);
        }
        // As in a poll, for a message that is not all out yet.
        self.produce();
        self.tx.transmit(&mut self.dp);
        true
    }

    /// The connection of this queue pair and what it may send. None if it has nothing to send, if another
    /// connection waits or a doorbell is pending, or if sent data is unacknowledged.
    fn next_alone(&self, client: ClientId, qp: QpNum) -> Option<(ConnId, Allowed)> {
        let quiet = |client: &Client| !client.faulted && client.doorbells.is_empty();
        if !self.ctl.clients.iter().all(quiet) || !self.tx.macroflows.is_idle() {
            return None;
        }
        let slot = self.dp.qps.get(qp.0)?;
        if slot.qp.client() != client || !slot.qp.is_ready_to_send() {
            return None;
        }
        let id = slot.conn?;
        let alone = self.tx.scheduler.alone(client)?;
        let deferred = self.rx.deferred().ack();
        let transport = self.dp.transport(id);
        let queued = self
            .dp
            .llp(transport, |llp| llp.acknowledged(id, deferred))?;
        let idle = alone.frames == queued && alone.allowed.held.is_none();
        (idle && !slot.qp.has_nothing_to_send()).then_some((id, alone.allowed))
    }
}
