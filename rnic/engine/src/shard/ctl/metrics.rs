//! A shard's counters, for operators.

use rnic_net::ReassemblyCounters;
use rnic_xsk::Port;

use crate::command::ShardMetrics;
use crate::conn::ConnKind;
use crate::counters::{self, Levels};
use crate::shard::ctl::Ctl;
use crate::shard::datapath::Datapath;
use crate::shard::siblings::Siblings;
use crate::shard::tx::Tx;

/// How much of the shard's tables and frames is in use.
pub(in crate::shard) fn levels<P>(dp: &Datapath<P>, tx: &Tx) -> Levels {
    Levels {
        connections: dp.conns.count(ConnKind::Tcp) + dp.conns.count(ConnKind::Session),
        associations: dp.conns.count(ConnKind::Association),
        queue_pairs: dp.qps.len(),
        regions: dp.tables.stags.len(),
        queues_lent: dp.tables.queue_pool.count(),
        frames_free: dp.frames.pool.free_chunks(),
        frames_held: dp.frames.held.count(),
        streams_held: dp.holds.len(),
        bytes_held: bytes_held(dp),
        frames_on_link: tx.link.count(),
    }
}

fn bytes_held<P>(dp: &Datapath<P>) -> u64 {
    let conns = dp.holds.iter().filter_map(|holder| dp.conns.get(holder.id));
    conns.map(|conn| conn.inbound.waiting()).sum()
}

impl Ctl {
    pub(super) fn metrics<P: Port>(
        &self,
        dp: &Datapath<P>,
        tx: &Tx,
        fragments: &ReassemblyCounters,
    ) -> ShardMetrics {
        ShardMetrics {
            counters: self.named_counters(dp, tx, fragments),
            clients: dp.tables.client_stats.by_client(),
            work: dp.tables.client_stats.times,
            connect: self.connect_times,
        }
    }

    pub(super) fn named_counters<P: Port>(
        &self,
        dp: &Datapath<P>,
        tx: &Tx,
        fragments: &ReassemblyCounters,
    ) -> Vec<(String, u64)> {
        let siblings = dp.siblings.as_ref();
        let handover = siblings.map(Siblings::statistics).unwrap_or_default();
        counters::named(
            &dp.counters,
            fragments,
            &dp.tables.client_stats.total(),
            (
                &dp.stack.counters(),
                &dp.stack.totals(),
                &dp.sctp.stack.counters(),
            ),
            &levels(dp, tx),
            &(handover, dp.conns.unentered),
            dp.ports.iter().map(Port::statistics),
        )
    }
}
