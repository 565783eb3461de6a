//! What DDP Stream Sessions have of their own (RFC 5043): how they are asked for and answered, what their control
//! messages mean, and what SCTP tells of their associations.

use rnic_ipc::control::{DisconnectReason, MarkerUse, MpaOptions, RtrModes, Transport};
use rnic_net::Path;
use rnic_proto::Gather;
use rnic_proto::enhanced::ReadDepths;
use rnic_proto::mpa::marker::Markers;
use rnic_proto::mpa::startup::{Negotiated, Revision};
use rnic_proto::sctp::{self, Session, SessionOptions, Told, UserData};
use rnic_xsk::Port;
use userspace_net::{ConnId, FourTuple};
use userspace_sctp::{AssocId, ConnectError, Event, Failure, Route};

use crate::command::CommandError;
use crate::conn::{Asking, Conn, Phase};
use crate::shard::ctl::Ctl;
use crate::shard::ctl::control::{invalid, unknown};
use crate::shard::ctl::mpa_options::{depths, indications};
use crate::shard::datapath::Datapath;
use crate::shard::sctp::{Held, SessionFault, Sessions, ends, tuple};
use crate::shard::tx::Tx;

/// Turns of one session that are seen to at once.
const TURNS: usize = 256;

/// What a control message means for the connection.
enum Outcome {
    Requested {
        peer: Option<ReadDepths>,
        private_data: Vec<u8>,
    },
    Accepted {
        negotiated: sctp::Negotiated,
        private_data: Vec<u8>,
    },
    Rejected {
        private_data: Vec<u8>,
    },
    Terminated,
}

impl<P: Port> Datapath<P> {
    /// Begins an association; the Initiate follows when it is established.
    pub(in crate::shard) fn open_session(
        &mut self,
        (tuple, path, port): (FourTuple, &Path, usize),
        mpa: &MpaOptions,
        private_data: &[u8],
    ) -> Result<(ConnId, Asking), CommandError> {
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
        let (session, initiate) = Session::initiate(&options, private_data).map_err(invalid)?;
        // Nothing within the host drops SCTP.
        let udp = self.config.sctp_udp.filter(|_| self.is_of_interface(port));
        let route = Route {
            ends: ends(&tuple),
            udp: udp.and_then(|udp| udp.peer_port),
        };
        let sctp = &mut self.sctp;
        let assoc = sctp.stack.connect(self.now, route);
        let assoc = assoc.map_err(|error| match error {
            ConnectError::TooMany { limit } => CommandError::Limit {
                what: "associations",
                limit,
            },
            ConnectError::InUse { .. } => CommandError::InUse {
                local: tuple.local.into(),
            },
            ConnectError::BadEnds { .. } | ConnectError::NoUdpPort => invalid(error),
        })?;
        let id = sctp.sessions.add(assoc, session);
        if let Some(session) = sctp.sessions.get_mut(id) {
            session.initiate = Some(initiate);
            session.local = Some(tuple.local);
        }
        sctp.stack.limit_mtu(self.now, assoc, path.mtu as usize);
        Ok((id, Asking::Session))
    }
}

impl Sessions {
    /// The Accept of a session that the peer asks for, and what is agreed by it.
    pub(in crate::shard) fn accept(
        &mut self,
        id: ConnId,
        mpa: &MpaOptions,
        private_data: &[u8],
    ) -> Result<(Vec<u8>, Negotiated), CommandError> {
        let session = self.get_mut(id).ok_or(unknown("connection request"))?;
        let rtr = indications(mpa.rtr);
        let accepted = session.session.accept(depths(mpa), rtr, private_data);
        let (chunk, negotiated) = accepted.map_err(invalid)?;
        // What waited for the answer has its turn.
        self.hear(id);
        Ok((chunk.bytes().to_vec(), as_mpa(&negotiated)))
    }

