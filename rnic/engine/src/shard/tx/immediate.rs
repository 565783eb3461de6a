//! A message that nothing else goes with: a doorbell alone has its turn at once, and what is posted
//! while nothing is under way leaves in the call that posts it.
//!
//! It is the turn that the next round would give, and gives what that would give: this decides when,
//! and never what.

use rnic_ipc::id::{ClientId, QpNum};
use rnic_xsk::Port;
use userspace_tcp::{ConnId, Instant};

use crate::shard::Shard;
use crate::shard::tx::quantum::{Allowed, StopReason};

impl<P: Port> Shard<P> {
    /// Sends what the client has just posted to this queue pair without a doorbell, for who drives the
    /// shard in the same thread: the next poll, which a doorbell would wait for, has nothing else to do
    /// before it. That is so as long as nothing of anybody's is under way, or waits. When it says false
    /// nothing was done, and a doorbell is to be rung: then what is posted until the next poll goes
    /// together.
    ///
    /// The clock is looked at as in [`Self::poll_by`].
    pub fn send_at_once(
        &mut self,
        client: ClientId,
        qp: QpNum,
        clock: impl Fn() -> Instant,
    ) -> bool {
        let Some((id, allowed)) = self.next_alone(client, qp) else {
            return false;
        };
        self.advance(clock());
        self.quiet_until = None;
        if self.deferred.is_late(self.dp.now) {
            return false;
        }
        if !self.quantum_alone(id, client, allowed) {
            self.give_turn(id);
        }
        // As in a poll, for a message that is not all out yet.
        self.produce();
        self.transmit();
        true
    }

    /// The connection of this queue pair of the client's, and what it may send, if it has something and
    /// the shard has nothing else to do: nobody rings or waits for a turn, and all that was sent is
    /// acknowledged.
    fn next_alone(&self, client: ClientId, qp: QpNum) -> Option<(ConnId, Allowed)> {
        let quiet = |client: &crate::shard::Client| !client.faulted && client.doorbells.is_empty();
        if !self.clients.iter().all(quiet) || !self.macroflows.is_idle() {
            return None;
        }
        let slot = self.dp.qps.get(qp.0)?;
        if slot.qp.client() != client || !slot.qp.is_ready_to_send() {
            return None;
        }
        let id = slot.conn?;
        let alone = self.share.alone(client)?;
        let queued = self.dp.stack.acknowledged(id, self.deferred.ack())?;
        let idle = alone.frames == queued && alone.allowed.held.is_none();
        (idle && !slot.qp.has_nothing_to_send()).then_some((id, alone.allowed))
    }

    /// Gives a connection of the client's its turn: at once when nobody else has anything to send, which
    /// is then what the next round would do; what is left for that round, and all other cases, it does.
    pub(in crate::shard) fn transmit_immediately(&mut self, id: ConnId, client: ClientId) {
        let alone = self.share.alone(client);
        let alone = alone.filter(|_| self.macroflows.is_idle());
        if !alone.is_some_and(|alone| self.quantum_alone(id, client, alone.allowed)) {
            self.give_turn(id);
        }
    }

    /// Gives a connection of the client's its turn, which nobody else waits for; says whether it is left
    /// with nothing that it could send. A message that is all that there is leaves before it is
    /// accounted for, so that the peer has it meanwhile.
    fn quantum_alone(&mut self, id: ConnId, client: ClientId, allowed: Allowed) -> bool {
        let room = self.dp.room();
        let turn = self.turn(id, allowed, room);
        if turn.is_short() {
            self.transmit_next();
        }
        self.share.spend_alone(client, turn.cost);
        self.turn_over(id, client);
        self.update_conn(id);
        matches!(turn.end, StopReason::Done)
    }
}
