//! The life of connections: what TCP tells, what queue pairs ask for, what the clock says, and whom
//! to tell of the end (RFC 5040 section 6.2, RFC 5044 section 7.2).

use rnic_ipc::control::{DisconnectReason, Event, RefusalCode};
use rnic_ipc::id::{ClientId, ListenerId, QpNum};
use rnic_proto::mpa::startup::Responder;
use rnic_proto::rdmap::{RdmapError, TerminateError};
use rnic_xsk::Port;
use userspace_tcp::{ConnId, Endpoint, Event as TcpEvent, SoftError};

use crate::command::ShardEvent;
use crate::conn::{Conn, Phase};
use crate::qp::CloseKind;
use crate::shard::Shard;
use crate::shard::ctl::backlog::{Admission, Network};

impl<P: Port> Shard<P> {
    /// Takes up a connection that TCP has. What stood in its slot gave way to it: it was half-open
    /// or in TIME-WAIT.
    pub(in crate::shard) fn adopt(&mut self, conn: Conn) {
        let id = conn.id;
        if let Some(mut forgotten) = self.dp.conns.insert(conn) {
            self.tx.scheduler.let_go(id);
            self.tx.macroflows.leave(forgotten.id, self.dp.now);
            forgotten.inbound.clear(&mut self.dp.frames);
            self.release(forgotten.tuple.local);
        }
    }

    /// The events that introduce a connection; the others wait for [`Self::handle_close_events`], so that the
    /// bytes of the segment that caused them are delivered before.
    pub(in crate::shard) fn handle_open_events(&mut self) {
        while let Some((id, event)) = self.dp.stack.poll_event() {
            match event {
                TcpEvent::Incoming { listener, .. } => self.incoming(id, listener),
                TcpEvent::Established => self.send_request(id),
                other => self.endings.push_back((id, other)),
            }
        }
    }

    /// The events that end a connection, or half of one.
    pub(in crate::shard) fn handle_close_events(&mut self) {
        while let Some((id, event)) = self.endings.pop_front() {
            match event {
                TcpEvent::Incoming { .. } | TcpEvent::Established => {}
                TcpEvent::MssChanged { mss } => self.mss_changed(id, mss),
                // MPA knows of no bytes that are more urgent than others.
                TcpEvent::Urgent => {}
                TcpEvent::SoftError(SoftError::NoAnswer) => self.doubt_path(id),
                TcpEvent::SoftError(SoftError::Unreachable { .. }) => {}
                TcpEvent::PeerClosed => self.peer_closed(id),
                TcpEvent::Reset => self.gone(id, DisconnectReason::Reset),
                TcpEvent::Refused => self.gone(id, DisconnectReason::Refused),
                TcpEvent::TimedOut => self.gone(id, DisconnectReason::TimedOut),
                TcpEvent::Closed => {
                    self.finish(id, DisconnectReason::Graceful, None);
                    // In TIME-WAIT the way to the peer is still needed.
                    if self.dp.stack.info(id).is_none() {
                        self.forget(id);
                    }
                }
                TcpEvent::TimeWaitOver => self.forget(id),
            }
        }
    }

    fn incoming(&mut self, id: ConnId, local: Endpoint) {
        self.dp.conns.established(id);
        if !self.segments_suit(id) {
            return;
        }
        let listener = self.listening.get(&local.into()).copied();
        let (Some(listener), Some(conn)) = (listener, self.dp.conns.get(id)) else {
            return self.abort(id, DisconnectReason::Aborted, None);
        };
        let peer = conn.tuple.remote.addr;
        let client = self.listeners.get(&listener.0).map(|entry| entry.client);
        if client.is_some_and(|client| self.guesses.pauses((peer, client), self.dp.now)) {
            self.dp.counters.stag_guesses_paused += 1;
            return self.abort(id, DisconnectReason::Aborted, None);
        }
        self.keep_places();
        let network = Network::of(peer);
        if !self.make_place(listener, network) {
            self.dp.counters.backlog_full += 1;
            return self.abort(id, DisconnectReason::Aborted, None);
        }
        if let Some(entry) = self.listeners.get_mut(&listener.0) {
            entry.backlog.enter(id, network);
        }
        let patience = self.dp.config.startup_timeout;
        if let Some(conn) = self.dp.conns.get_mut(id) {
            conn.phase = Phase::AwaitRequest {
                listener,
                responder: Box::new(Responder::new()),
                whole_by: self.dp.now + patience,
            };
        }
        self.note_unowned(id);
        self.dp.counters.passive_opens += 1;
        self.set_deadline(id, self.dp.config.first_byte_timeout.min(patience));
        self.deliver(id);
    }

