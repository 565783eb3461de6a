//! Associations: how they are begun, joined by further sessions, and shut down.
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
use userspace_sctp::{AssocId, ConnectError, Route, State};

use crate::command::CommandError;
use crate::conn::{Asking, Conn, Phase};
use crate::shard::ctl::Ctl;
use crate::shard::ctl::control::invalid;
use crate::shard::ctl::mpa_options::{depths, indications};
use crate::shard::datapath::Datapath;
use crate::shard::sctp::{Again, Association, StreamSession, ends};
use crate::shard::tx::Tx;

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
