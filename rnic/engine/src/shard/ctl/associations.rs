//! Associations: how they are begun, joined by further sessions, and shut down, and what SCTP tells of them.
//!
//! Queue pairs of one client that connect to one address and port of a peer share an association, each with a session on
//! a stream of its own. Nobody else's queue pairs are on it: they share what may be sent. An association ends with the
//! last session on it (RFC 5041 section 3). A session may come too late for one that its peer shuts down in that moment,
//! or to a peer that takes only one: then it [begins again](Ctl::begin_again) on an association of its own.

use rnic_ipc::control::{
    ConnectSpec, DisconnectReason, Event as ClientEvent, MarkerUse, RtrModes, Transport,
};
use rnic_ipc::id::{ClientId, QpNum};
use rnic_net::{Path, PeerRules};
use rnic_proto::sctp::{ControlChunk, Session, SessionOptions};
use rnic_xsk::Port;
use userspace_net::{ConnId, FourTuple, Instant};
use userspace_sctp::{AbortCause, Agreed, AssocId, ConnectError, Event, Failure, Route, State};

use crate::command::CommandError;
use crate::conn::{Asking, Conn, Phase};
use crate::shard::ctl::Ctl;
use crate::shard::ctl::control::invalid;
use crate::shard::ctl::mpa_options::{depths, indications};
use crate::shard::ctl::session::is_asking;
use crate::shard::datapath::Datapath;
use crate::shard::sctp::{Again, Association, StreamSession, ends, tuple};
use crate::shard::tx::Tx;
use crate::shard::tx::return_paths::ReturnPath;

/// The ends of a connection, how frames get to the peer, and the port that they go by.
type AssociationPath = (FourTuple, Path, usize);

impl Ctl {
    /// Asks for a session for a queue pair: on an association that is there for others of its client, if it may be and
    /// there is one, or on a new one.
    pub(super) fn open_session<P: Port>(
        &mut self,
        dp: &mut Datapath<P>,
        tx: &mut Tx,
        (qp, client): (QpNum, ClientId),
        way: AssociationPath,
        (spec, peers): (ConnectSpec, PeerRules),
    ) -> Result<Conn, CommandError> {
        let (session, initiate) = initiate(&spec)?;
        let may_share = spec.local_port == 0;
        let shared = match may_share {
            true => dp.association_for(client, &way, &peers),
            false => None,
        };
        let Some((assoc, stream)) = shared else {
            let assoc = self.associate(dp, tx, client, way, peers)?;
            let session = dp.add_session(assoc, 0, session, initiate)?;
            return Ok(Conn::session(session.id, way, requesting(qp, dp.now)));
        };
        let again = Again {
            local: way.0.local,
            session: session.clone(),
            initiate: initiate.clone(),
            peers,
        };
        let session = dp.add_session(assoc, stream, session, initiate)?;
        session.again = Some(Box::new(again));
        let id = session.id;
        let (mut tuple, path, port) = way;
        if let Some(local) = dp.sctp.sessions.association(assoc).and_then(|it| it.local) {
            tuple.local = local;
        }
        Ok(Conn::session(
            id,
            (tuple, path, port),
            requesting(qp, dp.now),
        ))
    }

    /// Begins an association for queue pairs of a client.
    fn associate<P: Port>(
        &mut self,
        dp: &mut Datapath<P>,
        tx: &mut Tx,
        client: ClientId,
        way: AssociationPath,
        peers: PeerRules,
    ) -> Result<AssocId, CommandError> {
        let (tuple, path, port) = way;
        if !dp.sctp.sessions.has_place() {
            return Err(dp.too_many_associations());
        }
        // Nothing within the host drops SCTP.
        let udp = dp.config.sctp_udp.filter(|_| dp.is_of_interface(port));
        let route = Route {
            ends: ends(&tuple),
            udp: udp.and_then(|udp| udp.peer_port),
        };
        let assoc = dp.sctp.stack.connect(dp.now, route);
        let assoc = assoc.map_err(|error| match error {
            ConnectError::TooMany { .. } => dp.too_many_associations(),
            ConnectError::InUse { .. } => CommandError::InUse {
                local: tuple.local.into(),
            },
            ConnectError::BadEnds { .. } | ConnectError::NoUdpPort => invalid(error),
        })?;
        let association = dp.sctp.sessions.associate(assoc);
        association.local = Some(tuple.local);
        association.is_ours = true;
        association.owner = Some(client);
        association.peers = peers;
        let carrier = association.carrier;
        dp.sctp.stack.limit_mtu(dp.now, assoc, path.mtu as usize);
        self.adopt(dp, tx, Conn::association(carrier, way));
        Ok(assoc)
    }