    /// The Reject of a session that the peer asks for, if it is the application's; else a Terminate (RFC 5043
    /// sections 6.3 and 6.4).
    pub(in crate::shard) fn reject(
        &mut self,
        id: ConnId,
        private_data: Option<&[u8]>,
    ) -> Result<Vec<u8>, CommandError> {
        let gone = unknown("connection request");
        let session = self.get_mut(id).ok_or(gone)?;
        let chunk = match private_data {
            Some(private_data) => session.session.reject(private_data).map_err(invalid)?,
            None => {
                let gone = unknown("connection request");
                session.session.terminate().ok_or(gone)?
            }
        };
        Ok(chunk.bytes().to_vec())
    }
}

impl Ctl {
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
        let id = dp.sctp.sessions.name(assoc);
        match event {
            Event::Incoming(agreed) => {
                let Some((path, port)) = way.map(|(path, port)| (*path, port)) else {
                    // It has no session yet.
                    dp.sctp.stack.abort(dp.now, assoc, b"");
                    return dp.sctp.sessions.remove(id);
                };
                let tuple = tuple(&agreed.ends);
                // The cookie may have come from another address than the INIT.
                let (path, port) = tx.link.way_back(&tuple).unwrap_or((path, port));
                dp.sctp.sessions.begin(assoc, tuple.local);
                dp.sctp.stack.limit_mtu(dp.now, assoc, path.mtu as usize);
                let conn = Conn::new(id, tuple, path, port, 0, Phase::HalfOpen);
                self.adopt(dp, tx, conn);
                let peers = self.rules_at(Transport::Sctp, tuple.local.into());
                self.take_addresses(dp, id, &peers);
                self.incoming(dp, tx, id, tuple.local);
            }
            Event::Established(_) => {
                let session = dp.sctp.sessions.get_mut(id);
                let peers = session.map(|session| std::mem::take(&mut session.peers));
                self.take_addresses(dp, id, &peers.unwrap_or_default());
                self.send_request(dp, tx, id);
            }
            Event::MtuChanged { message_max } => self.mss_changed(dp, tx, id, message_max),
            Event::PathDown { remote } => self.doubt_address(dp, id, remote),
            Event::PathConfirmed { remote } => dp.conns.confirmed(id, remote),
            Event::PathUp { .. } => {}
            // The peer has lost all sessions (RFC 5043 says nothing of it).
            Event::Restarted(_) => {
                let message = "the peer's host has started anew, and knows nothing of the session";
                let (reason, message) = (DisconnectReason::Reset, message.to_owned());
                self.abort(dp, tx, id, reason, Some(message));
            }
            Event::PeerClosed => self.peer_shuts_down(dp, tx, id),
            Event::Closed => {
                self.see_to_session(dp, tx, id);
                self.gone(dp, tx, id, DisconnectReason::PeerClosed, None);
            }
            Event::Aborted(cause) => {
                // What came before has its turn first: a Terminate says more.
                self.see_to_session(dp, tx, id);
                let message = aborted(dp, id, &cause);
                let reason = match is_asking(dp, id) {
                    true => DisconnectReason::Refused,
                    false => DisconnectReason::Reset,
                };
                self.gone(dp, tx, id, reason, message);
            }
            Event::Failed(failure) => {
                let reason = match failure {
                    Failure::NoProtocol if is_asking(dp, id) => DisconnectReason::Refused,
                    // Its RNIC has ended: the kernel that answers for it has no SCTP.
                    Failure::NoProtocol => DisconnectReason::Reset,
                    Failure::BadAnswer(_) | Failure::Violation(_) => DisconnectReason::NotMpa,
                    _ => DisconnectReason::TimedOut,
                };
                let remote = dp.conns.get(id).map(|conn| conn.tuple.remote);
                let message = remote.map(|remote| format!("{remote}: {failure}"));
                self.gone(dp, tx, id, reason, message);
            }
        }
    }

    /// The peer sends and takes nothing more but acknowledgments.
    fn peer_shuts_down<P: Port>(&mut self, dp: &mut Datapath<P>, tx: &mut Tx, id: ConnId) {
        // What came before has its turn first.
        self.see_to_session(dp, tx, id);
        let phase = dp.conns.get(id).map(|conn| &conn.phase);
        if !matches!(phase, Some(Phase::Rdma { .. } | Phase::Over)) {
            let message = "the peer ended the association before the session began".to_owned();
            self.finish(dp, tx, id, DisconnectReason::PeerClosed, Some(message));
            self.limit_close(dp, id);
        }
    }

    /// Gives what a session has received its turn, and ends it when it is to end.
    fn see_to_session<P: Port>(&mut self, dp: &mut Datapath<P>, tx: &mut Tx, id: ConnId) {
        for _ in 0..TURNS {
            match self.next_turn(dp, tx, id) {
                Ok(true) => {}
                Ok(false) => {
                    self.settle_session(dp, tx, id);
                    return;
                }
                Err(fault) => return self.session_fault(dp, tx, id, &fault),
            }
        }
        dp.sctp.sessions.hear(id);
    }

    /// Gives the next of what a session has received its turn; false when there is nothing.
    fn next_turn<P: Port>(
        &mut self,
        dp: &mut Datapath<P>,
        tx: &mut Tx,
        id: ConnId,
    ) -> Result<bool, SessionFault> {
        let Some(stream) = dp.sctp.sessions.get_mut(id) else {
            return Ok(false);
        };
        if let Some(fault) = stream.fault {
            return Err(fault);
        }
        if !stream.has_turn() {
            return Ok(false);
        }
        let Some(held) = stream.segments.take() else {
            return Ok(false);
        };
        let qp = match dp.conns.get(id).map(|conn| &conn.phase) {
            Some(Phase::Rdma { qp }) => dp.qps.get_mut(qp.0),
            _ => None,
        };
        match &held {
            Held::Placed { header, len } => {
                stream.session.on_segment()?;
                if let Some(slot) = qp {
                    let context = &mut dp.tables.context(slot.tally, dp.now);
                    slot.qp.deliver_placed(context, 0, header, *len);
                }
            }
            Held::Copy { protocol, bytes } => {
                stream.consumed += bytes.len();
                match UserData::parse(*protocol, bytes)? {
                    (_, UserData::Segment(segment)) => {
                        stream.session.on_segment()?;
                        if let Some(slot) = qp {
                            let context = &mut dp.tables.context(slot.tally, dp.now);
                            slot.qp.receive_segment(context, &Gather::new(&[segment]));
                        }
                    }
                    (_, UserData::Control(control)) => {
                        let outcome = outcome(stream.session.on_control(&control)?);
                        self.session_told(dp, tx, id, outcome);
                    }
                }
            }
        }
        Ok(true)
    }

    /// What a control message means.
    fn session_told<P: Port>(
        &mut self,
        dp: &mut Datapath<P>,
        tx: &mut Tx,
        id: ConnId,
        outcome: Outcome,
    ) {
        match outcome {
            Outcome::Requested { peer, private_data } => {
                let mpa = requested_options(peer);
                self.requested(dp, tx, id, mpa, private_data);
            }
            Outcome::Accepted {
                negotiated,
                private_data,
            } => {
                let Some(Phase::Requesting { qp, .. }) = dp.conns.get(id).map(|conn| &conn.phase)
                else {
                    return;
                };
                let qp = *qp;
                self.enter_rdma_mode(dp, tx, id, qp, &as_mpa(&negotiated), private_data);
            }
            Outcome::Rejected { private_data } => self.rejected(dp, tx, id, None, private_data),
            Outcome::Terminated if is_asking(dp, id) => {
                // Not by its application (RFC 5043 section 6.4).
                let message =
                    "the peer's RNIC does not take the session: nobody may have room for it";
                let (reason, message) = (DisconnectReason::Refused, message.to_owned());
                self.finish(dp, tx, id, reason, Some(message));
                self.let_go(dp, tx, id, Ok(()));
            }
            Outcome::Terminated => self.peer_closed(dp, tx, id),
        }
    }

    /// The peer breaks the rules of its session: it is told by a Terminate of the session (RFC 5043 section 6.1).
    fn session_fault<P: Port>(
        &mut self,
        dp: &mut Datapath<P>,
        tx: &mut Tx,
        id: ConnId,
        fault: &SessionFault,
    ) {
        let Some(conn) = dp.conns.get(id) else {
            return;
        };
        let message = format!("DDP Stream Session with {}: {fault}", conn.tuple.remote);
        if matches!(conn.phase, Phase::Over) {
            return self.abort(dp, tx, id, DisconnectReason::NotMpa, Some(message));
        }
        log::debug!("{message}");
        self.finish(dp, tx, id, DisconnectReason::NotMpa, Some(message));
        if let Some(stream) = dp.sctp.sessions.get_mut(id) {
            stream.break_off();
        }
        self.let_go(dp, tx, id, Ok(()));
        self.settle_session(dp, tx, id);
    }

    /// Tells SCTP what is consumed, and ends what is to end.
    fn settle_session<P: Port>(&mut self, dp: &mut Datapath<P>, tx: &mut Tx, id: ConnId) {
        let Some(stream) = dp.sctp.sessions.get_mut(id) else {
            return;
        };
        let assoc = stream.assoc;
        let consumed = std::mem::take(&mut stream.consumed);
        if consumed > 0 {
            dp.sctp.stack.consumed(dp.now, assoc, consumed);
        }
        // An association that is being shut down takes none.
        let ends =
            stream.ending && stream.session.has_begun() && dp.sctp.stack.takes_messages(assoc);
        let terminate = match ends {
            true => stream.session.terminate(),
            false => None,
        };
        if let Some(chunk) = terminate
            && dp.send_startup(id, chunk.bytes()).is_err()
        {
            return self.abort(dp, tx, id, DisconnectReason::LocalError, None);
        }
        self.update_conn(dp, tx, id);
        tx.make_ready(dp, id);
        let Some(stream) = dp.sctp.sessions.get_mut(id) else {
            return;
        };
        let is_done = stream.session.is_gone() || stream.broken && stream.posted == 0;
        if is_done && !std::mem::replace(&mut stream.closed, true) {
            // With its session the association has lost its use (RFC 5041 section 3).
            self.finish(dp, tx, id, DisconnectReason::Graceful, None);
            dp.sctp.stack.close(dp.now, assoc);
            if let Some(conn) = dp.conns.get_mut(id) {
                conn.closing = true;
                conn.close_by = None;
            }
            self.limit_close(dp, id);
        }
    }
}