    /// Only the peer has this connection now.
    pub(in crate::shard) fn note_unowned(&mut self, id: ConnId) {
        let conns = &self.dp.conns;
        self.unowned.enter(id, |id| is_unowned(conns.get(id)));
    }

    /// When few places are left in the table of connections, the oldest that only its peer has gives way.
    fn keep_places(&mut self) {
        let conns = &self.dp.conns;
        let surplus = self
            .unowned
            .surplus(conns.len(), |id| is_unowned(conns.get(id)));
        if let Some(oldest) = surplus {
            self.dp.counters.backlog_gave_way += 1;
            self.abort(oldest, DisconnectReason::Aborted, None);
        }
    }

    /// Whether a listener has a place for a connection from there, after another has given way to it
    /// if need be.
    fn make_place(&mut self, listener: ListenerId, network: Network) -> bool {
        let Some(entry) = self.listeners.get(&listener.0) else {
            return false;
        };
        match entry.backlog.admit(network) {
            Admission::Free => true,
            Admission::InPlaceOf(oldest) => {
                self.dp.counters.backlog_gave_way += 1;
                self.abort(oldest, DisconnectReason::Aborted, None);
                true
            }
            Admission::Full => false,
        }
    }

    /// The peer sends no more, and all that it sent was delivered.
    fn peer_closed(&mut self, id: ConnId) {
        let Some(conn) = self.dp.conns.get_mut(id) else {
            return;
        };
        match conn.phase {
            Phase::Rdma { qp } => {
                let mid_fpdu = conn.inbound.available() > 0;
                if mid_fpdu {
                    conn.ending.get_or_insert(DisconnectReason::PeerClosed);
                }
                if let Some(slot) = self.dp.qps.get_mut(qp.0) {
                    slot.qp.peer_closed(mid_fpdu);
                }
                self.tx.make_ready(&mut self.dp, id);
                self.settle(qp);
            }
            Phase::Over => {}
            _ => {
                let message = "the peer closed the connection during the MPA start-up";
                self.abort(id, DisconnectReason::PeerClosed, Some(message.to_string()));
            }
        }
    }

    /// Looks what the queue pair of this connection asks for.
    pub(in crate::shard) fn update_conn(&mut self, id: ConnId) {
        if let Some(qp) = self.dp.conns.get(id).and_then(Conn::qp) {
            self.settle(qp);
        }
    }

    /// Looks what the queue pairs ask for that are known to ask for something.
    pub(in crate::shard) fn settle_asking(&mut self) {
        while let Some(qp) = self.dp.next_asking() {
            self.settle(qp);
        }
    }

    /// Looks what a queue pair asks for after it was called.
    pub(in crate::shard) fn settle(&mut self, num: QpNum) {
        let Some(slot) = self.dp.qps.get_mut(num.0) else {
            return;
        };
        let (conn, client) = (slot.conn, slot.qp.client());
        let fault = slot.qp.take_fault();
        let guessed = slot.qp.take_invalid_stag();
        let close = slot.qp.wants_close();
        let awaits_peer = slot.qp.awaits_peer();
        let terminating = slot.qp.state() == rnic_ipc::control::QpState::Terminate;
        if let Some(id) = conn {
            if guessed && let Some(conn) = self.dp.conns.get(id) {
                self.guesses
                    .note((conn.tuple.remote.addr, client), self.dp.now);
            }
            match close {
                Some(CloseKind::Graceful) => self.close(id, DisconnectReason::Graceful),
                Some(CloseKind::AfterTerminateSent { control }) => {
                    self.close(id, after_terminate(control));
                }
                Some(CloseKind::TerminateReceived { control }) => {
                    self.close(id, DisconnectReason::TerminateReceived { control });
                }
                Some(CloseKind::PeerFault { control }) => self.peer_fault(id, control),
                Some(CloseKind::AbortNow) => {
                    self.abort(id, DisconnectReason::LocalError, None);
                }
                // A peer whose window stays shut must not keep a Terminate for ever.
                None if terminating => self.limit_close(id),
                None if awaits_peer => self.await_peer(id),
                None => {}
            }
        }
        if let Some(fault) = fault {
            let message = format!("a work queue of queue pair {num}: {fault}");
            self.client_fault(client, RefusalCode::Malformed, message);
        }
    }

