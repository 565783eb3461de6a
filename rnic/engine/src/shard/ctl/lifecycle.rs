//! The life of connections: events of TCP, requests of queue pairs, timeouts, and who is notified of the end (RFC
//! 5040 section 6.2, RFC 5044 section 7.2).

use std::net::IpAddr;

use rnic_ipc::control::{DisconnectReason, Event, Transport};
use rnic_ipc::id::{ListenerId, QpNum};
use rnic_proto::mpa::startup::Responder;
use rnic_proto::rdmap::TerminateError;
use rnic_xsk::Port;
use userspace_net::{ConnId, Endpoint};
use userspace_tcp::{Event as TcpEvent, SoftError};

use crate::command::{JoinEvent, ShardEvent};
use crate::conn::{Asked, Conn, Phase};
use crate::shard::ctl::Ctl;
use crate::shard::ctl::backlog::{Admission, Network};
use crate::shard::datapath::Datapath;
use crate::shard::llp::Aborted;
use crate::shard::tx::Tx;
use crate::shard::tx::return_paths::ReturnPath;

impl Ctl {
    /// Takes up a connection that TCP has. What stood in its slot gave way to it: it was half-open
    /// or in TIME-WAIT.
    pub(in crate::shard) fn adopt<P: Port>(
        &mut self,
        dp: &mut Datapath<P>,
        tx: &mut Tx,
        conn: Conn,
    ) {
        let id = conn.id;
        if let Some(mut forgotten) = dp.conns.insert(conn) {
            tx.scheduler.let_go(id);
            tx.macroflows.leave(forgotten.id, dp.now);
            forgotten.inbound.clear(&mut dp.frames);
            self.remember_return_paths(dp, tx, &forgotten);
            self.release(dp, forgotten.transport(), forgotten.tuple.local);
        }
    }

    /// The events that introduce a connection; the others wait for [`Self::handle_close_events`], so that the
    /// bytes of the segment that caused them are delivered before.
    pub(in crate::shard) fn handle_open_events<P: Port>(
        &mut self,
        dp: &mut Datapath<P>,
        tx: &mut Tx,
    ) {
        while let Some((id, event)) = dp.stack.poll_event() {
            match event {
                TcpEvent::Incoming { listener, .. } => self.incoming(dp, tx, id, listener),
                TcpEvent::Established => self.send_request(dp, tx, id),
                other => self.endings.push_back((id, other)),
            }
        }
    }

    /// The events that end a connection, or half of one.
    pub(in crate::shard) fn handle_close_events<P: Port>(
        &mut self,
        dp: &mut Datapath<P>,
        tx: &mut Tx,
    ) {
        while let Some((id, event)) = self.endings.pop_front() {
            match event {
                TcpEvent::Incoming { .. } | TcpEvent::Established => {}
                TcpEvent::MssChanged { mss } => self.mss_changed(dp, tx, id, mss),
                // MPA knows of no bytes that are more urgent than others.
                TcpEvent::Urgent => {}
                TcpEvent::WindowTooSmall => tx.cut_next(dp, id),
                TcpEvent::SoftError(SoftError::NoAnswer) => self.doubt_path(dp, id),
                TcpEvent::SoftError(SoftError::Unreachable { .. }) => {}
                TcpEvent::PeerClosed => self.peer_closed(dp, tx, id),
                TcpEvent::Reset => self.gone(dp, tx, id, DisconnectReason::Reset, None),
                TcpEvent::Refused => self.gone(dp, tx, id, DisconnectReason::Refused, None),
                TcpEvent::TimedOut => self.gone(dp, tx, id, DisconnectReason::TimedOut, None),
                TcpEvent::Closed => {
                    self.finish(dp, tx, id, DisconnectReason::Graceful, None);
                    // In TIME-WAIT the way to the peer is still needed.
                    if dp.stack.info(id).is_none() {
                        self.forget(dp, tx, id);
                    }
                }
                TcpEvent::TimeWaitOver => self.forget(dp, tx, id),
            }
        }
    }