/// The control message's meaning, without its bytes.
fn outcome(told: Told<'_>) -> Outcome {
    match told {
        Told::Initiated { peer, private_data } => Outcome::Requested {
            peer,
            private_data: private_data.to_vec(),
        },
        Told::Accepted {
            negotiated,
            private_data,
        } => Outcome::Accepted {
            negotiated,
            private_data: private_data.to_vec(),
        },
        Told::Rejected { private_data } => Outcome::Rejected {
            private_data: private_data.to_vec(),
        },
        Told::Terminated => Outcome::Terminated,
    }
}

/// A queue pair waits for the answer to its Initiate.
fn is_asking<P: Port>(dp: &Datapath<P>, id: ConnId) -> bool {
    let phase = dp.conns.get(id).map(|conn| &conn.phase);
    matches!(phase, Some(Phase::Requesting { .. }))
}

/// For people.
fn aborted<P: Port>(
    dp: &Datapath<P>,
    id: ConnId,
    cause: &userspace_sctp::AbortCause,
) -> Option<String> {
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

/// What a peer asks for, in the words of the API.
fn requested_options(peer: Option<ReadDepths>) -> MpaOptions {
    let revision = if peer.is_some() { 2 } else { 1 };
    let peer = peer.unwrap_or_default();
    MpaOptions {
        revision,
        crc: false,
        markers: MarkerUse::Off,
        aligned: false,
        rtr: RtrModes::NONE,
        ird: peer.ird,
        ord: peer.ord,
    }
}

/// What a session agreed on, as a queue pair knows it from MPA: no CRC and no Markers.
fn as_mpa(negotiated: &sctp::Negotiated) -> Negotiated {
    let sctp::Negotiated {
        ird,
        ord,
        rtr,
        peer,
    } = *negotiated;
    Negotiated {
        revision: match peer {
            Some(_) => Revision::Two,
            None => Revision::One,
        },
        crc: false,
        markers_in: Markers::Off,
        markers_out: Markers::Off,
        aligned: false,
        ird,
        ord,
        rtr,
        peer,
    }
}
