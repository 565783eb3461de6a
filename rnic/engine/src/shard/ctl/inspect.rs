//! Snapshots of a shard's connections, queue pairs and STags for operators. The number of entries of one
//! snapshot is bounded, so that traffic is not delayed for long.

use std::net::SocketAddr;
use std::time::Duration;

use rnic_ipc::control::{DisconnectReason, Transport};
use rnic_ipc::id::{ClientId, QpNum};
use rnic_ipc::inspect::{AddressState, ConnectionInfo, PeerAddress, Stage};
use rnic_proto::Stag;
use rnic_xsk::Port;
use userspace_net::FourTuple;
use userspace_sctp::PathInfo;
use userspace_tcp::State;

use crate::command::{Answer, CommandError, QpStatus};
use crate::conn::{Conn, ConnKind, Phase};
use crate::shard::ctl::Ctl;
use crate::shard::ctl::control::unknown;
use crate::shard::datapath::Datapath;
use crate::shard::sctp::StreamSession;
use crate::shard::tx::Tx;

/// Places of the connection table that one look goes over.
const LOOKS: usize = 256;
/// Connections that one look gives: as many as may fit a message, and not many more.
const FOUND: usize = 64;

impl Ctl {
    /// The connections from place `after` of the table on.
    pub(in crate::shard) fn inspect_connections<P: Port>(
        &self,
        dp: &Datapath<P>,
        after: u32,
    ) -> Answer {
        let mut found = Vec::new();
        let first = after as usize;
        let end = first.saturating_add(LOOKS).min(dp.conns.places());
        for place in first..end {
            let Some(conn) = dp.conns.at(place) else {
                continue;
            };
            found.extend(self.show(dp, place, conn));
            if found.len() == FOUND {
                let next = Some(place as u32 + 1);
                return Answer::Connections { found, next };
            }
        }
        let next = (end < dp.conns.places()).then_some(end as u32);
        Answer::Connections { found, next }
    }

    /// Resets the connection at this place of the table, if it has these ends and belongs to this
    /// client, or nobody.
    pub(in crate::shard) fn drop_connection<P: Port>(
        &mut self,
        dp: &mut Datapath<P>,
        tx: &mut Tx,
        connection: u32,
        (local, remote): (SocketAddr, SocketAddr),
        owner: Option<ClientId>,
    ) -> Result<(), CommandError> {
        let place = (connection as usize).checked_sub(1);
        let found = place.and_then(|place| dp.conns.at(place));
        let found = found.filter(|conn| {
            conn.kind != ConnKind::Association && ends(&conn.tuple) == (local, remote)
        });
        let conn = found.ok_or(unknown("connection"))?;
        if self.owner(dp, conn) != owner {
            return Err(unknown("connection"));
        }
        let id = conn.id;
        let message = format!("an operator dropped the connection to {remote}");
        self.abort(dp, tx, id, DisconnectReason::Aborted, Some(message));
        Ok(())
    }

    /// The client that owns a connection, if one does.
    fn owner<P: Port>(&self, dp: &Datapath<P>, conn: &Conn) -> Option<ClientId> {
        match &conn.phase {
            Phase::Requesting { qp, .. } | Phase::Rdma { qp } => {
                dp.qps.get(qp.0).map(|slot| slot.qp.client())
            }
            Phase::Requested { client, .. } => Some(*client),
            Phase::AwaitRequest { listener, .. } => self
                .listeners
                .get(&listener.0)
                .map(|listener| listener.client),
            Phase::HalfOpen | Phase::Over => None,
        }
    }

    fn show<P: Port>(&self, dp: &Datapath<P>, place: usize, conn: &Conn) -> Option<ConnectionInfo> {
        if conn.transport() == Transport::Sctp {
            let session = dp.sctp.sessions.get(conn.id)?;
            return self.show_session(dp, place, conn, session);
        }
        let info = dp.stack.info(conn.id)?;
        let (local, remote) = ends(&conn.tuple);
        Some(ConnectionInfo {
            connection: place as u32 + 1,
            client: self.owner(dp, conn),
            qp: conn.qp(),
            local,
            remote,
            transport: Transport::Tcp,
            stage: stage(&conn.phase),
            udp_port: None,
            peer_addresses: Vec::new(),
            state: tcp_state(info.state).to_owned(),
            rtt_us: info.srtt.map(micros),
            rtt_deviation_us: micros(info.rttvar),
            mss: info.mss as u32,
            cwnd: info.cwnd,
            in_flight: info.pipe,
            bytes_in: info.counters.bytes_in,
            bytes_out: info.counters.bytes_out,
            retransmits: info.counters.retransmits,
            timeouts: info.counters.timeouts,
            bytes_out_of_order: conn.bytes_out_of_order,
        })
    }
}