    /// The peer sent what is in error, and can't be told by a Terminate: its own log, if it has one, says
    /// nothing, so ours does.
    fn peer_fault(&mut self, id: ConnId, control: u16) {
        let Some(conn) = self.dp.conns.get_mut(id) else {
            return;
        };
        let error = TerminateError::from_control(control);
        let message = format!(
            "{} sent an FPDU in error ({error}), where no Terminate may answer: the connection was reset",
            conn.tuple.remote
        );
        log::info!("{message}");
        let reason = DisconnectReason::PeerFault { control };
        conn.ending = Some(reason);
        self.abort(id, reason, Some(message));
    }

    /// FIN after what is queued.
    fn close(&mut self, id: ConnId, reason: DisconnectReason) {
        let Some(conn) = self.dp.conns.get_mut(id) else {
            return;
        };
        // An error says more than the graceful end that it interrupts.
        if matches!(conn.ending, None | Some(DisconnectReason::Graceful)) {
            conn.ending = Some(reason);
        }
        if !conn.closing {
            conn.closing = true;
            self.dp.stack.close(id);
        }
        self.limit_close(id);
    }

    /// Whatever the peer does, this connection's end comes within the close timeout; within the user
    /// timeout when nothing is heard of it.
    pub(in crate::shard) fn limit_close(&mut self, id: ConnId) {
        let Some(conn) = self.dp.conns.get_mut(id) else {
            return;
        };
        if conn.close_by.is_none() {
            let patience = self.dp.config.close_timeout;
            conn.unheard = None;
            conn.close_by = Some(self.dp.now + patience);
            self.set_deadline(id, patience.min(self.dp.config.tcp.user_timeout));
        }
    }

    /// RST at once.
    pub(in crate::shard) fn abort(
        &mut self,
        id: ConnId,
        reason: DisconnectReason,
        message: Option<String>,
    ) {
        self.dp.stack.abort(id);
        self.finish(id, reason, message);
        self.forget(id);
        self.dp.take_released();
    }

    /// Nothing can be sent or received any more.
    pub(in crate::shard) fn interface_gone(&mut self, interface: &str) {
        for id in self.dp.conns.ids_where(|_| true) {
            let message = format!(
                "interface {interface} was taken away from the host: connect by another, or start the \
                 RNIC again when it is back"
            );
            self.abort(id, DisconnectReason::InterfaceGone, Some(message));
        }
    }

    /// TCP says that the connection is no more.
    fn gone(&mut self, id: ConnId, reason: DisconnectReason) {
        self.finish(id, reason, None);
        self.forget(id);
        self.dp.take_released();
    }

    /// Tells whoever is concerned that the connection is at its end, and why. Once.
    fn finish(&mut self, id: ConnId, reason: DisconnectReason, message: Option<String>) {
        let Some(conn) = self.dp.conns.get_mut(id) else {
            return;
        };
        let phase = std::mem::replace(&mut conn.phase, Phase::Over);
        conn.deadline = None;
        self.tx.scheduler.let_go(id);
        self.tx.macroflows.leave(id, self.dp.now);
        let reason = match conn.ending.take() {
            None | Some(DisconnectReason::Graceful) => reason,
            Some(known) => known,
        };
        conn.inbound.clear(&mut self.dp.frames);
        let remote = conn.tuple.remote;
        let message = message.unwrap_or_else(|| match (reason, &phase) {
            (DisconnectReason::TimedOut, Phase::Rdma { .. }) => self.describe_timeout(&remote),
            _ => describe(reason, &remote),
        });
        match phase {
            Phase::Requesting { qp, .. } => {
                self.dp.counters.startup_failed += 1;
                self.end_queue_pair(
                    qp,
                    reason,
                    Event::ConnectFailed {
                        qp,
                        reason,
                        message,
                    },
                );
            }
            Phase::Rdma { qp } => {
                self.end_queue_pair(
                    qp,
                    reason,
                    Event::Disconnected {
                        qp,
                        reason,
                        message,
                    },
                );
            }
            Phase::AwaitRequest { listener, .. } => {
                self.dp.counters.startup_failed += 1;
                self.no_longer_waiting(listener, id);
            }
            Phase::Requested {
                listener, request, ..
            } => {
                self.dp.counters.startup_failed += 1;
                self.no_longer_waiting(listener, id);
                self.requests.remove(&request.0);
                self.events
                    .push_back(ShardEvent::RequestGone { request, reason });
            }
            Phase::HalfOpen | Phase::Over => {}
        }
    }

