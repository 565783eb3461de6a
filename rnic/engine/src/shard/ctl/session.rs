//! What DDP Stream Sessions have of their own (RFC 5043): how they are answered, what their control messages mean, and
//! how they end.

use rnic_ipc::control::{DisconnectReason, MarkerUse, MpaOptions, RtrModes};
use rnic_proto::Gather;
use rnic_proto::enhanced::ReadDepths;
use rnic_proto::mpa::marker::Markers;
use rnic_proto::mpa::startup::{Negotiated, Revision};
use rnic_proto::rdmap::TerminateError;
use rnic_proto::sctp::{self, Told, UserData};
use rnic_xsk::Port;
use userspace_net::ConnId;

use crate::command::CommandError;
use crate::conn::Phase;
use crate::shard::ctl::Ctl;
use crate::shard::ctl::control::{invalid, unknown};
use crate::shard::ctl::mpa_options::{depths, indications};
use crate::shard::datapath::Datapath;
use crate::shard::sctp::{Held, SessionFault, Sessions, StreamSession};
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
    /// Gives what a session has received its turn, and ends it when it is to end.
    pub(in crate::shard) fn see_to_session<P: Port>(
        &mut self,
        dp: &mut Datapath<P>,
        tx: &mut Tx,
        id: ConnId,
    ) {
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
                self.release_spare(dp, id);
                self.enter_rdma_mode(dp, tx, id, qp, &as_mpa(&negotiated), private_data);
            }
            Outcome::Rejected { private_data } => self.rejected(dp, tx, id, None, private_data),
            Outcome::Terminated if self.begin_again(dp, tx, id) => {}
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
            if dp.sctp.sessions.is_alone(id) {
                return self.abort(dp, tx, id, DisconnectReason::BadSession, Some(message));
            }
            if let Some(stream) = dp.sctp.sessions.get_mut(id) {
                stream.break_off();
            }
            return self.settle_session(dp, tx, id);
        }
        log::debug!("{message}");
        let is_asking = matches!(conn.phase, Phase::Requesting { .. });
        let error = fault.wants_terminate().filter(|_| is_asking);
        let reason = match error.map(TerminateError::from) {
            Some(error) if dp.sctp.terminate_stream(&mut dp.frames, dp.now, id, error) => {
                let control = error.control();
                DisconnectReason::TerminateSent { control }
            }
            _ => DisconnectReason::BadSession,
        };
        self.finish(dp, tx, id, reason, Some(message));
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
        // What the peer said first may be no Initiate: it is told so all the same (RFC 5043 section 6.1). An association
        // that is being shut down takes none.
        let has_begun = stream.session.has_begun() || stream.broken;
        let ends = stream.ending && has_begun && dp.sctp.stack.takes_messages(assoc);
        let terminate = match ends {
            true => stream.session.terminate(),
            false => None,
        };
        if let Some(chunk) = terminate
            && dp.send_startup(id, chunk.bytes()).is_err()
        {
            // The peer would wait for it for as long as the association is there.
            let carrier = dp.sctp.sessions.carrier(assoc);
            return self.abort(dp, tx, carrier, DisconnectReason::LocalError, None);
        }
        self.update_conn(dp, tx, id);
        tx.make_ready(dp, id);
        let session = dp.sctp.sessions.get(id);
        if session.is_some_and(StreamSession::is_done) {
            self.session_done(dp, tx, id);
        }
    }

    /// Both sides have ended a session, or nothing more that the peer says counts.
    fn session_done<P: Port>(&mut self, dp: &mut Datapath<P>, tx: &mut Tx, id: ConnId) {
        let is_last = dp.sctp.sessions.is_alone(id);
        let Some(assoc) = dp.sctp.sessions.assoc_of(id) else {
            return;
        };
        self.finish(dp, tx, id, DisconnectReason::Graceful, None);
        if is_last {
            // With its last session the association has lost its use (RFC 5041 section 3).
            self.shut_down(dp, tx, assoc);
        }
        self.forget(dp, tx, id);
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
pub(in crate::shard) fn is_asking<P: Port>(dp: &Datapath<P>, id: ConnId) -> bool {
    let phase = dp.conns.get(id).map(|conn| &conn.phase);
    matches!(phase, Some(Phase::Requesting { .. }))
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
