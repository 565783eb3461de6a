//! Queue pairs produce FPDUs as TCP, the frames, the link and the window of all connections to the
//! same peer ([`Macroflows`](super::macroflow::Macroflows)) allow: each client in its turn, and of a
//! client each connection ([`Share`](super::share::Share)).
//!
//! What is produced goes out in the same poll. Nothing is produced for a link that is full: in TCP's
//! queues it would wait in the order of connections, where whoever has more of them has more of the
//! link.

use rnic_ipc::control::DisconnectReason;
use rnic_ipc::id::{ClientId, QpNum};
use rnic_xsk::{Frame, Port};
use userspace_tcp::{ConnId, Outgoing, SendError};

use super::Shard;
use crate::conn::Phase;
use crate::qp::Filled;

/// Segments of one connection before its client's next gets its turn.
pub(super) const SEGMENTS_PER_TURN: usize = 16;
/// Octets that an FPDU, or work that sends nothing, counts for at least: small ones take as long.
const COST_MIN: usize = 512;
/// FPDUs that a poll produces at least when a client alone has so much to send: round after round, though
/// one may be all that it has in its turn. What a poll takes by itself, on both ends, is paid once
/// for all of them, and a system call sends as many frames.
const FPDUS_PER_POLL: usize = 32;
/// Connections that have waited for their macroflow's window, and go on in one poll.
const CALLS_PER_POLL: usize = 64;

/// So many doorbells ahead the state of a queue pair is fetched into the cache: each takes less time
/// than that.
const FETCHED_AHEAD: usize = 4;

/// What a connection's turn may be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Allowed {
    /// What its client may still send, in octets.
    pub credit: usize,
    /// Frames that its client holds, where others want some too: it may hold as many as it leaves.
    pub held: Option<usize>,
}

/// How a connection's turn went.
pub(super) struct Turn {
    /// Segments that it sent.
    segments: usize,
    /// FPDUs in them.
    fpdus: usize,
    /// What it counts for, in octets.
    pub cost: usize,
    pub end: End,
}

impl Turn {
    /// Whether it was all that the connection has to send, and one segment.
    pub fn is_short(&self) -> bool {
        self.segments == 1 && matches!(self.end, End::Done)
    }
}

/// What one poll produces.
struct Produced {
    /// Segments that the link still takes.
    room: usize,
    /// FPDUs so far.
    fpdus: usize,
}

/// Why a connection's turn ended.
pub(super) enum End {
    /// Nothing to send, or no room: an acknowledgment or a doorbell makes it ready again.
    Done,
    /// It has more, and room for more.
    More,
    /// So it has, but its client has had its share.
    Share,
    /// Its client holds its share of the frames: an acknowledgment of another connection's may give
    /// some back.
    ClientsFrames,
    /// The connections to its peer have as much under way as they may.
    Macroflow,
    /// No frame is free: frames come back without any event of this connection.
    NoFrame,
    /// The link takes no more.
    LinkFull,
}

impl<P: Port> Shard<P> {
    /// The client posted work to these queue pairs, or says so.
    pub(super) fn doorbells(&mut self, client: ClientId, rung: &[QpNum]) {
        if let [qp] = rung {
            if let Some(id) = self.doorbell(client, *qp) {
                self.turn_at_once(id, client);
            }
            return;
        }
        for (at, qp) in rung.iter().enumerate() {
            if let Some(later) = rung.get(at + FETCHED_AHEAD) {
                self.fetch_qp(*later);
            }
            if let Some(next) = rung.get(at + 1) {
                self.fetch_rung(*next);
            }
            if let Some(id) = self.doorbell(client, *qp) {
                self.give_turn(id);
            }
        }
    }

    /// The client posted work to this queue pair, or says so; the connection that is to have a turn for
    /// it.
    fn doorbell(&mut self, client: ClientId, num: QpNum) -> Option<ConnId> {
        let slot = self.qps.get_mut(&num.0)?;
        // A client may write any number; only its own queue pairs hear it.
        if slot.qp.client() != client {
            return None;
        }
        let flushed = slot
            .qp
            .doorbell(&mut self.tables.context(slot.tally, self.now));
        let conn = slot.conn.filter(|_| !slot.qp.has_nothing_to_send());
        if flushed {
            self.settle(num);
        }
        conn
    }

    /// Segments that the link takes now.
    pub(super) fn room(&mut self) -> usize {
        let room = self.ports.iter_mut().map(Port::transmit_room).min();
        room.unwrap_or(0)
    }

    /// Gives a connection its turn in the next round, and counts what it holds: for after its queue in
    /// TCP has changed.
    pub(super) fn make_ready(&mut self, id: ConnId) {
        if let Some(client) = self.give_turn(id) {
            self.count_held(id, client);
        }
    }

