//! Queue pairs produce FPDUs as far as TCP, the frames, the link and the window of all connections to the
//! same peer ([`Macroflows`](crate::shard::tx::macroflow::Macroflows)) allow. Clients take turns, and so do
//! the connections of a client ([`DrrScheduler`](crate::shard::tx::drr_scheduler::DrrScheduler)).
//!
//! What is produced leaves in the same poll. Nothing is produced for a full link. In TCP's queues it would
//! wait in the order of connections, and a client with more connections would get more of the link.

use rnic_ipc::id::{ClientId, QpNum};
use rnic_xsk::Port;
use userspace_tcp::ConnId;

use crate::conn::Phase;
use crate::shard::datapath::Datapath;
use crate::shard::tx::Tx;
use crate::shard::tx::drr_scheduler::Allowed;
use crate::shard::tx::quantum::StopReason;

/// FPDUs that a poll produces at least when a client alone has so much to send: round after round, though
/// one may be all that it has in its turn. What a poll takes by itself, on both ends, is paid once
/// for all of them, and a system call sends as many frames.
const FPDUS_PER_POLL: usize = 32;
/// Connections that have waited for their macroflow's window, and go on in one poll.
const CALLS_PER_POLL: usize = 64;

/// FPDUs of unblocked connections after which a poll calls no more for a single client. Without this bound it
/// would produce as much as is acknowledged while it sends, soon the whole window each time. Those frames
/// would exceed a core's own caches, where frames that were just acknowledged could be reused. A smaller
/// bound would wake the program for few completions at a time.
const FPDUS_CALLED: usize = 64;

/// So many doorbells ahead the state of a queue pair is fetched into the cache: each takes less time
/// than that.
const FETCHED_AHEAD: usize = 4;

struct Produced {
    /// Segments that the link still takes.
    room: usize,
    /// FPDUs so far.
    fpdus: usize,
}

impl Tx {
    /// The client posted work to these queue pairs, or says so.
    pub(in crate::shard) fn doorbells<P: Port>(
        &mut self,
        dp: &mut Datapath<P>,
        client: ClientId,
        rung: &[QpNum],
    ) {
        if let [qp] = rung {
            if let Some(id) = self.doorbell(dp, client, *qp) {
                self.transmit_immediately(dp, id, client);
            }
            return;
        }
        for (at, qp) in rung.iter().enumerate() {
            if let Some(later) = rung.get(at + FETCHED_AHEAD) {
                dp.fetch_qp(*later);
            }
            if let Some(next) = rung.get(at + 1) {
                self.fetch_rung(dp, *next);
            }
            if let Some(id) = self.doorbell(dp, client, *qp) {
                self.schedule(dp, id);
            }
        }
    }

    /// The client posted work to this queue pair, or says so; the connection that is to have a turn for
    /// it.
    fn doorbell<P: Port>(
        &mut self,
        dp: &mut Datapath<P>,
        client: ClientId,
        num: QpNum,
    ) -> Option<ConnId> {
        let slot = dp.qps.get_mut(num.0)?;
        // A client may write any number; only its own queue pairs hear it.
        if slot.qp.client() != client {
            return None;
        }
        let flushed = slot.qp.doorbell(&mut dp.tables.context(slot.tally, dp.now));
        let conn = slot.conn.filter(|_| !slot.qp.has_nothing_to_send());
        if flushed {
            slot.queue_update(&mut dp.pending_updates);
        }
        conn
    }

    /// Gives a connection its turn in the next round, and counts what it holds: for after its queue in
    /// TCP has changed.
    pub(in crate::shard) fn make_ready<P: Port>(&mut self, dp: &mut Datapath<P>, id: ConnId) {
        let Some(conn) = dp.conns.get(id) else {
            return;
        };
        let Phase::Rdma { qp } = conn.phase else {
            return;
        };
        if conn.joined {
            dp.complete_acknowledged(id, qp);
        }
        // First, so that it need not wait for room that it has just made itself. The queue pair is not
        // looked at for it: of one that waits nothing is needed yet.
        if let Some(client) = dp.served.client(id) {
            self.count_held(dp, id, client);
        }
        self.schedule(dp, id);
    }

    /// Gives a connection its turn in the next round, if it has a queue pair that may have something to
    /// send.
    pub(in crate::shard) fn schedule<P: Port>(&mut self, dp: &mut Datapath<P>, id: ConnId) {
        let Some(conn) = dp.conns.get_mut(id) else {
            return;
        };
        let Phase::Rdma { qp } = conn.phase else {
            return;
        };
        if conn.ready {
            return;
        }
        let Some(slot) = dp.qps.get(qp.0) else {
            return;
        };
        let qp = &slot.qp;
        if !qp.has_nothing_to_send() {
            conn.ready = true;
            // A turn would find that it has to wait, and bring all of it into the cache for that.
            if self.macroflows.must_wait(id) && qp.would_send() {
                dp.counters.macroflow_waits += 1;
                self.macroflows.wait(id);
            } else {
                self.scheduler.push(qp.client(), id);
            }
        }
    }

    /// Counts what a connection of the client's holds: frames, and segments under way.
    fn count_held<P: Port>(&mut self, dp: &mut Datapath<P>, id: ConnId, client: ClientId) {
        let queued = dp.llp(dp.transport(id), |llp| llp.queued_segments(id));
        self.scheduler.hold(id, client, queued);
        self.macroflows.under_way(id, queued, dp.now);
    }