impl Ctl {
    fn show_session<P: Port>(
        &self,
        dp: &Datapath<P>,
        place: usize,
        conn: &Conn,
        session: &StreamSession,
    ) -> Option<ConnectionInfo> {
        let info = dp.sctp.stack.info(session.assoc)?;
        let (local, remote) = ends(&conn.tuple);
        Some(ConnectionInfo {
            connection: place as u32 + 1,
            client: self.owner(dp, conn),
            qp: conn.qp(),
            local,
            remote,
            transport: Transport::Sctp,
            stage: stage(&conn.phase),
            udp_port: info.udp,
            peer_addresses: dp.sctp.stack.paths(session.assoc).map(address).collect(),
            state: sctp_state(info.state).to_owned(),
            rtt_us: info.srtt.map(micros),
            rtt_deviation_us: micros(info.rttvar),
            mss: dp.sctp.stack.message_max(session.assoc) as u32,
            cwnd: info.cwnd as u64,
            in_flight: info.flight as u64,
            bytes_in: info.counters.bytes_in,
            bytes_out: info.counters.bytes_out,
            retransmits: info.counters.retransmits,
            timeouts: info.counters.timeouts,
            bytes_out_of_order: conn.bytes_out_of_order,
        })
    }
}

impl<P: Port> Datapath<P> {
    /// These queue pairs; those that are not there are left out.
    pub(in crate::shard) fn inspect_queue_pairs(&self, qps: &[QpNum]) -> Answer {
        let look = |qp: &QpNum| {
            let slot = self.qps.get(qp.0)?;
            let conn = slot.conn.and_then(|id| self.conns.get(id));
            Some(QpStatus {
                qp: *qp,
                state: slot.qp.state(),
                connection: conn.map(|conn| ends(&conn.tuple)),
                held: conn
                    .filter(|_| slot.qp.is_held())
                    .map(|conn| conn.inbound.waiting()),
            })
        };
        Answer::QueuePairs(qps.iter().filter_map(look).collect())
    }

    /// The STags with these indexes, whatever their keys are; those that are not there are left out.
    pub(in crate::shard) fn inspect_stags(&self, stags: &[Stag]) -> Answer {
        let stags = stags.iter().filter_map(|stag| {
            let look = self.tables.stags.look(stag.index())?;
            Some((stag.index(), look))
        });
        Answer::Stags(stags.collect())
    }
}

fn address(path: PathInfo) -> PeerAddress {
    PeerAddress {
        address: path.remote,
        state: match (path.is_confirmed, path.is_active) {
            (false, _) => AddressState::Unconfirmed,
            (true, true) => AddressState::Active,
            (true, false) => AddressState::Inactive,
        },
    }
}

/// A round trip is minutes at most.
fn micros(duration: Duration) -> u64 {
    duration.as_micros() as u64
}

fn ends(tuple: &FourTuple) -> (SocketAddr, SocketAddr) {
    (tuple.local.into(), tuple.remote.into())
}

fn stage(phase: &Phase) -> Stage {
    match phase {
        Phase::Requesting { .. } => Stage::Requesting,
        Phase::HalfOpen => Stage::HalfOpen,
        Phase::AwaitRequest { .. } => Stage::AwaitingRequest,
        Phase::Requested { .. } => Stage::Requested,
        Phase::Rdma { .. } => Stage::Rdma,
        Phase::Over => Stage::Over,
    }
}

/// As RFC 9293 section 3.3.2 writes it.
fn tcp_state(state: State) -> &'static str {
    match state {
        State::SynSent => "SYN-SENT",
        State::SynReceived => "SYN-RECEIVED",
        State::Established => "ESTABLISHED",
        State::FinWait1 => "FIN-WAIT-1",
        State::FinWait2 => "FIN-WAIT-2",
        State::Closing => "CLOSING",
        State::TimeWait => "TIME-WAIT",
        State::CloseWait => "CLOSE-WAIT",
        State::LastAck => "LAST-ACK",
    }
}

/// As RFC 9260 section 4 writes it.
fn sctp_state(state: userspace_sctp::State) -> &'static str {
    use userspace_sctp::State;
    match state {
        State::CookieWait => "COOKIE-WAIT",
        State::CookieEchoed => "COOKIE-ECHOED",
        State::Established => "ESTABLISHED",
        State::ShutdownPending => "SHUTDOWN-PENDING",
        State::ShutdownSent => "SHUTDOWN-SENT",
        State::ShutdownReceived => "SHUTDOWN-RECEIVED",
        State::ShutdownAckSent => "SHUTDOWN-ACK-SENT",
        State::Closed => "CLOSED",
    }
}