    /// Gives a connection its turn in the next round, if it has a queue pair that may have something to
    /// send; whose that is.
    pub(super) fn give_turn(&mut self, id: ConnId) -> Option<ClientId> {
        let conn = self.conns.get_mut(id)?;
        let Phase::Rdma { qp } = conn.phase else {
            return None;
        };
        let qp = &self.qps.get(&qp.0)?.qp;
        let client = qp.client();
        if !conn.ready && !qp.has_nothing_to_send() {
            conn.ready = true;
            self.share.push(client, id);
        }
        Some(client)
    }

    /// Counts what a connection of the client's holds: frames, and segments under way.
    fn count_held(&mut self, id: ConnId, client: ClientId) {
        let queued = self.stack.queued_segments(id);
        self.share.hold(id, client, queued);
        self.macroflows.under_way(id, queued);
    }

    /// One turn for each client that has something to send, as long as the link takes it, and more of them
    /// for a client alone; and then for connections that have waited for others to the same peer.
    pub(super) fn produce(&mut self) -> bool {
        self.starved = false;
        if self.share.is_idle() && self.macroflows.is_idle() {
            return false;
        }
        let mut produced = Produced {
            room: self.room(),
            fpdus: 0,
        };
        let mut worked = self.rounds(&mut produced);
        // Each is called while the one before it has still to take its turn: its state is under way to
        // the cache meanwhile.
        let mut called = None;
        for _ in 0..CALLS_PER_POLL {
            let next = called.take();
            let Some((id, client)) = next.or_else(|| self.call()) else {
                break;
            };
            self.fetch_work(id);
            self.share.go_on(client, id);
            if self.starved {
                break;
            }
            called = self.call();
            worked |= self.round(&mut produced);
        }
        if let Some((id, client)) = called {
            self.share.go_on(client, id);
        }
        worked
    }

    /// A connection that has waited for others to the same peer and may go on.
    fn call(&mut self) -> Option<(ConnId, ClientId)> {
        let called = self.macroflows.call()?;
        self.fetch_conn(called.0.index());
        Some(called)
    }

    /// One turn for each client, and more of them for a client alone until enough was produced.
    fn rounds(&mut self, produced: &mut Produced) -> bool {
        let mut worked = false;
        loop {
            let before = produced.fpdus;
            worked |= self.round(produced);
            let goes_on = before < produced.fpdus && produced.fpdus < FPDUS_PER_POLL;
            // A message of another client's, which may come meanwhile, would wait for all of it.
            if !goes_on || self.starved || self.share.is_idle() || self.share.is_shared() {
                return worked;
            }
        }
    }

    /// One turn for each client, while the link has room.
    fn round(&mut self, produced: &mut Produced) -> bool {
        let mut worked = false;
        for _ in 0..self.share.active() {
            let Some(client) = self.share.begin() else {
                break;
            };
            let mut waits = false;
            while let Some((id, credit)) = self.share.next(client)
                && !waits
            {
                let [next, next_but_one] = self.share.coming(client);
                if let Some(next) = next {
                    self.fetch_work(next);
                }
                if let Some(next) = next_but_one {
                    self.fetch_conn(next.index());
                }
                let held = self.share.held_beside_others(client);
                let turn = self.turn(id, Allowed { credit, held }, produced.room);
                if turn.is_short() && self.share.is_last(client) {
                    // Nothing else is to go with it: it leaves before it is accounted for, so that the
                    // peer has it meanwhile.
                    self.transmit_next();
                }
                self.turn_over(id, client);
                produced.room = produced.room.saturating_sub(turn.segments);
                produced.fpdus += turn.fpdus;
                worked |= turn.cost > 0;
                self.share.spend(client, turn.cost);
                let stuck = matches!(turn.end, End::NoFrame | End::LinkFull);
                waits = matches!(turn.end, End::ClientsFrames);
                if let Some(conn) = self.conns.get_mut(id) {
                    conn.ready = !matches!(turn.end, End::Done);
                    match turn.end {
                        End::Done => {}
                        End::More => self.share.again(client, id),
                        End::Macroflow => {
                            self.counters.macroflow_waits += 1;
                            self.macroflows.wait(id);
                        }
                        _ => self.share.put_back(client, id),
                    }
                    self.settle_conn(id);
                }
                if stuck {
                    self.counters.no_frame += u64::from(matches!(turn.end, End::NoFrame));
                    self.starved = true;
                    return worked;
                }
            }
            if waits {
                self.share.wait_for_frames(client);
            } else {
                self.share.end(client);
            }
        }
        worked
    }