    /// A session that joined an association which is established has nothing to wait for.
    pub(super) fn ask_if_associated<P: Port>(
        &mut self,
        dp: &mut Datapath<P>,
        tx: &mut Tx,
        id: ConnId,
    ) {
        let session = dp.sctp.sessions.get(id);
        if session.is_some_and(|it| dp.sctp.stack.takes_messages(it.assoc)) {
            self.send_request(dp, tx, id);
        }
    }

    /// The association that a session joined does not take it: it begins again on one of its own. False: it did not
    /// join one, or is answered.
    pub(super) fn begin_again<P: Port>(
        &mut self,
        dp: &mut Datapath<P>,
        tx: &mut Tx,
        id: ConnId,
    ) -> bool {
        let Some(conn) = dp.conns.get(id) else {
            return false;
        };
        let (Phase::Requesting { qp, opened, .. }, remote) = (&conn.phase, conn.tuple.remote)
        else {
            return false;
        };
        let (qp, opened) = (*qp, *opened);
        let carrier = dp.sctp.sessions.get(id);
        let carrier = carrier.map(|session| dp.sctp.sessions.carrier(session.assoc));
        let again = dp.sctp.sessions.get_mut(id);
        let Some(again) = again.and_then(|session| session.again.take()) else {
            return false;
        };
        let Again {
            local,
            session,
            initiate,
            peers,
        } = *again;
        let carrier = carrier.and_then(|id| dp.conns.get(id)).unwrap_or(conn);
        let way = (FourTuple { local, remote }, carrier.path, carrier.port());
        log::debug!(
            "{remote} did not take one more session on an association: asking on a new one"
        );
        // From here on it is nobody's.
        if let Some(slot) = dp.qps.get_mut(qp.0) {
            slot.conn = None;
        }
        if let Some(conn) = dp.conns.get_mut(id) {
            conn.phase = Phase::Over;
        }
        self.abort(dp, tx, id, DisconnectReason::Aborted, None);
        dp.counters.sessions_begun_again += 1;
        let Some(client) = dp.qps.get(qp.0).map(|slot| slot.qp.client()) else {
            self.release(dp, Transport::Sctp, local);
            return true;
        };
        let begun = self.associate(dp, tx, client, way, peers);
        let begun = begun.and_then(|assoc| {
            let session = dp.add_session(assoc, 0, session, initiate)?;
            Ok(session.id)
        });
        match begun {
            Ok(id) => {
                if let Some(slot) = dp.qps.get_mut(qp.0) {
                    slot.conn = Some(id);
                }
                let conn = Conn::session(id, way, requesting(qp, opened));
                self.adopt(dp, tx, conn);
            }
            Err(error) => {
                self.release(dp, Transport::Sctp, local);
                dp.counters.startup_failed += 1;
                let reason = DisconnectReason::LocalError;
                let message = format!("connecting to {remote} again: {error}");
                let event = ClientEvent::ConnectFailed {
                    qp,
                    reason,
                    message,
                };
                self.end_queue_pair(dp, qp, reason, event);
            }
        }
        true
    }

