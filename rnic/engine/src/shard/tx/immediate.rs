//! Immediate transmit of a message when nothing else is to be sent. A single doorbell gets its quantum at
//! once. Work that is posted to an idle shard leaves in the call that posts it.
//!
//! The result is the one that the next round would give: this decides when to send, never what.

use rnic_ipc::id::ClientId;
use rnic_xsk::Port;
use userspace_tcp::ConnId;

use crate::shard::datapath::Datapath;
use crate::shard::tx::Tx;
use crate::shard::tx::drr_scheduler::Allowed;
use crate::shard::tx::quantum::StopReason;

impl Tx {
    /// Gives a connection of the client its quantum at once when no other has anything to send, as the next
    /// round would. That round does what remains, and handles all other cases.
    pub(in crate::shard) fn transmit_immediately<P: Port>(
        &mut self,
        dp: &mut Datapath<P>,
        id: ConnId,
        client: ClientId,
    ) {
        let alone = self.scheduler.alone(client);
        let alone = alone.filter(|_| self.macroflows.is_idle());
        if !alone.is_some_and(|alone| self.run_quantum_alone(dp, id, client, alone.allowed)) {
            self.schedule(dp, id);
        }
    }

    /// Gives a connection of the client's its turn, which nobody else waits for; says whether it is left
    /// with nothing that it could send. A message that is all that there is leaves before it is
    /// accounted for, so that the peer has it meanwhile.
    pub(in crate::shard) fn run_quantum_alone<P: Port>(
        &mut self,
        dp: &mut Datapath<P>,
        id: ConnId,
        client: ClientId,
        allowed: Allowed,
    ) -> bool {
        let room = self.room(dp);
        let quantum = self.run_quantum(dp, id, allowed, room);
        if quantum.is_short() {
            self.transmit_next(dp);
        }
        self.scheduler.spend_alone(client, quantum.cost);
        self.end_quantum(dp, id, client);
        matches!(quantum.end, StopReason::Done)
    }
}
