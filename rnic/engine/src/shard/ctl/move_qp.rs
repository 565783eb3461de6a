//! Queue pairs that go from one shard of a device to another, while they are Idle: each is where its connection is.
//!
//! The client rings at one of both shards meanwhile. The shard that gets the queue pair answers a doorbell that it may
//! not have had, as for any other (module head of [`rnic_ipc::ring`]'s work queues): so nothing that was posted waits.

use rnic_ipc::id::QpNum;
use rnic_xsk::Port;

use crate::command::CommandError;
use crate::qp::Qp;
use crate::shard::ctl::Ctl;
use crate::shard::ctl::connect::wrong_state;
use crate::shard::ctl::control::{limit, unknown};
use crate::shard::datapath::{Datapath, QpSlot};
use crate::shard::tx::Tx;

impl Ctl {
    /// Takes an Idle queue pair away. It is still one of its protection domain's streams, in all shards.
    pub(super) fn take_qp<P: Port>(
        &mut self,
        dp: &mut Datapath<P>,
        tx: &mut Tx,
        num: QpNum,
    ) -> Result<Box<Qp>, CommandError> {
        dp.qp(num)?.qp.check_idle().map_err(wrong_state)?;
        let slot = dp.qps.remove(num.0).ok_or(unknown("queue pair"))?;
        let mut qp = slot.qp;
        qp.give_back(&mut dp.tables.queue_pool);
        tx.scheduler.queue_pair_removed(qp.client());
        Ok(Box::new(qp))
    }

    /// Adds a queue pair that another shard had, and sees to what was posted to it.
    pub(super) fn put_qp<P: Port>(
        &mut self,
        dp: &mut Datapath<P>,
        tx: &mut Tx,
        qp: Qp,
    ) -> Result<(), CommandError> {
        let num = qp.num();
        check_new_qp(dp, num)?;
        enter_qp(dp, tx, qp);
        let slot = dp.qp(num)?;
        let tally = slot.tally;
        if let Some(slot) = dp.qps.get_mut(num.0) {
            let context = &mut dp.tables.context(tally, dp.now);
            slot.qp.doorbell(context);
            // It may have failed on the way.
            if slot.qp.dead_cq(context.cqs).is_some() {
                slot.qp.cq_failed(context);
            }
        }
        self.update_qp(dp, tx, num);
        Ok(())
    }
}

/// There is a place for a queue pair of this number, which no other has.
pub(super) fn check_new_qp<P: Port>(dp: &Datapath<P>, num: QpNum) -> Result<(), CommandError> {
    limit("queue pairs", dp.qps.len(), dp.config.limits.queue_pairs)?;
    match dp.qps.contains(num.0) {
        true => Err(CommandError::Invalid(format!("queue pair {num} exists"))),
        false => Ok(()),
    }
}

pub(super) fn enter_qp<P: Port>(dp: &mut Datapath<P>, tx: &mut Tx, qp: Qp) {
    let client = qp.client();
    tx.scheduler.queue_pair_added(client);
    qp.provide(&mut dp.tables.queue_pool);
    let tally = dp.tables.client_stats.place_of(client);
    dp.qps.insert(qp.num().0, Box::new(QpSlot::new(qp, tally)));
}