    pub(in crate::shard) fn incoming<P: Port>(
        &mut self,
        dp: &mut Datapath<P>,
        tx: &mut Tx,
        id: ConnId,
        local: Endpoint,
    ) {
        dp.conns.established(id);
        if !self.segments_suit(dp, tx, id) {
            return;
        }
        let Some(conn) = dp.conns.get(id) else {
            return self.turn_away(dp, tx, id);
        };
        let transport = conn.transport();
        let listener = self.listening.get(&(transport, local.into())).copied();
        let Some(listener) = listener else {
            return self.turn_away(dp, tx, id);
        };
        let peer = dp.peer_host(conn);
        let client = self.listeners.get(&listener.0).map(|entry| entry.client);
        if client.is_some_and(|client| !dp.may_have_session(id, client))
            || transport == Transport::Sctp && self.refuses_session(dp, id)
        {
            return self.let_go(dp, tx, id, Ok(()));
        }
        if client.is_some_and(|client| self.stag_scan_limit.pauses((peer, client), dp.now)) {
            dp.counters.stag_scan_limit += 1;
            return self.turn_away(dp, tx, id);
        }
        self.keep_places(dp, tx, transport);
        if dp.conns.get(id).is_none() {
            // Its own association gave way.
            return;
        }
        let network = Network::of(peer);
        if !self.make_place(dp, tx, listener, network) {
            dp.counters.backlog_full += 1;
            return self.turn_away(dp, tx, id);
        }
        if let Some(entry) = self.listeners.get_mut(&listener.0) {
            entry.backlog.enter(id, network);
        }
        let patience = dp.config.startup_timeout;
        if let Some(conn) = dp.conns.get_mut(id) {
            conn.phase = Phase::AwaitRequest {
                listener,
                asked: match transport {
                    Transport::Tcp => Asked::Mpa(Box::new(Responder::new())),
                    Transport::Sctp => Asked::Session,
                },
                whole_by: dp.now + patience,
            };
        }
        self.note_unowned(dp, id);
        dp.counters.passive_opens += 1;
        let first = match transport {
            Transport::Tcp => dp.config.first_byte_timeout.min(patience),
            // Its Initiate comes a round trip later than an MPA Request.
            Transport::Sctp => patience,
        };
        self.set_deadline(dp, id, first);
        self.deliver_startup(dp, tx, id);
    }

    /// No program takes it: TCP resets it. Of a session the peer hears by a Terminate, which answers its Initiate
    /// (RFC 5043 section 6.4): it would wait for that, as its association goes on for others.
    fn turn_away<P: Port>(&mut self, dp: &mut Datapath<P>, tx: &mut Tx, id: ConnId) {
        match dp.transport(id) {
            Transport::Tcp => self.abort(dp, tx, id, DisconnectReason::Aborted, None),
            Transport::Sctp => self.let_go(dp, tx, id, Ok(())),
        }
    }

    /// Only the peer has this connection now.
    pub(in crate::shard) fn note_unowned<P: Port>(&mut self, dp: &mut Datapath<P>, id: ConnId) {
        let conns = &dp.conns;
        self.unowned[dp.transport(id) as usize].enter(id, |id| is_unowned(conns.get(id)));
    }

    /// When few places are left in the table of connections over a transport, the oldest that only its peer has
    /// gives way.
    fn keep_places<P: Port>(&mut self, dp: &mut Datapath<P>, tx: &mut Tx, transport: Transport) {
        let (conns, sessions) = (&dp.conns, &dp.sctp.sessions);
        let is_unowned = |id| is_unowned(conns.get(id));
        // A session gives way with its association, if nobody on this host has any other on it.
        let is_new = |conn: &Conn| matches!(conn.phase, Phase::HalfOpen);
        let is_nobodys = |id| is_unowned(id) || conns.get(id).is_none_or(is_new);
        let may_go = |id| sessions.with(id).into_iter().all(is_nobodys);
        let count = dp.llp(transport, |llp| llp.connections(conns));
        let surplus = self.unowned[transport as usize].surplus(count, is_unowned, may_go);
        if let Some(oldest) = surplus {
            dp.counters.backlog_evicted += 1;
            let assoc = dp.sctp.sessions.assoc_of(oldest);
            let whole = assoc.map_or(oldest, |assoc| dp.sctp.sessions.carrier(assoc));
            self.abort(dp, tx, whole, DisconnectReason::Aborted, None);
        }
    }

    /// Whether a listener has a place for a connection from there, after another has given way to it
    /// if need be.
    fn make_place<P: Port>(
        &mut self,
        dp: &mut Datapath<P>,
        tx: &mut Tx,
        listener: ListenerId,
        network: Network,
    ) -> bool {
        let Some(entry) = self.listeners.get(&listener.0) else {
            return false;
        };
        match entry.backlog.admit(network) {
            Admission::Free => true,
            Admission::InPlaceOf(oldest) => {
                dp.counters.backlog_evicted += 1;
                self.abort(dp, tx, oldest, DisconnectReason::Aborted, None);
                true
            }
            Admission::Full => false,
        }
    }