    /// One quantum for each client that has something to send, as long as the link takes it, and more of them
    /// for a single client. After that come connections that have waited for others to the same peer.
    pub(in crate::shard) fn produce<P: Port>(&mut self, dp: &mut Datapath<P>) -> bool {
        self.starved = false;
        if self.is_idle() {
            return false;
        }
        let mut produced = Produced {
            room: self.room(dp),
            fpdus: 0,
        };
        let mut worked = self.rounds(dp, &mut produced);
        // Not with several clients: others may produce as much in each round, and waiting connections would
        // not be unblocked.
        let most = match self.scheduler.is_shared() {
            true => usize::MAX,
            false => produced.fpdus + FPDUS_CALLED,
        };
        // Each is unblocked while the one before it has still to take its turn: its state is under way to
        // the cache meanwhile.
        let mut unblocked = None;
        for _ in 0..CALLS_PER_POLL {
            // Where there is no room none is unblocked: its turn would come to nothing, and the call with it.
            if self.starved || produced.fpdus >= most {
                break;
            }
            let next = unblocked.take();
            let Some((id, client)) = next.or_else(|| self.pop_unblocked(dp)) else {
                break;
            };
            dp.fetch_work(id);
            self.scheduler.resume(client, id);
            unblocked = self.pop_unblocked(dp);
            worked |= self.round(dp, &mut produced);
        }
        if let Some((id, client)) = unblocked {
            self.scheduler.resume(client, id);
        }
        worked
    }

    /// A connection that has waited for others to the same peer and may go on.
    fn pop_unblocked<P: Port>(&mut self, dp: &mut Datapath<P>) -> Option<(ConnId, ClientId)> {
        let unblocked = self.macroflows.pop_unblocked()?;
        self.fetch_conn(dp, unblocked.0.index());
        Some(unblocked)
    }

    /// One turn for each client, and more of them for a client alone until enough was produced.
    fn rounds<P: Port>(&mut self, dp: &mut Datapath<P>, produced: &mut Produced) -> bool {
        let mut worked = false;
        loop {
            let before = produced.fpdus;
            worked |= self.round(dp, produced);
            let goes_on = before < produced.fpdus && produced.fpdus < FPDUS_PER_POLL;
            // A message of another client's, which may come meanwhile, would wait for all of it.
            if !goes_on || self.starved || self.scheduler.is_idle() || self.scheduler.is_shared() {
                return worked;
            }
        }
    }

    /// One turn for each client, while the link has room.
    fn round<P: Port>(&mut self, dp: &mut Datapath<P>, produced: &mut Produced) -> bool {
        let mut worked = false;
        for _ in 0..self.scheduler.active() {
            let Some(client) = self.scheduler.next_client() else {
                break;
            };
            let mut waits = false;
            while let Some((id, credit)) = self.scheduler.next(client)
                && !waits
            {
                let [next, next_but_one] = self.scheduler.peek_next(client);
                if let Some(next) = next {
                    dp.fetch_work(next);
                }
                if let Some(next) = next_but_one {
                    self.fetch_conn(dp, next.index());
                }
                let held = self.scheduler.held_beside_others(client);
                let quantum = self.run_quantum(dp, id, Allowed { credit, held }, produced.room);
                if quantum.is_short() && self.scheduler.is_last(client) {
                    // Nothing else is to go with it: it leaves before it is accounted for, so that the
                    // peer has it meanwhile.
                    self.transmit_next(dp);
                }
                self.end_quantum(dp, id, client);
                produced.room = produced.room.saturating_sub(quantum.segments);
                produced.fpdus += quantum.fpdus;
                worked |= quantum.cost > 0;
                self.scheduler.spend(client, quantum.cost);
                let stuck = matches!(quantum.end, StopReason::NoFrame | StopReason::LinkFull);
                waits = matches!(quantum.end, StopReason::ClientsFrames);
                if let Some(conn) = dp.conns.get_mut(id) {
                    conn.ready = !matches!(quantum.end, StopReason::Done);
                    match quantum.end {
                        StopReason::Done => {}
                        StopReason::More => self.scheduler.again(client, id),
                        StopReason::Macroflow => {
                            dp.counters.macroflow_waits += 1;
                            self.macroflows.wait(id);
                        }
                        _ => self.scheduler.put_back(client, id),
                    }
                }
                if stuck {
                    dp.counters.no_frame += u64::from(matches!(quantum.end, StopReason::NoFrame));
                    self.starved = true;
                    return worked;
                }
            }
            if waits {
                self.scheduler.wait_for_frames(client);
            } else {
                self.scheduler.end(client);
            }
        }
        worked
    }

    /// A transmit quantum is over: completes what was sent, and counts what the connection holds.
    pub(in crate::shard) fn end_quantum<P: Port>(
        &mut self,
        dp: &mut Datapath<P>,
        id: ConnId,
        client: ClientId,
    ) {
        let Some(conn) = dp.conns.get(id) else {
            return;
        };
        if let Some(slot) = conn.qp().and_then(|qp| dp.qps.get_mut(qp.0)) {
            slot.qp
                .end_quantum(&mut dp.tables.context(slot.tally, dp.now));
            slot.queue_update(&mut dp.pending_updates);
        }
        self.count_held(dp, id, client);
    }
}