    /// A session is answered, or gone: what was kept to begin again with is not needed.
    pub(super) fn release_spare<P: Port>(&mut self, dp: &mut Datapath<P>, id: ConnId) {
        let session = dp.sctp.sessions.get_mut(id);
        if let Some(again) = session.and_then(|it| it.again.take()) {
            self.release(dp, Transport::Sctp, again.local);
        }
    }

    /// No session is left on an association.
    pub(super) fn shut_down<P: Port>(&mut self, dp: &mut Datapath<P>, tx: &mut Tx, assoc: AssocId) {
        let Some(association) = dp.sctp.sessions.association_mut(assoc) else {
            return;
        };
        association.is_closing = true;
        let carrier = association.carrier;
        dp.sctp.stack.close(dp.now, assoc);
        if dp.sctp.stack.info(assoc).is_none() {
            return self.forget(dp, tx, carrier);
        }
        if let Some(conn) = dp.conns.get_mut(carrier) {
            conn.closing = true;
        }
        self.limit_close(dp, carrier);
        self.note_unowned(dp, carrier);
    }

    /// Drops the rest of a session whose connection was taken out, and of its association if that is gone.
    pub(super) fn forget_session<P: Port>(
        &mut self,
        dp: &mut Datapath<P>,
        tx: &mut Tx,
        id: ConnId,
    ) {
        self.release_spare(dp, id);
        let Some(assoc) = dp.sctp.sessions.assoc_of(id) else {
            return;
        };
        dp.drop_session(id);
        if dp.sctp.stack.info(assoc).is_none() {
            let carrier = dp.sctp.sessions.carrier(assoc);
            self.forget(dp, tx, carrier);
        }
    }

    /// What SCTP tells, and what sessions wait for. `way`: how to reach the peers of new associations.
    pub(in crate::shard) fn see_to_sessions<P: Port>(
        &mut self,
        dp: &mut Datapath<P>,
        tx: &mut Tx,
        way: Option<(&Path, usize)>,
    ) {
        while let Some((assoc, event)) = dp.sctp.stack.poll_event() {
            self.association_event(dp, tx, assoc, event, way);
        }
        while let Some(id) = dp.sctp.sessions.next_orphaned() {
            self.gone(dp, tx, id, DisconnectReason::TimedOut, None);
        }
        while let Some(id) = dp.sctp.sessions.next_begun() {
            self.introduce(dp, tx, id);
            // What it asks for is here, and counts against what is asked for next.
            self.see_to_session(dp, tx, id);
        }
        while let Some(message) = dp.sctp.sessions.next_unplaced() {
            dp.counters.sessions_unplaced += 1;
            dp.sctp.stack.consumed(dp.now, message.assoc, message.bytes);
            if message.is_initiate {
                let frames = &mut dp.frames;
                dp.sctp
                    .refuse_session(frames, dp.now, message.assoc, message.stream);
            }
        }
        dp.take_released_chunks();
        while let Some(id) = dp.sctp.sessions.next_heard() {
            self.see_to_session(dp, tx, id);
        }
    }

