//! Looking at the RNIC's objects, and an operator's orders: what `rnicctl` asks.
//!
//! Objects come in [`Page`]s, each within one control message, by a cursor that only grows. Whose
//! objects a client may see, and whether it may give orders, the Privileged Resource Manager says.
//! No STag's key is ever in a page (RFC 5042 section 6.1.1): an index without its key names nothing.

use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};

use crate::control::{Access, CONTROL_MESSAGE_MAX, MemoryKind, QpState, Transport};
use crate::id::{ClientId, CqId, ListenerId, PdId, QpNum, SrqId};

#[cfg(test)]
mod tests;

/// Bytes of a message that the page's frame takes, at most.
const FRAME: usize = 32;

/// A kind of objects that can be looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Kind {
    /// [`ClientInfo`].
    Clients,
    /// [`ConnectionInfo`].
    Connections,
    /// [`QpInfo`].
    QueuePairs,
    /// [`CqInfo`].
    CompletionQueues,
    /// [`RegionInfo`].
    Regions,
    /// [`ListenerInfo`].
    Listeners,
    /// [`LimitInfo`].
    Limits,
}

/// Some objects of one kind, in the order of their numbers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Page {
    /// What was found. It may be empty although more follow.
    pub objects: Vec<Object>,
    /// What to ask for next; none at the end. Always greater than what was asked for.
    pub next: Option<u32>,
}

impl Page {
    /// As many of `objects`, each with its number, as fit a control message. `next` continues after
    /// them.
    pub fn of(objects: impl IntoIterator<Item = (u32, Object)>, next: Option<u32>) -> Self {
        let mut page = Self {
            objects: Vec::new(),
            next,
        };
        let mut room = CONTROL_MESSAGE_MAX - FRAME;
        let mut last = None;
        for (number, object) in objects {
            let bytes = postcard::to_stdvec(&object).map_or(usize::MAX, |bytes| bytes.len());
            match room.checked_sub(bytes) {
                Some(left) => room = left,
                None if last.is_some() => {
                    page.next = last;
                    break;
                }
                // Alone too long for a message: nothing that we make is, but no cursor may stand still.
                None => continue,
            }
            page.objects.push(object);
            last = Some(number);
        }
        page
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Object {
    /// Of [`Kind::Clients`].
    Client(ClientInfo),
    /// Of [`Kind::Connections`].
    Connection(ConnectionInfo),
    /// Of [`Kind::QueuePairs`].
    QueuePair(QpInfo),
    /// Of [`Kind::CompletionQueues`].
    CompletionQueue(CqInfo),
    /// Of [`Kind::Regions`].
    Region(RegionInfo),
    /// Of [`Kind::Listeners`].
    Listener(ListenerInfo),
    /// Of [`Kind::Limits`].
    Limit(LimitInfo),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientInfo {
    pub client: ClientId,
    /// Its process when it connected; 0 when the daemon's PID namespace does not see it.
    pub pid: u32,
    /// Its effective user then.
    pub uid: u32,
    /// Its effective group then.
    pub gid: u32,
    /// The name of its program then, for people; empty when it is not known.
    pub program: String,
    pub holds: Vec<Holding>,
    /// Requests of it that were refused.
    pub refused: u64,
}

/// How much of something is held, and may be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holding {
    /// The limit's name.
    pub name: String,
    /// How much of it is held.
    pub held: u64,
    /// How much of it may be.
    pub limit: u64,
}

/// A connection over TCP or SCTP.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ConnectionInfo {
    /// Its number; another connection may have it later.
    pub connection: u32,
    /// Whose; none before it is somebody's and in TIME-WAIT.
    pub client: Option<ClientId>,
    /// The queue pair that it serves.
    pub qp: Option<QpNum>,
    /// Our end.
    pub local: SocketAddr,
    /// The peer's end.
    pub remote: SocketAddr,
    /// What DDP goes over.
    pub transport: Transport,
    /// What it is for at present.
    pub stage: Stage,
    /// TCP's state (RFC 9293 section 3.3.2), or that of the SCTP association (RFC 9260 section 4).
    pub state: String,
    /// Smoothed round trip time in microseconds; none before the first measurement.
    pub rtt_us: Option<u64>,
    /// Its mean deviation in microseconds.
    pub rtt_deviation_us: u64,
    /// Payload bytes of a full segment, or of the longest message that SCTP sends in one packet.
    pub mss: u32,
    /// Congestion window in bytes.
    pub cwnd: u64,
    /// Bytes believed to be in the network.
    pub in_flight: u64,
    /// Payload bytes received for the first time; over SCTP those of user data.
    pub bytes_in: u64,
    /// Payload bytes sent for the first time.
    pub bytes_out: u64,
    /// Segments, or DATA chunks, sent again.
    pub retransmits: u64,
    /// Retransmission timeouts.
    pub timeouts: u64,
    /// Bytes that came before others ahead of them.
    pub bytes_out_of_order: u64,
    /// The peer's UDP port, where SCTP is in UDP (RFC 6951).
    pub udp_port: Option<u16>,
    /// All addresses of the peer, the primary one first; over SCTP only.
    pub peer_addresses: Vec<PeerAddress>,
}

/// An address of a peer over SCTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerAddress {
    pub address: IpAddr,
    /// What is known of it.
    pub state: AddressState,
}