    /// The peer sends no more, and all that it sent was delivered.
    pub(in crate::shard) fn peer_closed<P: Port>(
        &mut self,
        dp: &mut Datapath<P>,
        tx: &mut Tx,
        id: ConnId,
    ) {
        // What came with its FIN is acknowledged before.
        tx.make_ready(dp, id);
        let Some(conn) = dp.conns.get_mut(id) else {
            return;
        };
        match conn.phase {
            Phase::Rdma { qp } => {
                let slot = dp.qps.get_mut(qp.0);
                if let Some(slot) = slot.filter(|slot| slot.qp.is_held()) {
                    return slot.qp.hold_fin(dp.now);
                }
                conn.peer_closed_first |= !conn.closing;
                let mid_fpdu = conn.inbound.available() > 0;
                if mid_fpdu {
                    conn.ending.get_or_insert(DisconnectReason::PeerClosed);
                }
                if let Some(slot) = dp.qps.get_mut(qp.0) {
                    slot.qp.peer_closed(mid_fpdu);
                }
                tx.make_ready(dp, id);
                self.update_qp(dp, tx, qp);
            }
            Phase::Over => {}
            _ => {
                let message = "the peer closed the connection during the start-up";
                self.abort(
                    dp,
                    tx,
                    id,
                    DisconnectReason::PeerClosed,
                    Some(message.to_string()),
                );
            }
        }
    }

    /// RST at once. With an association its sessions go. A session that others have the association of is over for its
    /// owner, and has [some time](Self::limit_close) to be ended by its peer.
    pub(in crate::shard) fn abort<P: Port>(
        &mut self,
        dp: &mut Datapath<P>,
        tx: &mut Tx,
        id: ConnId,
        reason: DisconnectReason,
        message: Option<String>,
    ) {
        match dp.llp_mut(dp.transport(id), |llp, with| llp.abort(with, id)) {
            Aborted::Ends => {
                self.finish(dp, tx, id, reason, message);
                if let Some(conn) = dp.conns.get_mut(id) {
                    conn.closing = true;
                    conn.close_by = None;
                }
                self.limit_close(dp, id);
                return self.note_unowned(dp, id);
            }
            Aborted::Gone => {}
            Aborted::With(others) => {
                for other in others {
                    self.gone(dp, tx, other, reason, message.clone());
                }
            }
        }
        self.gone(dp, tx, id, reason, message);
    }

    /// Nothing can be sent or received any more.
    pub(in crate::shard) fn interface_gone<P: Port>(
        &mut self,
        dp: &mut Datapath<P>,
        tx: &mut Tx,
        interface: &str,
    ) {
        for id in dp.conns.ids_where(|_| true) {
            let message = format!(
                "interface {interface} was taken away from the host: connect by another, or start the \
                 RNIC again when it is back"
            );
            self.abort(dp, tx, id, DisconnectReason::InterfaceGone, Some(message));
        }
    }

    /// Peers can reach this address no more, or reach another host by it.
    pub(in crate::shard) fn address_gone<P: Port>(
        &mut self,
        dp: &mut Datapath<P>,
        tx: &mut Tx,
        address: IpAddr,
    ) {
        let interface = 0..dp.interface_ports;
        let ended = dp
            .conns
            .ids_where(|conn| conn.tuple.local.addr == address && interface.contains(&conn.port()));
        for id in ended {
            let message = format!(
                "{address} was taken away from the interface: connect from another address, or when it is \
                 back"
            );
            self.abort(dp, tx, id, DisconnectReason::AddressGone, Some(message));
        }
    }

    /// TCP or SCTP reports that the connection is gone.
    pub(in crate::shard) fn gone<P: Port>(
        &mut self,
        dp: &mut Datapath<P>,
        tx: &mut Tx,
        id: ConnId,
        reason: DisconnectReason,
        message: Option<String>,
    ) {
        self.finish(dp, tx, id, reason, message);
        self.forget(dp, tx, id);
        dp.take_released();
    }