    /// Flushes a queue pair whose connection is gone, and tells its client.
    pub(in crate::shard) fn end_queue_pair(
        &mut self,
        qp: QpNum,
        reason: DisconnectReason,
        event: Event,
    ) {
        let Some(slot) = self.dp.qps.get_mut(qp.0) else {
            return;
        };
        slot.conn = None;
        slot.qp
            .connection_ended(&mut self.dp.tables.context(slot.tally, self.dp.now), reason);
        let client = slot.qp.client();
        self.events.push_back(ShardEvent::Client { client, event });
    }

    /// A listener's backlog has room for one more.
    pub(in crate::shard) fn no_longer_waiting(&mut self, listener: ListenerId, id: ConnId) {
        if let Some(entry) = self.listeners.get_mut(&listener.0) {
            entry.backlog.leave(id);
        }
    }

    /// Drops what is left of a connection that TCP has no more.
    fn forget(&mut self, id: ConnId) {
        let Some(mut conn) = self.dp.conns.remove(id) else {
            return;
        };
        conn.inbound.clear(&mut self.dp.frames);
        // Its RST may still have to find the way.
        self.tx.link.remember(conn.tuple, conn.path, conn.port());
        self.release(conn.tuple.local);
    }

    /// Says so when nothing uses a local address and port any more.
    pub(in crate::shard) fn release(&mut self, local: Endpoint) {
        let address = local.into();
        if !self.listening.contains_key(&address) && self.dp.stack.connections_at(local) == 0 {
            self.events
                .push_back(ShardEvent::Released { local: address });
        }
    }

    pub(in crate::shard) fn set_deadline(&mut self, id: ConnId, patience: std::time::Duration) {
        if self.deadlines.is_crowded() {
            let conns = &self.dp.conns;
            let meant = |at, id| conns.get(id).is_some_and(|conn| conn.deadline == Some(at));
            self.deadlines.compact(meant);
        }
        let Some(conn) = self.dp.conns.get_mut(id) else {
            return;
        };
        let at = self.dp.now + patience;
        if conn.deadline != Some(at) {
            conn.deadline = Some(at);
            self.deadlines.set(at, id);
        }
    }

    /// TCP's timers and our own.
    pub(in crate::shard) fn run_timers(&mut self) -> bool {
        let mut worked = false;
        if self
            .dp
            .stack
            .next_deadline()
            .is_some_and(|at| at <= self.dp.now)
        {
            worked = true;
            self.dp.stack.advance(self.dp.now);
            self.handle_open_events();
            self.handle_close_events();
        }
        while let Some((at, id)) = self.deadlines.expired(self.dp.now) {
            if self
                .dp
                .conns
                .get(id)
                .is_some_and(|conn| conn.deadline == Some(at))
            {
                worked = true;
                self.out_of_patience(id);
            }
        }
        worked
    }

    fn out_of_patience(&mut self, id: ConnId) {
        let Some(conn) = self.dp.conns.get(id) else {
            return;
        };
        let (count, message) = match conn.phase {
            Phase::Requesting { .. } => (
                &mut self.dp.counters.startup_timeouts,
                Some(format!(
                    "no MPA Reply from {} within {:?}: it may not speak MPA on this port",
                    conn.tuple.remote, self.dp.config.startup_timeout
                )),
            ),
            Phase::HalfOpen => return self.review_half_open(id),
            Phase::AwaitRequest { whole_by, .. } => {
                if conn.inbound.consumed_to() > 0 && self.dp.now < whole_by {
                    // It has begun to speak in time.
                    let rest = whole_by.saturating_duration_since(self.dp.now);
                    return self.set_deadline(id, rest);
                }
                (&mut self.dp.counters.startup_timeouts, None)
            }
            Phase::Requested { .. } => (&mut self.dp.counters.answer_timeouts, None),
            Phase::Rdma { .. } if conn.unheard.is_some() => return self.retry_rtr(id),
            Phase::Rdma { .. } | Phase::Over if conn.close_by.is_some() => {
                return self.review_close(id);
            }
            Phase::Rdma { .. } => return self.review_silence(id),
            Phase::Over => (&mut self.dp.counters.close_timeouts, None),
        };
        *count += 1;
        self.abort(id, DisconnectReason::TimedOut, message);
    }