/// The states of a peer's address (RFC 9260 sections 5.4 and 8.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AddressState {
    /// The peer has not answered there yet: it gets heartbeats only.
    Unconfirmed,
    /// Data may go there.
    Active,
    /// The peer has not answered there for too long.
    Inactive,
}

/// The stages of a connection's life (RFC 5044 section 7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Ours: until the MPA Reply.
    Requesting,
    /// The peer's: the TCP handshake isn't complete.
    HalfOpen,
    /// The peer's: its MPA Request is awaited.
    AwaitingRequest,
    /// The peer's: our application is to accept or reject.
    Requested,
    /// Full Operation.
    Rdma,
    /// TCP is closing down or stands in TIME-WAIT.
    Over,
}

impl Stage {
    /// As people read it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Requesting => "requesting",
            Self::HalfOpen => "half open",
            Self::AwaitingRequest => "awaiting request",
            Self::Requested => "requested",
            Self::Rdma => "RDMA",
            Self::Over => "over",
        }
    }
}

/// A queue pair.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QpInfo {
    /// Its number.
    pub qp: QpNum,
    pub client: ClientId,
    pub state: QpState,
    /// Its protection domain.
    pub pd: PdId,
    /// Where its sends complete.
    pub send_cq: CqId,
    /// Where its receives complete.
    pub recv_cq: CqId,
    /// Where its receives come from, when not from a queue of its own.
    pub srq: Option<SrqId>,
    /// Work requests that its send queue holds.
    pub sq_depth: u32,
    /// Receives that its own receive queue holds; 0 with `srq`.
    pub rq_depth: u32,
    /// Its connection's ends, ours first.
    pub connection: Option<(SocketAddr, SocketAddr)>,
    /// Bytes that wait with a Send for which no receive is posted; none if none waits.
    pub held: Option<u64>,
}

/// A completion queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CqInfo {
    pub cq: CqId,
    pub client: ClientId,
    /// Entries.
    pub depth: u32,
    /// Queues of queue pairs that complete to it.
    pub users: u32,
}

/// A memory region or window. Its STag's index, never its key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegionInfo {
    /// The upper 24 bits of its STag.
    pub index: u32,
    pub client: ClientId,
    /// Its protection domain.
    pub pd: PdId,
    /// It is a memory window.
    pub window: bool,
    /// How the RNIC reaches its memory.
    pub memory: MemoryKind,
    /// It can be used: not invalidated, and bound if it is a window.
    pub valid: bool,
    /// The only queue pair whose stream may use it; without one all of its protection domain may.
    pub qp: Option<QpNum>,
    pub access: Access,
    /// Its length in bytes; 0 for a window that is not bound.
    pub bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListenerInfo {
    pub listener: ListenerId,
    pub client: ClientId,
    /// What DDP goes over.
    pub transport: Transport,
    /// Where it listens.
    pub local: SocketAddr,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitInfo {
    /// What it bounds.
    pub scope: Scope,
    pub name: String,
    /// How much is held, where that is one number and the asker's to know.
    pub held: Option<u64>,
    /// How much may be held.
    pub limit: u64,
}

/// What a limit bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// All clients together.
    Device,
    /// All clients of the asking client's user together.
    User,
    Client,
    Object,
}

/// What an operator orders.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Order {
    /// Takes a client away with all that it has: of one's own user, or of any for an administrator.
    DropClient { client: ClientId },
    /// Resets a connection that one may see.
    DropConnection {
        /// Its number.
        connection: u32,
        /// Its ends, ours first: another may have its number meanwhile.
        ends: (SocketAddr, SocketAddr),
    },
    /// Logs more or less from now on; for administrators.
    SetLogLevel(LogLevel),
}

/// What an administrator orders of the daemon itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DaemonOrder {
    /// Reads the configuration file again, of a daemon that was started with one. All of it takes effect, or
    /// nothing.
    Reload {
        /// Interfaces with settings that hold from their opening on are opened again where these differ. Else
        /// such a difference is a fault.
        reopen: bool,
    },
    /// Opens an interface again, with its present MTU and queues. Its connections end.
    Reopen {
        /// The interface's name.
        interface: String,
    },
}

/// How much is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum LogLevel {
    Off,
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}
