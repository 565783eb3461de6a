//! The MPA start-up over a TCP connection, as initiator and as responder (RFC 5044 section 7.1,
//! RFC 6581). No byte of it touches application memory.

use rnic_ipc::control::{DisconnectReason, Event, MarkerUse, MpaOptions, Transport};
use rnic_ipc::id::{ConnRequestId, ListenerId, QpNum};
use rnic_proto::enhanced::ReadDepths;
use rnic_proto::mpa::MpaError;
use rnic_proto::mpa::fpdu::{self, Layout, Writer};
use rnic_proto::mpa::marker::{MARKER_LEN, Markers};
use rnic_proto::mpa::startup::frame::FrameKind;
use rnic_proto::mpa::startup::{InitiatorProgress, Negotiated, ResponderProgress, StartupError};
use rnic_proto::rdmap::{TerminateError, TerminateMessage, terminate};
use rnic_xsk::Port;
use userspace_net::ConnId;

use crate::command::{JoinEvent, ShardEvent};
use crate::conn::{Asked, Asking, Conn, ConnKind, Phase, SLICES_MAX};
use crate::shard::ctl::Ctl;
use crate::shard::ctl::mpa_options::{agreed, modes, said};
use crate::shard::datapath::Datapath;
use crate::shard::llp::{EMSS_MIN, NotSent};
use crate::shard::request_ids;
use crate::shard::tx::Tx;

/// What the peer's bytes amounted to.
enum Outcome {
    NeedMore,
    Accepted {
        negotiated: Negotiated,
        private_data: Vec<u8>,
    },
    Rejected {
        peer: Option<ReadDepths>,
        private_data: Vec<u8>,
    },
    Request {
        mpa: MpaOptions,
        private_data: Vec<u8>,
    },
    Failed {
        error: StartupError,
    },
}

impl Ctl {
    /// TCP or SCTP is established on the initiator's side.
    pub(in crate::shard) fn send_request<P: Port>(
        &mut self,
        dp: &mut Datapath<P>,
        tx: &mut Tx,
        id: ConnId,
    ) {
        let Some(conn) = dp.conns.get_mut(id) else {
            return;
        };
        let Phase::Requesting { asking, .. } = &conn.phase else {
            return;
        };
        let request = match asking {
            Asking::Mpa { initiator, .. } => initiator.request().bytes().to_vec(),
            Asking::Session => dp.sctp.sessions.take_initiate(id),
        };
        if !self.segments_suit(dp, tx, id) {
            return;
        }
        self.set_deadline(dp, id, dp.config.startup_timeout);
        if dp.send_startup(id, &request).is_err() {
            return self.abort(dp, tx, id, DisconnectReason::LocalError, None);
        }
        self.deliver_startup(dp, tx, id);
    }

    /// Takes over what TCP agreed on at its establishment. One FPDU is one segment here. So this ends the
    /// connection and returns false when a segment is too small for the smallest full-size FPDU (RFC 5044
    /// section 4.5). For a window that is, FPDUs are cut.
    pub(in crate::shard) fn segments_suit<P: Port>(
        &mut self,
        dp: &mut Datapath<P>,
        tx: &mut Tx,
        id: ConnId,
    ) -> bool {
        let Some(conn) = dp.conns.get_mut(id) else {
            return false;
        };
        if conn.transport() == Transport::Sctp {
            // SCTP's packets hold at least what every IPv4 host takes (RFC 5043 section 9).
            return true;
        }
        let Some(info) = dp.stack.info(id) else {
            return false;
        };
        conn.timestamps = info.timestamps;
        let remote = conn.tuple.remote;
        let mss = info.mss;
        if mss >= EMSS_MIN {
            return true;
        }
        let message = format!(
            "{remote}: the peer's MSS lets TCP segments hold {mss} bytes, and the smallest FPDU needs \
             {EMSS_MIN}: raise the peer's MSS"
        );
        log::info!("{message}");
        self.abort(dp, tx, id, DisconnectReason::NotMpa, Some(message));
        false
    }