    /// TCP has its own patience with half-open connections, and gives them up without a word.
    fn review_half_open(&mut self, id: ConnId) {
        if self.dp.stack.info(id).is_some() {
            self.set_deadline(id, self.dp.config.startup_timeout);
        } else if let Some(mut conn) = self.dp.conns.remove(id) {
            conn.inbound.clear(&mut self.dp.frames);
        }
    }

    /// A client that can't be trusted: nothing of it is read any more. Told once.
    pub(in crate::shard) fn client_fault(
        &mut self,
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
        self.dp.counters.client_faults += 1;
        self.events.push_back(ShardEvent::ClientFault {
            client,
            code,
            message,
        });
    }

    /// The owners of shared receive queues that fell below their limits hear of it.
    pub(in crate::shard) fn tell_srq_limits(&mut self) {
        while let Some((client, srq)) = self.dp.tables.srqs.poll_limit() {
            let event = Event::SrqLimit { srq };
            self.events.push_back(ShardEvent::Client { client, event });
        }
    }

    /// A CQ that takes nothing any more takes its queue pairs with it (RFC 5040 section 8.1.1).
    pub(in crate::shard) fn fail_queue_pairs_of_dead_cqs(&mut self) {
        while let Some(failure) = self.dp.tables.cqs.poll_failure() {
            let event = Event::CqError { cq: failure.cq };
            self.events.push_back(ShardEvent::Client {
                client: failure.client,
                event,
            });
            let users: Vec<QpNum> = self
                .dp
                .qps
                .values()
                .filter(|slot| slot.qp.uses_cq(failure.cq))
                .map(|slot| slot.qp.num())
                .collect();
            for num in users {
                if let Some(slot) = self.dp.qps.get_mut(num.0) {
                    slot.qp
                        .cq_failed(&mut self.dp.tables.context(slot.tally, self.dp.now));
                }
                self.settle(num);
            }
        }
    }
}

/// Its MPA Request has not come whole, or it was let go.
fn is_unowned(conn: Option<&Conn>) -> bool {
    conn.is_some_and(|conn| match conn.phase {
        Phase::AwaitRequest { .. } => true,
        Phase::Over => conn.closing,
        _ => false,
    })
}

/// Why a connection ends with a Terminate of ours. A local catastrophic error (RFC 5040 section 4.8)
/// is the one that is not the peer's fault.
fn after_terminate(control: u16) -> DisconnectReason {
    let local = TerminateError::from(RdmapError::LocalCatastrophic).control();
    if control == local {
        return DisconnectReason::LocalError;
    }
    DisconnectReason::TerminateSent { control }
}

/// For people.
fn describe(reason: DisconnectReason, peer: &Endpoint) -> String {
    match reason {
        DisconnectReason::Graceful => format!("closed by both sides; the peer was {peer}"),
        DisconnectReason::Aborted => format!("the connection to {peer} was aborted as asked"),
        DisconnectReason::Reset => format!("{peer} reset the connection"),
        DisconnectReason::Refused => {
            format!("{peer} refused the connection: nobody listens there")
        }
        DisconnectReason::TimedOut => format!("{peer} did not answer in time"),
        DisconnectReason::PeerClosed => {
            format!("{peer} closed the connection in the middle of a message")
        }
        DisconnectReason::TerminateSent { control } => {
            format!("a Terminate (control {control:#06x}) was sent to {peer}")
        }
        DisconnectReason::TerminateReceived { control } => {
            format!("{peer} sent a Terminate (control {control:#06x})")
        }
        DisconnectReason::LocalError => {
            format!(
                "an error on this side ended the connection to {peer}; a completion in error or a \
                 CQ error says which"
            )
        }
        other => format!("the connection to {peer} ended: {other:?}"),
    }
}
