//! What SCTP tells of associations: they begin, restart, change their paths and end, and sessions on them do so too.

use rnic_ipc::control::{DisconnectReason, Transport};
use rnic_net::Path;
use rnic_proto::sctp::Session;
use rnic_xsk::Port;
use userspace_net::ConnId;
use userspace_sctp::{AbortCause, Agreed, AssocId, Event, Failure};

use crate::conn::{Conn, Phase};
use crate::shard::ctl::Ctl;
use crate::shard::ctl::session::is_asking;
use crate::shard::datapath::Datapath;
use crate::shard::sctp::tuple;
use crate::shard::tx::Tx;
use crate::shard::tx::return_paths::ReturnPath;

impl Ctl {
    /// What SCTP tells, and what sessions wait for. `way`: how to reach the peers of new associations.
    pub(in crate::shard) fn handle_association_events<P: Port>(
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