    /// Bytes of a connection in its start-up.
    pub(in crate::shard) fn deliver_startup<P: Port>(
        &mut self,
        dp: &mut Datapath<P>,
        tx: &mut Tx,
        id: ConnId,
    ) {
        loop {
            let Some(conn) = dp.conns.get_mut(id) else {
                return;
            };
            if conn.inbound.available() == 0 {
                return;
            }
            let outcome = {
                let Conn { phase, inbound, .. } = conn;
                let mut slices: [&[u8]; SLICES_MAX] = [&[]; SLICES_MAX];
                let filled = inbound.slices(&dp.frames.umem, &dp.frames.held, &mut slices);
                let slices = slices.get(..filled).unwrap_or(&[]);
                let total: usize = slices.iter().map(|slice| slice.len()).sum();
                let outcome = feed(phase, slices);
                inbound.consume(total, &mut dp.frames);
                dp.stack.consumed(id, inbound.consumed_to());
                outcome
            };
            match outcome {
                Outcome::NeedMore => {}
                Outcome::Accepted {
                    negotiated,
                    private_data,
                } => {
                    return self.initiator_established(dp, tx, id, &negotiated, private_data);
                }
                Outcome::Rejected { peer, private_data } => {
                    return self.rejected(dp, tx, id, peer, private_data);
                }
                Outcome::Request { mpa, private_data } => {
                    self.requested(dp, tx, id, mpa, private_data);
                }
                Outcome::Failed { error } => return self.startup_failed(dp, tx, id, &error),
            }
        }
    }

    fn initiator_established<P: Port>(
        &mut self,
        dp: &mut Datapath<P>,
        tx: &mut Tx,
        id: ConnId,
        negotiated: &Negotiated,
        data: Vec<u8>,
    ) {
        let Some(conn) = dp.conns.get(id) else {
            return;
        };
        if conn.inbound.available() > 0 {
            // A responder sends no FPDU before the initiator's first (RFC 5044 section 7.1.2).
            let message = "the peer sent bytes behind its MPA Reply before our first FPDU";
            return self.abort(
                dp,
                tx,
                id,
                DisconnectReason::NotMpa,
                Some(message.to_string()),
            );
        }
        let Phase::Requesting { qp, .. } = conn.phase else {
            return;
        };
        let slot = dp.qps.get(qp.0);
        if slot.is_some_and(|slot| !slot.qp.may_be_answered(&data)) {
            let message = "the peer's answer is not that of the queue pair that it is joined to";
            return self.abort(
                dp,
                tx,
                id,
                DisconnectReason::NotMpa,
                Some(message.to_string()),
            );
        }
        // Now the peer has acknowledged something, and offers what it is going to offer.
        if !self.segments_suit(dp, tx, id) {
            return;
        }
        self.enter_rdma_mode(dp, tx, id, qp, negotiated, data);
        self.expect_responder(dp, id, negotiated);
    }

    /// The start-up is done on this side.
    pub(in crate::shard) fn enter_rdma_mode<P: Port>(
        &mut self,
        dp: &mut Datapath<P>,
        tx: &mut Tx,
        id: ConnId,
        qp: QpNum,
        negotiated: &Negotiated,
        private_data: Vec<u8>,
    ) {
        let Some(slot) = dp.qps.get_mut(qp.0) else {
            return;
        };
        let Some(conn) = dp.conns.get_mut(id) else {
            return;
        };
        let before = std::mem::replace(&mut conn.phase, Phase::Rdma { qp });
        conn.prediction = Some(Box::default());
        dp.served.note(id, qp, slot.qp.client());
        conn.deadline = None;
        let opened = match before {
            Phase::Requesting { opened, .. } => Some(opened),
            _ => None,
        };
        if let Some(opened) = opened {
            let took = dp.now.saturating_duration_since(opened);
            self.connect_times.record(took);
        }
        slot.conn = Some(id);
        slot.qp.enter_rdma_mode(negotiated, opened.is_some());
        let is_session = conn.kind == ConnKind::Session;
        if is_session {
            slot.qp.allow_sending();
            slot.qp.never_hold();
        }
        slot.qp.doorbell(&mut dp.tables.context(slot.tally, dp.now));
        let (client, joined) = (slot.qp.client(), slot.qp.is_joined());
        conn.joined = joined;
        if conn.is_loopback() || is_session {
            slot.qp.skip_checks();
        } else {
            tx.macroflows.join(id, client, conn.tuple.remote.addr);
        }
        dp.counters.established += 1;
        self.resolve_peer_paths(dp, id);
        let event = Event::Established {
            qp,
            mpa: agreed(negotiated),
            peer: negotiated.peer.map(said),
            private_data,
        };
        if joined {
            let event = JoinEvent::Established;
            self.events.push_back(ShardEvent::Join { qp, event });
        }
        self.events.push_back(ShardEvent::Client { client, event });
        tx.make_ready(dp, id);
        self.update_qp(dp, tx, qp);
    }

    pub(in crate::shard) fn rejected<P: Port>(
        &mut self,
        dp: &mut Datapath<P>,
        tx: &mut Tx,
        id: ConnId,
        peer: Option<ReadDepths>,
        private_data: Vec<u8>,
    ) {
        let Some(conn) = dp.conns.get_mut(id) else {
            return;
        };
        let Phase::Requesting { qp, asking, .. } = &mut conn.phase else {
            return;
        };
        let unmarked = match asking {
            Asking::Mpa { unmarked, .. } => unmarked.take(),
            Asking::Session => None,
        };
        let qp = *qp;
        if let Some(initiator) = unmarked.filter(|_| private_data.is_empty()) {
            return self.ask_without_markers(dp, tx, id, qp, initiator);
        }
        self.let_go(dp, tx, id, Ok(()));
        self.tell_rejected(dp, qp, peer, private_data);
    }