    /// A connection's turn is over: what it sent completes, and what it holds is counted.
    pub(super) fn turn_over(&mut self, id: ConnId, client: ClientId) {
        let Some(conn) = self.conns.get(id) else {
            return;
        };
        if let Some(slot) = conn.qp().and_then(|qp| self.qps.get_mut(&qp.0)) {
            slot.qp
                .turn_over(&mut self.tables.context(slot.tally, self.now));
        }
        self.count_held(id, client);
    }

    /// As much of one connection as its client's share and the link's room (in segments) allow.
    pub(super) fn turn(&mut self, id: ConnId, allowed: Allowed, room: usize) -> Turn {
        let mut turn = Turn {
            segments: 0,
            fpdus: 0,
            cost: 0,
            end: End::Done,
        };
        match self.fill_turn(id, allowed, room, &mut turn) {
            Ok(end) => turn.end = end,
            Err(refused) => {
                // The room was asked for, so this is our own fault; the stream has a hole now.
                log::error!("TCP refused a segment: {refused}");
                self.pool.free(refused.buf);
                self.abort(id, DisconnectReason::LocalError, None);
            }
        }
        turn
    }

    fn fill_turn(
        &mut self,
        id: ConnId,
        Allowed { credit, held }: Allowed,
        room: usize,
        turn: &mut Turn,
    ) -> Result<End, SendError<Frame>> {
        let Some(conn) = self.conns.get(id) else {
            return Ok(End::Done);
        };
        let Phase::Rdma { qp } = conn.phase else {
            return Ok(End::Done);
        };
        let Some(slot) = self.qps.get_mut(&qp.0) else {
            return Ok(End::Done);
        };
        let room_before = conn.header_room();
        let mut outlook = self.stack.outlook(id);
        let queued = outlook.queued;
        let allowance = self.macroflows.allowance(id);
        let mut context = self.tables.context(slot.tally, self.now);
        let done_before = context.counters.local_work_done;
        let end = loop {
            if turn.segments >= SEGMENTS_PER_TURN {
                break Ok(End::More);
            }
            if turn.cost >= credit {
                break Ok(End::Share);
            }
            if turn.segments > 0 {
                if slot.qp.has_nothing_to_send() {
                    break Ok(End::Done);
                }
                // Each may be the one that probes the path with another size (RFC 8899).
                outlook = self.stack.outlook(id);
            }
            let emss = outlook.mss;
            let mulpdu = slot.qp.mulpdu(emss);
            let Some(plan) = slot.qp.plan(&mut context, mulpdu) else {
                break match slot.qp.has_more_local_work() {
                    true => Ok(End::More),
                    false => Ok(End::Done),
                };
            };
            let len = plan.octets();
            if outlook.room < len {
                break Ok(End::Done);
            }
            if turn.segments >= room {
                break Ok(End::LinkFull);
            }
            if turn.segments >= allowance {
                break Ok(End::Macroflow);
            }
            let spare = self.reserve.spare(&self.pool, room_before + len);
            if spare == 0 {
                break Ok(End::NoFrame);
            }
            // It holds no more frames than it leaves to the others, so that peers which acknowledge
            // nothing don't hold them all. It has some, so an acknowledgment makes it ready again.
            if queued + turn.segments >= spare {
                break Ok(End::Done);
            }
            // The same for its client.
            if held.is_some_and(|held| held + turn.segments >= spare) {
                break Ok(End::ClientsFrames);
            }
            let Some(mut frame) = self.pool.alloc_for(room_before + len) else {
                break Ok(End::NoFrame);
            };
            // What the smallest MULPDU needs may be more than the EMSS; TCP judges that. And where a
            // segment may need a wide frame, this FPDU may have one of a chunk.
            let most = room_before + emss.min(outlook.room).max(len);
            let most = most.min(frame.capacity());
            let octets = self.umem.bytes_mut(&mut frame);
            let filled = match octets.get_mut(room_before..most) {
                Some(out) => slot.qp.fill_segment(&mut context, plan, mulpdu, out),
                None => Filled::default(),
            };
            if filled.octets == 0 {
                self.pool.free(frame);
                break Ok(End::Done);
            }
            frame.set_len(room_before + filled.octets);
            let outgoing = Outgoing {
                buf: frame,
                len: filled.octets as u32,
                payload_sum: filled.sum,
            };
            if let Err(refused) = self.stack.send(id, self.now, outgoing) {
                break Err(refused);
            }
            turn.segments += 1;
            turn.fpdus += filled.fpdus;
            turn.cost += filled.octets.max(filled.fpdus * COST_MIN);
        };
        let local = context.counters.local_work_done - done_before;
        turn.cost += COST_MIN * usize::try_from(local).unwrap_or(usize::MAX >> 16);
        end
    }
}