    fn association_event<P: Port>(
        &mut self,
        dp: &mut Datapath<P>,
        tx: &mut Tx,
        assoc: AssocId,
        event: Event,
        way: Option<(&Path, usize)>,
    ) {
        let carrier = dp.sctp.sessions.carrier(assoc);
        match event {
            Event::Incoming(agreed) => self.associated(dp, tx, assoc, &agreed, way),
            Event::Established(agreed) => self.established(dp, tx, assoc, &agreed),
            Event::MtuChanged { message_max } => {
                for id in dp.sctp.sessions.on(assoc) {
                    self.mss_changed(dp, tx, id, message_max);
                }
            }
            Event::PathDown { remote } => self.doubt_address(dp, carrier, remote),
            Event::PathConfirmed { remote } => dp.conns.confirmed(carrier, remote),
            Event::PathUp { .. } => {}
            Event::Restarted(agreed) => self.restarted(dp, tx, assoc, &agreed, way),
            Event::PeerClosed => {
                for id in dp.sctp.sessions.on(assoc) {
                    self.peer_shuts_down(dp, tx, id);
                }
            }
            Event::Closed => {
                self.all_gone(dp, tx, assoc, |_, _| (DisconnectReason::PeerClosed, None))
            }
            Event::Aborted(cause) => self.all_gone(dp, tx, assoc, |dp, id| {
                let reason = match is_asking(dp, id) {
                    true => DisconnectReason::Refused,
                    false => DisconnectReason::Reset,
                };
                (reason, aborted(dp, id, &cause))
            }),
            Event::Failed(failure) => self.all_gone(dp, tx, assoc, |dp, id| {
                let reason = match failure {
                    Failure::NoProtocol if is_asking(dp, id) => DisconnectReason::Refused,
                    // Its RNIC has ended: the kernel that answers for it has no SCTP.
                    Failure::NoProtocol => DisconnectReason::Reset,
                    Failure::BadAnswer(_) | Failure::Violation(_) => DisconnectReason::BadSession,
                    _ => DisconnectReason::TimedOut,
                };
                let remote = dp.conns.get(id).map(|conn| conn.tuple.remote);
                (reason, remote.map(|remote| format!("{remote}: {failure}")))
            }),
        }
    }

    /// A peer's association is there, of which messages may have come already.
    fn associated<P: Port>(
        &mut self,
        dp: &mut Datapath<P>,
        tx: &mut Tx,
        assoc: AssocId,
        agreed: &Agreed,
        way: Option<(&Path, usize)>,
    ) {
        let Some((path, port)) = way.map(|(path, port)| (*path, port)) else {
            dp.sctp.stack.abort(dp.now, assoc, b"");
            return dp.sctp.sessions.dissociate(assoc, |_| false);
        };
        let tuple = tuple(&agreed.ends);
        // The cookie may have come from another address than the INIT.
        let (path, port) = match tx.link.return_paths.find(&tuple) {
            Some(ReturnPath::Open(path, port)) => (path, port),
            Some(ReturnPath::Forbidden(_)) | None => (path, port),
        };
        let association = dp.sctp.sessions.associate(assoc);
        association.local = Some(tuple.local);
        association.streams = streams(agreed);
        let carrier = association.carrier;
        dp.sctp.stack.limit_mtu(dp.now, assoc, path.mtu as usize);
        self.adopt(dp, tx, Conn::association(carrier, (tuple, path, port)));
        let peers = self.rules_at(Transport::Sctp, tuple.local.into());
        self.take_addresses(dp, carrier, &peers);
        if !dp.sctp.sessions.on(assoc).is_empty() {
            // The peer was quick.
            return;
        }
        let session = dp.sctp.sessions.add(assoc, None, Session::passive());
        match session.map(|session| session.id) {
            Some(id) => self.introduce(dp, tx, id),
            None => {
                dp.counters.backlog_full += 1;
                self.abort(dp, tx, carrier, DisconnectReason::Aborted, None);
            }
        }
    }

    /// The peer's host has restarted, and asks for an association as one that there was never (RFC 9260 section
    /// 5.2.4, action A). The sessions of before are lost: nothing of theirs may be said on the new one.
    fn restarted<P: Port>(
        &mut self,
        dp: &mut Datapath<P>,
        tx: &mut Tx,
        assoc: AssocId,
        agreed: &Agreed,
        way: Option<(&Path, usize)>,
    ) {
        let carrier = dp.sctp.sessions.carrier(assoc);
        let message = "the peer's host has started anew, and knows nothing of the session";
        let (reason, message) = (DisconnectReason::Reset, Some(message.to_owned()));
        let local = (Transport::Sctp, agreed.ends.local);
        if !self.listening.contains_key(&local) {
            // We began it, and there is nobody who could take a session.
            return self.abort(dp, tx, carrier, reason, message);
        }
        for id in dp.sctp.sessions.on(assoc) {
            self.gone(dp, tx, id, reason, message.clone());
        }
        self.forget(dp, tx, carrier);
        self.associated(dp, tx, assoc, agreed, way);
    }