    /// A queue pair is not to be connected.
    pub(in crate::shard) fn tell_rejected<P: Port>(
        &mut self,
        dp: &mut Datapath<P>,
        qp: QpNum,
        peer: Option<ReadDepths>,
        private_data: Vec<u8>,
    ) {
        dp.counters.startup_failed += 1;
        let event = Event::Rejected {
            qp,
            peer: peer.map(said),
            private_data,
        };
        self.end_queue_pair(dp, qp, DisconnectReason::Refused, event);
    }

    /// A whole MPA Request, or an Initiate: the application decides.
    pub(in crate::shard) fn requested<P: Port>(
        &mut self,
        dp: &mut Datapath<P>,
        tx: &mut Tx,
        id: ConnId,
        mpa: MpaOptions,
        private_data: Vec<u8>,
    ) {
        if !self.segments_suit(dp, tx, id) {
            return;
        }
        let request = self.name_request(dp);
        let Some(conn) = dp.conns.get_mut(id) else {
            return;
        };
        let Phase::AwaitRequest { listener, .. } = conn.phase else {
            return;
        };
        let (local, remote) = (conn.tuple.local.into(), conn.tuple.remote.into());
        let Some(entry) = self.listeners.get_mut(&listener.0) else {
            return self.abort(dp, tx, id, DisconnectReason::Aborted, None);
        };
        entry.backlog.asked(id);
        let client = entry.client;
        let before = std::mem::replace(&mut conn.phase, Phase::Over);
        if let Phase::AwaitRequest { asked, .. } = before {
            conn.phase = Phase::Requested {
                listener,
                client,
                request,
                asked,
            };
        }
        self.requests.insert(request.0, id);
        self.set_deadline(dp, id, dp.config.answer_timeout);
        let event = Event::ConnectRequest {
            listener,
            request,
            local,
            remote,
            mpa,
            private_data,
        };
        self.events.push_back(ShardEvent::Client { client, event });
    }

    /// A name that no waiting request has.
    fn name_request<P: Port>(&mut self, dp: &mut Datapath<P>) -> ConnRequestId {
        loop {
            let (name, count) = request_ids::id(dp.config.number, self.last_request);
            self.last_request = count;
            if !self.requests.contains_key(&name.0) {
                return name;
            }
        }
    }

    /// Bytes came, out of order, where no start-up frame reaches. A peer that nobody has accepted
    /// yet holds no memory with them.
    pub(in crate::shard) fn startup_overrun<P: Port>(
        &mut self,
        dp: &mut Datapath<P>,
        tx: &mut Tx,
        id: ConnId,
    ) {
        let kind = match dp.conns.get(id).map(|conn| &conn.phase) {
            Some(Phase::Requesting { .. }) => FrameKind::Reply,
            _ => FrameKind::Request,
        };
        self.startup_failed(
            dp,
            tx,
            id,
            &StartupError::BytesBehindFrame { kind, extra: 1 },
        );
    }

    fn startup_failed<P: Port>(
        &mut self,
        dp: &mut Datapath<P>,
        tx: &mut Tx,
        id: ConnId,
        error: &StartupError,
    ) {
        let Some(conn) = dp.conns.get(id) else {
            return;
        };
        let remote = conn.tuple.remote;
        log::debug!("MPA start-up with {remote}: {error}");
        let message = format!("MPA start-up with {remote}: {error}");
        if let (
            Phase::Requesting {
                qp,
                asking: Asking::Mpa { initiator, .. },
                ..
            },
            Some(error),
        ) = (&conn.phase, error.wants_terminate())
        {
            let of = (*qp, initiator.markers_out());
            return self.terminate_startup(dp, tx, id, of, error, message);
        }
        self.abort(dp, tx, id, DisconnectReason::NotMpa, Some(message));
    }

