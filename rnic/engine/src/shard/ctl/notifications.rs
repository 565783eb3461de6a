//! What clients are notified of their queues: that they broke their rules, ran low, or died.

use rnic_ipc::control::{Event, RefusalCode};
use rnic_ipc::id::{ClientId, QpNum};
use rnic_xsk::Port;

use crate::command::ShardEvent;
use crate::shard::ctl::Ctl;
use crate::shard::datapath::Datapath;
use crate::shard::tx::Tx;

impl Ctl {
    /// A client that can't be trusted: nothing of it is read any more. Told once.
    pub(in crate::shard) fn client_fault<P: Port>(
        &mut self,
        dp: &mut Datapath<P>,
        client: ClientId,
        code: RefusalCode,
        message: String,
    ) {
        let known = self
            .clients
            .iter_mut()
            .find(|entry| entry.id == client && !entry.faulted);
        let Some(entry) = known else { return };
        entry.faulted = true;
        dp.counters.client_faults += 1;
        self.events.push_back(ShardEvent::ClientFault {
            client,
            code,
            message,
        });
    }

    /// Tells the owners of shared receive queues that fell below their limits.
    pub(in crate::shard) fn report_srq_limits<P: Port>(&mut self, dp: &mut Datapath<P>) {
        while let Some((client, srq)) = dp.tables.srqs.poll_limit() {
            let event = Event::SrqLimit { srq };
            self.events.push_back(ShardEvent::Client { client, event });
        }
    }

    /// A CQ that takes nothing any more takes its queue pairs with it (RFC 5040 section 8.1.1).
    pub(in crate::shard) fn fail_queue_pairs_of_dead_cqs<P: Port>(
        &mut self,
        dp: &mut Datapath<P>,
        tx: &mut Tx,
    ) {
        while let Some(failure) = dp.tables.cqs.poll_failure() {
            let event = Event::CqError { cq: failure.cq };
            self.events.push_back(ShardEvent::Client {
                client: failure.client,
                event,
            });
            let users: Vec<QpNum> = dp
                .qps
                .values()
                .filter(|slot| slot.qp.uses_cq(failure.cq))
                .map(|slot| slot.qp.num())
                .collect();
            for num in users {
                if let Some(slot) = dp.qps.get_mut(num.0) {
                    slot.qp
                        .cq_failed(&mut dp.tables.context(slot.tally, dp.now));
                }
                self.update_qp(dp, tx, num);
            }
        }
    }
}
