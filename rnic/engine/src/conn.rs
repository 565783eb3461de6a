//! A connection as the shard sees it: the TCP connection or the DDP Stream Session, the path to the peer, and received
//! data that is not consumed yet. And the phase of its life (RFC 5044 section 7, RFC 5043 section 6, RFC 5040 section 6).

mod bounce;
mod early;
mod flow_owners;
mod inbound;
mod list;
mod parked_frames;
mod peer_paths;
mod prediction;
mod reorder_queue;
mod table;
#[cfg(test)]
mod tests;

use rnic_ipc::control::{DisconnectReason, Transport};
use rnic_ipc::id::{ClientId, ConnRequestId, ListenerId, QpNum};
use rnic_net::{Path, TCP_HEADER};
use rnic_proto::mpa::startup::{Initiator, Responder};
use userspace_net::{FourTuple, Instant};
use userspace_tcp::{ConnId, TIMESTAMPS_LEN};

pub(crate) use early::{DDP_HEADER_MAX, DELIVERED, FPDU_MIN, PLACED_AT_ONCE, Placed};
pub(crate) use flow_owners::{FlowOwners, OwnFlows};
#[cfg(test)]
use inbound::OutsideWindow;
pub(crate) use inbound::{Inbound, NewRange, SLICES_MAX};
pub(crate) use parked_frames::{Frames, ParkedFrames};
use peer_paths::FurtherPaths;
pub(crate) use prediction::{Learnt, Parsed, Prediction};
pub(crate) use table::ConnTable;
pub use table::{FlowSink, FlowState};

/// One TCP connection, DDP Stream Session or SCTP association and what it is for, in whole cache lines.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Conn {
    /// TCP's name for it, or one behind those that TCP has.
    pub id: ConnId,
    pub kind: ConnKind,
    pub tuple: FourTuple,
    /// How frames get to the peer, at this address of its. A session's: how they did when it began.
    pub path: Path,
    /// Its further addresses, if it has any.
    others: Option<Box<FurtherPaths>>,
    /// The port that its frames came from last.
    port: u32,
    /// Both sides send timestamps.
    pub timestamps: bool,
    /// What came and is not consumed.
    pub inbound: Inbound,
    /// What its next segments are likely to say, in RDMA mode.
    pub prediction: Option<Box<Prediction>>,
    /// Bytes that came before others ahead of them.
    pub bytes_out_of_order: u64,
    pub phase: Phase,
    /// When this phase times out.
    pub deadline: Option<Instant>,
    /// We opened it with a Ready-to-Receive indication and may have to repeat that. Not for long: so it is elsewhere.
    pub unheard: Option<Box<Unheard>>,
    /// Its flow was entered in [`FlowSink`] with this state.
    pub entered: Option<FlowState>,
    /// Its queue pair is joined by number: what it sends completes when the peer has acknowledged it.
    pub joined: bool,
    /// It is in the shard's ready list.
    pub ready: bool,
    /// FIN was asked of TCP.
    pub closing: bool,
    /// The peer's FIN came before ours was asked of TCP.
    pub peer_closed_first: bool,
    /// When its end must have come, since it was asked for.
    pub close_by: Option<Instant>,
    /// Why it is being ended, when that is known before TCP is done.
    pub ending: Option<DisconnectReason>,
}

/// The receive path reads a connection's state in five cache lines at most. A new field must fit.
const _: () = assert!(size_of::<Option<Conn>>() <= 5 * 64);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnKind {
    /// A TCP connection: it carries its DDP stream, and has the way to the peer.
    Tcp,
    /// An SCTP association, which carries sessions and has the ways to the peer. It is in [`Phase::Over`] all its
    /// life: who is interested has its sessions.
    Association,
    /// A DDP Stream Session, which an association carries.
    Session,
}

/// A responder that was not heard since its MPA Reply.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unheard {
    /// Where its Reply ended in the stream.
    pub reply_end: u64,
    /// Times that our Ready-to-Receive indication was repeated.
    pub retries: usize,
}

/// The active side of a start-up.
#[derive(Debug)]
pub(crate) enum Asking {
    Mpa {
        /// So far.
        initiator: Box<Initiator>,
        /// What to ask if the peer rejects and it may be for the Markers.
        unmarked: Option<Box<Initiator>>,
    },
    /// That of a DDP Stream Session, which has it.
    Session,
}