    /// Tells a responder why its Reply is not good enough (RFC 6581 section 9), and lets the
    /// connection go.
    fn terminate_startup<P: Port>(
        &mut self,
        dp: &mut Datapath<P>,
        tx: &mut Tx,
        id: ConnId,
        (qp, markers): (QpNum, Markers),
        error: MpaError,
        message: String,
    ) {
        let error = TerminateError::from(error);
        let terminate = TerminateMessage::new(error, None);
        let ulpdu = terminate.bytes();
        let mut bytes = [0; fpdu::fpdu_length(terminate::ULPDU_LEN_MAX) + MARKER_LEN];
        // The first FPDU of this direction.
        let layout = Layout::new(markers, 0, ulpdu.len());
        // A right CRC is right also where none is checked.
        let mut fpdu = Writer::new(&mut bytes, layout, true);
        fpdu.put(0, ulpdu);
        let len = fpdu.finish().len;
        let sent = dp.send_startup(id, &bytes[..len]);
        dp.counters.startup_failed += 1;
        self.let_go(dp, tx, id, sent);
        let reason = DisconnectReason::TerminateSent {
            control: error.control(),
        };
        let event = Event::ConnectFailed {
            qp,
            reason,
            message,
        };
        self.end_queue_pair(dp, qp, reason, event);
    }

    /// Sends a Reply that rejects, and leaves MPA. What stands above it has no use for the connection, and
    /// closes it at once (RFC 5044 section 7.1.2, rules 2 and 3).
    pub(in crate::shard) fn send_reject<P: Port>(
        &mut self,
        dp: &mut Datapath<P>,
        tx: &mut Tx,
        id: ConnId,
        listener: ListenerId,
        reply: &[u8],
    ) {
        let sent = dp.send_startup(id, reply);
        self.no_longer_waiting(listener, id);
        self.let_go(dp, tx, id, sent);
    }

    /// After the last message of a failed start-up: ends what is sent behind it, or aborts if it was not sent.
    /// No event is raised.
    pub(in crate::shard) fn let_go<P: Port>(
        &mut self,
        dp: &mut Datapath<P>,
        tx: &mut Tx,
        id: ConnId,
        sent: Result<(), NotSent>,
    ) {
        let Some(conn) = dp.conns.get_mut(id) else {
            return;
        };
        let is_answer = !matches!(conn.phase, Phase::Requesting { .. });
        conn.phase = Phase::Over;
        // A session may have been ending before.
        (conn.deadline, conn.close_by) = (None, None);
        if sent.is_err() {
            return self.abort(dp, tx, id, DisconnectReason::LocalError, None);
        }
        conn.closing = true;
        let transport = conn.transport();
        dp.llp_mut(transport, |llp, _| llp.close(id, is_answer));
        self.limit_close(dp, id);
        self.note_unowned(dp, id);
    }
}

/// Feeds the phase's state machine with bytes in order; all of them are used.
fn feed(phase: &mut Phase, slices: &[&[u8]]) -> Outcome {
    let mut outcome = Outcome::NeedMore;
    for slice in slices {
        // Bytes after a whole frame: the responder detects these itself.
        if let Outcome::Accepted { .. } = outcome {
            let (kind, extra) = (FrameKind::Reply, slice.len());
            return Outcome::Failed {
                error: StartupError::BytesBehindFrame { kind, extra },
            };
        }
        let next = match phase {
            Phase::Requesting {
                asking: Asking::Mpa { initiator, .. },
                ..
            } => match initiator.on_bytes(slice) {
                Ok(InitiatorProgress::NeedMore) => Outcome::NeedMore,
                Ok(InitiatorProgress::Accepted {
                    negotiated,
                    private_data,
                    ..
                }) => Outcome::Accepted {
                    negotiated,
                    private_data: private_data.to_vec(),
                },
                Ok(InitiatorProgress::Rejected {
                    peer, private_data, ..
                }) => {
                    return Outcome::Rejected {
                        peer,
                        private_data: private_data.to_vec(),
                    };
                }
                Err(error) => return Outcome::Failed { error },
            },
            Phase::AwaitRequest {
                asked: Asked::Mpa(responder),
                ..
            }
            | Phase::Requested {
                asked: Asked::Mpa(responder),
                ..
            } => match responder.on_bytes(slice) {
                Ok(ResponderProgress::NeedMore) => Outcome::NeedMore,
                Ok(ResponderProgress::Request {
                    revision,
                    crc_wanted,
                    markers_wanted,
                    aligned_wanted,
                    peer,
                    peer_to_peer,
                    private_data,
                    ..
                }) => {
                    let peer = peer.unwrap_or_default();
                    let mpa = MpaOptions {
                        revision: revision.number(),
                        crc: crc_wanted,
                        markers: MarkerUse::of_flag(markers_wanted),
                        aligned: aligned_wanted,
                        rtr: modes(peer_to_peer.unwrap_or_default()),
                        ird: peer.ird,
                        ord: peer.ord,
                    };
                    Outcome::Request {
                        mpa,
                        private_data: private_data.to_vec(),
                    }
                }
                Err(error) => return Outcome::Failed { error },
            },
            _ => Outcome::NeedMore,
        };
        if !matches!(next, Outcome::NeedMore) {
            outcome = next;
        }
    }
    outcome
}