    /// Tells the owner of the connection that it has ended, and why. Once.
    pub(in crate::shard) fn finish<P: Port>(
        &mut self,
        dp: &mut Datapath<P>,
        tx: &mut Tx,
        id: ConnId,
        reason: DisconnectReason,
        message: Option<String>,
    ) {
        let Some(conn) = dp.conns.get_mut(id) else {
            return;
        };
        let phase = std::mem::replace(&mut conn.phase, Phase::Over);
        conn.deadline = None;
        tx.scheduler.let_go(id);
        tx.macroflows.leave(id, dp.now);
        let reason = match conn.ending.take() {
            None | Some(DisconnectReason::Graceful) => reason,
            Some(known) => known,
        };
        conn.inbound.clear(&mut dp.frames);
        let remote = conn.tuple.remote;
        let peer_closed_first = conn.peer_closed_first;
        match phase {
            Phase::Requesting { qp, .. } => {
                dp.counters.startup_failed += 1;
                let message = message.unwrap_or_else(|| describe(reason, &remote));
                self.end_queue_pair(
                    dp,
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
                *match dp.qps.get(qp.0) {
                    Some(_) => dp.counters.ended(reason, peer_closed_first),
                    None => &mut dp.counters.ended_owner_gone,
                } += 1;
                let message = message.unwrap_or_else(|| match reason {
                    DisconnectReason::TimedOut => dp.describe_timeout(&remote),
                    _ => describe(reason, &remote),
                });
                if is_worth_a_line(reason) {
                    log::info!("queue pair {qp}: {message}");
                }
                self.end_queue_pair(
                    dp,
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
                dp.counters.startup_failed += 1;
                self.no_longer_waiting(listener, id);
            }
            Phase::Requested {
                listener, request, ..
            } => {
                dp.counters.startup_failed += 1;
                self.no_longer_waiting(listener, id);
                self.requests.remove(&request.0);
                self.events
                    .push_back(ShardEvent::RequestGone { request, reason });
            }
            Phase::HalfOpen | Phase::Over => {}
        }
    }

    /// Flushes a queue pair whose connection is gone, and tells its client. One that is joined and was not connected yet
    /// is Idle again, and only the owner of the join is told.
    pub(in crate::shard) fn end_queue_pair<P: Port>(
        &mut self,
        dp: &mut Datapath<P>,
        qp: QpNum,
        reason: DisconnectReason,
        event: Event,
    ) {
        let Some(slot) = dp.qps.get_mut(qp.0) else {
            return;
        };
        slot.conn = None;
        if slot.qp.attempt_failed() {
            let message = match event {
                Event::ConnectFailed { message, .. } => message,
                _ => format!("the peer does not join it now: {reason:?}"),
            };
            let event = JoinEvent::Failed { message };
            self.events.push_back(ShardEvent::Join { qp, event });
            return;
        }
        if slot.qp.is_joined() {
            let event = JoinEvent::Ended;
            self.events.push_back(ShardEvent::Join { qp, event });
        }
        slot.qp
            .connection_ended(&mut dp.tables.context(slot.tally, dp.now), reason);
        let client = slot.qp.client();
        self.events.push_back(ShardEvent::Client { client, event });
    }

    /// A listener's backlog has room for one more.
    pub(in crate::shard) fn no_longer_waiting(&mut self, listener: ListenerId, id: ConnId) {
        if let Some(entry) = self.listeners.get_mut(&listener.0) {
            entry.backlog.leave(id);
        }
    }

    /// Drops the rest of a connection that TCP or SCTP no longer has.
    pub(in crate::shard) fn forget<P: Port>(
        &mut self,
        dp: &mut Datapath<P>,
        tx: &mut Tx,
        id: ConnId,
    ) {
        let Some(mut conn) = dp.conns.remove(id) else {
            return;
        };
        conn.inbound.clear(&mut dp.frames);
        if !conn.has_path() {
            return self.forget_session(dp, tx, id);
        }
        self.remember_return_paths(dp, tx, &conn);
        if let Some(assoc) = dp.sctp.sessions.assoc_of(id) {
            let conns = &dp.conns;
            let has_somebody = |id| conns.get(id).is_some();
            dp.sctp.sessions.dissociate(assoc, has_somebody);
        }
        self.release(dp, conn.transport(), conn.tuple.local);
    }

    /// The reset of a connection that is gone may still have to find the way, if it may go.
    fn remember_return_paths<P: Port>(&self, dp: &Datapath<P>, tx: &mut Tx, conn: &Conn) {
        let transport = conn.transport();
        for (tuple, path) in conn.paths() {
            let Some(path) = path else {
                continue;
            };
            let way = match self.forbidden_by(dp, transport, (&tuple, conn.port())) {
                None => ReturnPath::Open(path, conn.port()),
                Some(by) => ReturnPath::Forbidden(by),
            };
            tx.link.return_paths.remember(tuple, way);
        }
    }

    /// Says so when nothing uses a local address and port any more.
    pub(in crate::shard) fn release<P: Port>(
        &mut self,
        dp: &mut Datapath<P>,
        transport: Transport,
        local: Endpoint,
    ) {
        let address = local.into();
        let listens = self.listening.contains_key(&(transport, address));
        if !listens && dp.llp(transport, |llp| llp.connections_at(local)) == 0 {
            self.events.push_back(ShardEvent::Released {
                transport,
                local: address,
            });
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

/// By one side's error, of which the other may know nothing but the Terminate's number; or by a peer that
/// vanished, which an operator of neither side sees otherwise.
fn is_worth_a_line(reason: DisconnectReason) -> bool {
    matches!(
        reason,
        DisconnectReason::TerminateSent { .. }
            | DisconnectReason::TerminateReceived { .. }
            | DisconnectReason::TimedOut
    )
}

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
            let error = TerminateError::from_control(control);
            format!(
                "{peer} sent what is in error, and was told so by Terminate {control:#06x}: {error}"
            )
        }
        DisconnectReason::TerminateReceived { control } => {
            let error = TerminateError::from_control(control);
            format!("{peer} sent Terminate {control:#06x}: {error}")
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