/// The passive side of a start-up.
#[derive(Debug)]
pub(crate) enum Asked {
    /// MPA's so far.
    Mpa(Box<Responder>),
    /// That of a DDP Stream Session, which has it.
    Session,
}

/// The stages of a connection's life.
#[derive(Debug)]
pub(crate) enum Phase {
    /// Active: the handshake of TCP or SCTP, then our MPA Request or DDP Stream Session Initiate is out.
    Requesting {
        qp: QpNum,
        /// The start-up so far.
        asking: Asking,
        /// When we were told to open it.
        opened: Instant,
    },
    /// Passive: the TCP handshake isn't complete.
    HalfOpen,
    /// Passive: the MPA Request or the Initiate is awaited.
    AwaitRequest {
        listener: ListenerId,
        /// The start-up so far.
        asked: Asked,
        /// When the whole Request must have come.
        whole_by: Instant,
    },
    /// Passive: the application is to accept or reject.
    Requested {
        /// Who listens, or did.
        listener: ListenerId,
        client: ClientId,
        request: ConnRequestId,
        /// The start-up so far.
        asked: Asked,
    },
    /// Full Operation: FPDUs.
    Rdma { qp: QpNum },
    /// Nobody above is interested any more: TCP is closing down or stands in TIME-WAIT. Or it is an association.
    Over,
}

impl Conn {
    pub fn new(
        id: ConnId,
        tuple: FourTuple,
        path: Path,
        port: usize,
        window: u32,
        phase: Phase,
    ) -> Self {
        Self {
            id,
            kind: ConnKind::Tcp,
            tuple,
            path,
            others: None,
            port: port as u32,
            timestamps: false,
            // TCP has room for two segments in any case.
            inbound: Inbound::new(window.max(2 * u32::from(path.mss(tuple.remote.addr)))),
            prediction: None,
            bytes_out_of_order: 0,
            phase,
            deadline: None,
            unheard: None,
            entered: None,
            joined: false,
            ready: false,
            closing: false,
            close_by: None,
            ending: None,
            peer_closed_first: false,
        }
    }

    /// An association at its beginning.
    pub fn association(id: ConnId, (tuple, path, port): (FourTuple, Path, usize)) -> Self {
        Self {
            kind: ConnKind::Association,
            ..Self::new(id, tuple, path, port, 0, Phase::Over)
        }
    }

    pub fn session(
        id: ConnId,
        (tuple, path, port): (FourTuple, Path, usize),
        phase: Phase,
    ) -> Self {
        Self {
            kind: ConnKind::Session,
            ..Self::new(id, tuple, path, port, 0, phase)
        }
    }

    /// Whether frames of its own go to the peer: a session's are its association's.
    pub fn has_path(&self) -> bool {
        self.kind != ConnKind::Session
    }

    pub fn transport(&self) -> Transport {
        match self.kind {
            ConnKind::Tcp => Transport::Tcp,
            ConnKind::Association | ConnKind::Session => Transport::Sctp,
        }
    }

    /// The port that its frames came from last.
    pub const fn port(&self) -> usize {
        self.port as usize
    }

    /// A frame came from this port, of the few that a shard has.
    pub fn came_from(&mut self, port: usize) {
        self.port = port as u32;
    }

    /// Bytes of all headers in front of a segment's payload.
    pub fn header_room(&self) -> usize {
        let options = if self.timestamps { TIMESTAMPS_LEN } else { 0 };
        self.path.headers_len(self.tuple.remote.addr) + TCP_HEADER + options
    }

    /// An MPA Request or Reply, or a session's, is what it waits for, and then for us: nothing longer may come.
    pub fn is_starting(&self) -> bool {
        matches!(
            self.phase,
            Phase::Requesting { .. } | Phase::AwaitRequest { .. } | Phase::Requested { .. }
        )
    }

    /// The queue pair that it serves or is to serve.
    pub fn qp(&self) -> Option<QpNum> {
        match self.phase {
            Phase::Requesting { qp, .. } | Phase::Rdma { qp } => Some(qp),
            _ => None,
        }
    }
}