    /// A peer begins a session.
    fn introduce<P: Port>(&mut self, dp: &mut Datapath<P>, tx: &mut Tx, id: ConnId) {
        let carrier = dp.sctp.sessions.get(id);
        let carrier = carrier.map(|session| dp.sctp.sessions.carrier(session.assoc));
        let Some(carrier) = carrier.and_then(|carrier| dp.conns.get(carrier)) else {
            return dp.sctp.sessions.remove(id);
        };
        let way = (carrier.tuple, carrier.path, carrier.port());
        self.adopt(dp, tx, Conn::session(id, way, Phase::HalfOpen));
        self.incoming(dp, tx, id, way.0.local);
    }

    /// The peer has taken an association that we began: the Initiates of all that wait for it may go.
    fn established<P: Port>(
        &mut self,
        dp: &mut Datapath<P>,
        tx: &mut Tx,
        assoc: AssocId,
        agreed: &Agreed,
    ) {
        let streams = streams(agreed);
        let Some(association) = dp.sctp.sessions.association_mut(assoc) else {
            return;
        };
        association.streams = streams;
        let peers = std::mem::take(&mut association.peers);
        let carrier = association.carrier;
        self.take_addresses(dp, carrier, &peers);
        for id in dp.sctp.sessions.on(assoc) {
            let session = dp.sctp.sessions.get(id);
            let stream = session.and_then(|session| session.stream);
            let has_stream = stream.is_some_and(|stream| stream < streams);
            if has_stream || !self.begin_again(dp, tx, id) {
                self.send_request(dp, tx, id);
            }
        }
    }

    /// The peer sends and takes nothing more but acknowledgments.
    fn peer_shuts_down<P: Port>(&mut self, dp: &mut Datapath<P>, tx: &mut Tx, id: ConnId) {
        // What came before has its turn first.
        self.see_to_session(dp, tx, id);
        if self.begin_again(dp, tx, id) {
            return;
        }
        let phase = dp.conns.get(id).map(|conn| &conn.phase);
        if !matches!(phase, None | Some(Phase::Rdma { .. } | Phase::Over)) {
            let message = "the peer ended the association before the session began".to_owned();
            self.finish(dp, tx, id, DisconnectReason::PeerClosed, Some(message));
            self.limit_close(dp, id);
        }
    }

    /// SCTP has an association no more: its sessions end, each as `end` says.
    fn all_gone<P: Port>(
        &mut self,
        dp: &mut Datapath<P>,
        tx: &mut Tx,
        assoc: AssocId,
        end: impl Fn(&Datapath<P>, ConnId) -> (DisconnectReason, Option<String>),
    ) {
        for id in dp.sctp.sessions.on(assoc) {
            // What came before has its turn first: a Terminate says more.
            self.see_to_session(dp, tx, id);
            // Then nothing is reported, and what is left of it goes all the same.
            self.begin_again(dp, tx, id);
            let (reason, message) = end(dp, id);
            self.gone(dp, tx, id, reason, message);
        }
        let carrier = dp.sctp.sessions.carrier(assoc);
        self.forget(dp, tx, carrier);
    }
}

