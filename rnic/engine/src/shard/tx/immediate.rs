//! A message that nothing else goes with: a doorbell alone has its turn at once, and what is posted
//! while nothing is under way leaves in the call that posts it.
//!
//! It is the turn that the next round would give, and gives what that would give: this decides when,
//! and never what.

use rnic_ipc::id::ClientId;
use rnic_xsk::Port;
use userspace_tcp::ConnId;

use crate::shard::datapath::Datapath;
use crate::shard::tx::Tx;
use crate::shard::tx::drr_scheduler::Allowed;
use crate::shard::tx::quantum::StopReason;

impl Tx {
    /// Gives a connection of the client's its turn: at once when nobody else has anything to send, which
    /// is then what the next round would do; what is left for that round, and all other cases, it does.
    pub(in crate::shard) fn transmit_immediately<P: Port>(
        &mut self,
        dp: &mut Datapath<P>,
        id: ConnId,
        client: ClientId,
    ) {
        let alone = self.scheduler.alone(client);
        let alone = alone.filter(|_| self.macroflows.is_idle());
        if !alone.is_some_and(|alone| self.quantum_alone(dp, id, client, alone.allowed)) {
            self.give_turn(dp, id);
        }
    }

    /// Gives a connection of the client's its turn, which nobody else waits for; says whether it is left
    /// with nothing that it could send. A message that is all that there is leaves before it is
    /// accounted for, so that the peer has it meanwhile.
    pub(in crate::shard) fn quantum_alone<P: Port>(
        &mut self,
        dp: &mut Datapath<P>,
        id: ConnId,
        client: ClientId,
        allowed: Allowed,
    ) -> bool {
        let room = self.room(dp);
        let turn = self.turn(dp, id, allowed, room);
        if turn.is_short() {
            self.transmit_next(dp);
        }
        self.scheduler.spend_alone(client, turn.cost);
        self.turn_over(dp, id, client);
        matches!(turn.end, StopReason::Done)
    }
}