impl<P: Port> Datapath<P> {
    /// The association that queue pairs of a client share which go this way, if the peer may have all its addresses, and
    /// a stream of it that is free.
    fn association_for(
        &self,
        client: ClientId,
        way: &AssociationPath,
        peers: &PeerRules,
    ) -> Option<(AssocId, u16)> {
        let (tuple, path, port) = way;
        let sessions = &self.sctp.sessions;
        let may_have = |conn: &Conn| {
            let mut addresses = conn.paths().map(|(tuple, _)| tuple.remote.addr);
            addresses.all(|address| peers.refused_by(address).is_none())
        };
        let leads_there = |conn: &Conn| {
            conn.tuple.remote == tuple.remote
                && conn.tuple.local.addr == tuple.local.addr
                && conn.path.vlan == path.vlan
                && self.are_of_one_medium(conn.port(), *port)
                && (may_have(conn) || !self.goes_over_interface(conn))
        };
        let stands = |assoc| {
            let state = self.sctp.stack.info(assoc).map(|info| info.state);
            matches!(
                state,
                Some(State::CookieWait | State::CookieEchoed | State::Established)
            )
        };
        let suits = |it: &&Association| {
            let of_client = it.is_ours && !it.is_closing && it.owner == Some(client);
            of_client && stands(it.id) && self.conns.get(it.carrier).is_some_and(leads_there)
        };
        // The last session takes its association with it.
        let stays = |id| {
            let session = sessions.get(id);
            session.is_some_and(|session| !session.ending && !session.broken)
        };
        let mut suitable = sessions.associations().filter(suits);
        suitable.find_map(|it| {
            let stream = it.free_stream().filter(|_| it.sessions().any(stays))?;
            Some((it.id, stream))
        })
    }

    /// Adds a session that we begin.
    fn add_session(
        &mut self,
        assoc: AssocId,
        stream: u16,
        session: Session,
        initiate: ControlChunk,
    ) -> Result<&mut StreamSession, CommandError> {
        let limit = self.config.limits.associations;
        let added = self.sctp.sessions.add(assoc, Some(stream), session);
        let added = added.ok_or(CommandError::Limit {
            what: "DDP Stream Sessions",
            limit,
        })?;
        added.initiate = Some(initiate);
        Ok(added)
    }

    /// Forgets a session.
    fn drop_session(&mut self, id: ConnId) {
        if let Some(session) = self.sctp.sessions.get_mut(id) {
            session.break_off();
            let (assoc, consumed) = (session.assoc, session.consumed);
            if consumed > 0 {
                // The window is also the others'.
                self.sctp.stack.consumed(self.now, assoc, consumed);
            }
        }
        self.sctp.sessions.remove(id);
    }

    /// Whether a peer's session may be for this client: others' queue pairs are not on its association.
    pub(super) fn may_have_session(&mut self, id: ConnId, client: ClientId) -> bool {
        let with = self.sctp.sessions.with_association(id);
        with.is_none_or(|(_, association)| *association.owner.get_or_insert(client) == client)
    }

    fn too_many_associations(&self) -> CommandError {
        CommandError::Limit {
            what: "associations",
            limit: self.config.limits.associations,
        }
    }
}

/// The session that a queue pair asks for, and its Initiate.
fn initiate(spec: &ConnectSpec) -> Result<(Session, ControlChunk), CommandError> {
    let mpa = &spec.mpa;
    if mpa.markers == MarkerUse::Require {
        return Err(invalid("Markers are MPA's: SCTP has none, and needs none"));
    }
    let enhanced = mpa.revision >= 2;
    let options = SessionOptions {
        enhanced,
        depths: depths(mpa),
        peer_to_peer: match enhanced {
            true => indications(mpa.rtr),
            false => indications(RtrModes::NONE),
        },
    };
    Session::initiate(&options, &spec.private_data).map_err(invalid)
}

fn requesting(qp: QpNum, opened: Instant) -> Phase {
    Phase::Requesting {
        qp,
        asking: Asking::Session,
        opened,
    }
}

/// The pairs of streams of one number that there are (RFC 5043 section 8).
fn streams(agreed: &Agreed) -> u16 {
    agreed.outbound_streams.min(agreed.inbound_streams)
}

fn aborted<P: Port>(dp: &Datapath<P>, id: ConnId, cause: &AbortCause) -> Option<String> {
    let conn = dp.conns.get(id)?;
    let remote = conn.tuple.remote;
    let code = cause
        .code
        .map_or("none".to_owned(), |code| code.to_string());
    let reason = cause.reason().escape_ascii();
    Some(match is_asking(dp, id) {
        true => format!(
            "{remote} aborted the association: nobody listens there, or not for DDP (cause {code})"
        ),
        false => format!("{remote} aborted the association (cause {code}, \"{reason}\")"),
    })
}
