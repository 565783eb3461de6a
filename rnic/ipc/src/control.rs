//! Control messages between a client and the Privileged Resource Manager.
//!
//! One datagram is one message. A client sends [`Request`]s and gets one [`Reply`] for each, in
//! order; [`Event`]s come on a socket of their own. Embedded mode passes the same values without a
//! socket, so that no request goes round the PRM. File descriptors travel beside a message; each
//! variant says which.

use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};

use crate::capture::Filter;
use crate::id::{ClientId, ConnRequestId, CqId, ListenerId, PdId, QpNum, SrqId};
use crate::inspect::{DaemonOrder, Kind, Order, Page};
use crate::work::{INLINE_PER_SGE, OPERAND_PLACES};

mod connection;
mod device;
mod join;
mod memory;
mod mpa;
mod receive_wait;
#[cfg(test)]
mod tests;
mod transport;

pub use connection::{ConnectSpec, ListenSpec};
pub use device::{ClientLimits, DeviceInfo, DeviceName};
pub use join::{JOIN_PORT, JOIN_SLOTS, JoinEnd, JoinNumbers, JoinSpec};
pub use memory::{Access, MemoryKind, RegionSpec, StagKind};
pub use mpa::{MarkerUse, MpaOptions, PeerDepths, RtrModes};
pub use receive_wait::{ParseReceiveWaitError, RECEIVE_WAIT_MAX, ReceiveWait};
pub use transport::Transport;

/// Version of the control messages and of the shared-memory layouts. Both ends must agree. It is
/// raised with each change of either; `tests/layout.rs` of this crate sees to that.
pub const PROTOCOL_VERSION: u32 = 33;

/// The most shards of an RNIC.
pub const SHARDS_MAX: usize = 64;

/// The longest private data that one side may give, in bytes (RFC 5044 section 7.1.1).
pub const PRIVATE_DATA_MAX: usize = 512;

/// The longest encoded control message, in bytes.
pub const CONTROL_MESSAGE_MAX: usize = 4096;

/// The most addresses of an interface that a [`DeviceInfo`] tells, so that it fits a message.
pub const ADDRESSES_MAX: usize = 128;

/// What a client asks for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Request {
    /// The first message, but for those that are of the whole RNIC: [`Request::ListDevices`],
    /// [`Request::ListInterfaces`], [`Request::OpenDevice`] and [`Request::Administer`]. Reply: [`Response::Welcome`] with the event socket, the memory of the
    /// doorbell rings, and a [kick](crate::kick::Kick) for each shard, in this order.
    Hello {
        /// The client's [`PROTOCOL_VERSION`].
        version: u32,
    },
    /// Reply: [`Response::Device`].
    QueryDevice,
    /// Reply: [`Response::Pd`].
    AllocPd,
    /// Fails while the PD has regions, memory windows, shared receive queues or queue pairs. Reply:
    /// [`Response::Done`].
    DeallocPd { pd: PdId },
    /// Whether a region of so many bytes would be within the limits now. Nothing is granted: a client
    /// asks before it takes pages for a large one. Reply: [`Response::Done`].
    MayRegister {
        /// The region's protection domain.
        pd: PdId,
        /// Its length in bytes, at least 1.
        length: u64,
    },
    /// Registers memory, of which [`RegionSpec::memory`] says how the RNIC reaches it: [`MemoryKind::Memfd`],
    /// [`MemoryKind::Adopted`] or [`MemoryKind::Remote`]. Comes with one descriptor, of that kind. Reply:
    /// [`Response::Region`].
    RegisterMemory(RegionSpec),
    /// An STag without memory, which work makes valid. It goes by [`Request::DeregisterMemory`].
    /// Reply: [`Response::Region`].
    AllocStag {
        /// The STag's protection domain.
        pd: PdId,
        kind: StagKind,
    },
    /// When the reply comes, no byte of the region changes any more, through nothing that was bound
    /// to it either (RFC 5041 section 8.3.1). Reply: [`Response::Done`].
    DeregisterMemory {
        /// As it was given, whatever keys it had since.
        stag: u32,
    },
    /// Reply: [`Response::Cq`] with two descriptors: the memory of its rings, the notification socket.
    CreateCq {
        /// Least number of entries; rounded up to a power of two.
        depth: u32,
    },
    /// Rings of more entries in place of those that a completion queue has. Completions go into the
    /// new ones from then on; those in the old ones stay there. An armed queue is armed in the new ones.
    /// Reply: [`Response::Cq`] with one descriptor: the memory of the new rings.
    ResizeCq {
        cq: CqId,
        /// Least number of entries; rounded up to a power of two. No fewer than it has.
        depth: u32,
    },
    /// Fails while queue pairs use it. Reply: [`Response::Done`].
    DestroyCq { cq: CqId },
    /// Reply: [`Response::Srq`] with one descriptor: the queue's memory.
    CreateSrq {
        /// Protection domain of the queue and of the queue pairs that take from it.
        pd: PdId,
        /// Receives that may wait.
        depth: u32,
        /// Scatter/gather elements a receive may have.
        max_sge: u32,
    },
    /// Asks for one [`Event::SrqLimit`] when fewer receives wait than that: at once when that is so
    /// already. 0 takes the wish back. Reply: [`Response::Done`].
    ArmSrq {
        srq: SrqId,
        /// Receives.
        limit: u32,
    },
    /// Fails while queue pairs take from it. Reply: [`Response::Done`].
    DestroySrq { srq: SrqId },
    /// Reply: [`Response::Qp`] with one descriptor: the memory of both work queues.
    CreateQp(QpAttributes),
    /// Ends its connection abortively if there is one. Reply: [`Response::Done`].
    DestroyQp { qp: QpNum },
    /// Reply: [`Response::QpState`].
    QueryQp { qp: QpNum },
    /// Changes a queue pair's state, as the RDMA verbs for iWARP let a consumer do it:
    ///
    /// | from | to | what happens |
    /// |---|---|---|
    /// | `Rts` | `Closing` | as [`Request::Disconnect`] without `abort` |
    /// | `Rts` | `Terminate` | a Terminate is sent (RFC 5040 section 6.2.1), then the connection ends |
    /// | any | `Error` | the connection is reset if there is one; all work is flushed |
    /// | `Error` | `Idle` | the queue pair is as when it was made, and may connect again |
    ///
    /// Everything else is refused with [`RefusalCode::WrongState`]; `Rts` is reached by
    /// [`Request::Connect`] and [`Request::Accept`]. Reply: [`Response::Done`].
    ModifyQp {
        qp: QpNum,
        /// The state that it is to be in.
        state: QpState,
    },
    /// Reply: [`Response::Listening`]. Peers' requests come as [`Event::ConnectRequest`].
    Listen(ListenSpec),
    /// Reply: [`Response::Done`]. Requests that came as [`Event::ConnectRequest`] stay, and are to be answered.
    Unlisten {
        /// Which.
        listener: ListenerId,
    },
    /// Has the host look for the link address of the next hop to a peer, and does not wait for it. Reply:
    /// [`Response::Done`] when it is known, [`Response::Resolving`] when it is not yet: ask again. A next hop that is
    /// silent for too long is refused as unreachable.
    Resolve {
        /// An idle queue pair that is to connect.
        qp: QpNum,
        /// The peer.
        remote: SocketAddr,
        /// The local address, when the route's own choice isn't wanted.
        local: Option<IpAddr>,
        /// Milliseconds since the client asked for it first.
        waited_ms: u32,
    },
    /// Starts connecting; ends in [`Event::Established`], [`Event::Rejected`] or
    /// [`Event::ConnectFailed`]. Reply: [`Response::Connecting`].
    Connect {
        /// An idle queue pair.
        qp: QpNum,
        /// To whom, and how.
        spec: ConnectSpec,
    },
    /// Ends in [`Event::Established`] or [`Event::ConnectFailed`]. Reply: [`Response::Done`].
    Accept {
        /// From [`Event::ConnectRequest`].
        request: ConnRequestId,
        /// An idle queue pair.
        qp: QpNum,
        /// Our limits; the peer's come in the event.
        mpa: MpaOptions,
        /// As in `Connect`.
        private_data: Vec<u8>,
    },
    /// Reply: [`Response::Done`].
    Reject {
        /// From [`Event::ConnectRequest`].
        request: ConnRequestId,
        /// As in `Connect`.
        private_data: Vec<u8>,
    },
    /// How the numbers by which peers name queue pairs follow from theirs. Reply: [`Response::JoinNumbers`].
    QueryJoinNumbers,
    /// Joins an idle queue pair to that of a peer which joins its own to this one. Ends in [`Event::Established`],
    /// however long that takes; [`Request::Disconnect`] gives it up. Reply: [`Response::Connecting`], with the port at
    /// which requests to join are taken.
    Join { qp: QpNum, spec: JoinSpec },
    /// What a queue pair's peer may do, of what STags allow it; all at first, and after `Idle`. Reply:
    /// [`Response::Done`].
    SetPeerAccess {
        qp: QpNum,
        /// Of the rights of peers.
        access: Access,
    },
    /// Ends in [`Event::Disconnected`]. Reply: [`Response::Done`].
    Disconnect {
        qp: QpNum,
        /// RST at once, instead of FIN after what was posted.
        abort: bool,
    },
    /// Reply: [`Response::Counters`], a page of the device's counters in a fixed order.
    QueryCounters {
        /// Index of the first counter wanted.
        first: u32,
    },
    /// A look at objects of one kind that this client may see. Reply: [`Response::Inspected`].
    Inspect {
        what: Kind,
        /// Begin behind this cursor: 0, or [`Page::next`].
        after: u32,
    },
    /// An operator's order. Reply: [`Response::Done`].
    Order(Order),
    /// Begins a capture, for administrators; a client has one at a time. Reply:
    /// [`Response::Capture`] with one descriptor: the stream of [records](crate::capture).
    StartCapture(Filter),
    /// Ends it: what was captured is on the stream, and the last record. Without one there is
    /// nothing to do. Reply: [`Response::Done`].
    StopCapture,
    /// The devices that there are, one for each interface. Reply: [`Response::Devices`].
    ListDevices,
    /// The device that the client is to be one of; without this it is the first. Before
    /// [`Request::Hello`] only: all objects of a client are of one device. Reply: [`Response::Done`].
    OpenDevice(DeviceName),
    /// The interfaces of the RNIC, those among them that it waits for. Reply: [`Response::Interfaces`].
    ListInterfaces,
    /// An order about the RNIC itself, which may end any of its devices: before [`Request::Hello`] only, for
    /// administrators. Reply: [`Response::Done`] when it is carried out.
    Administer(DaemonOrder),
}

/// The result of a [`Request`].
pub type Reply = Result<Response, Refusal>;

/// The answer to a request that was granted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Response {
    /// To [`Request::Hello`].
    Welcome {
        /// Who the client is from now on.
        client: ClientId,
        /// Entries of each doorbell ring.
        doorbells: u32,
        /// Shards, from 1 to [`SHARDS_MAX`]: each has a doorbell ring, a kick, and a ring of each completion queue.
        shards: u8,
    },
    /// To [`Request::QueryDevice`].
    Device(DeviceInfo),
    /// To [`Request::AllocPd`].
    Pd(PdId),
    /// To [`Request::RegisterMemory`]: the STag, local and remote alike. To [`Request::AllocStag`]: one
    /// that means nothing to anybody until work makes it valid.
    Region {
        /// Index and key (RFC 5040 section 1.1).
        stag: u32,
    },
    /// To [`Request::CreateCq`] and [`Request::ResizeCq`].
    Cq {
        /// Its name.
        cq: CqId,
        /// Entries of each of its rings, a power of two.
        depth: u32,
    },
    /// To [`Request::CreateSrq`].
    Srq {
        /// Its name.
        srq: SrqId,
        /// Slots of its ring, a power of two.
        slots: u32,
    },
    /// To [`Request::CreateQp`].
    Qp {
        /// Its number.
        qp: QpNum,
        /// Slots of the send queue, a power of two.
        sq_slots: u32,
        /// Slots of the receive queue, a power of two.
        rq_slots: u32,
    },
    /// To [`Request::QueryQp`].
    QpState(QpState),
    /// To [`Request::Listen`].
    Listening {
        /// Its name.
        listener: ListenerId,
        /// The address with the port that was taken.
        local: SocketAddr,
    },
    /// To [`Request::Resolve`]: the neighbour has been asked, and has not answered yet.
    Resolving,
    /// To [`Request::Connect`].
    Connecting {
        /// Our address, and the port: that which was taken, or over SCTP that of an association which the client has
        /// to this peer.
        local: SocketAddr,
    },
    /// To [`Request::QueryJoinNumbers`].
    JoinNumbers(JoinNumbers),
    /// To [`Request::QueryCounters`]; an empty list is the end.
    Counters(Vec<(String, u64)>),
    /// To requests that have nothing to tell.
    Done,
    /// To [`Request::Inspect`].
    Inspected(Page),
    /// To [`Request::StartCapture`].
    Capture,
    /// To [`Request::ListDevices`]: the names of their interfaces, in the order of the daemon's
    /// configuration.
    Devices(Vec<String>),
    /// To [`Request::ListInterfaces`]: their names, each with why it is waited for if it is not open.
    Interfaces(Vec<(String, Option<String>)>),
}

/// A request that was refused, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    pub code: RefusalCode,
    /// For people: what was asked, what was found, what to do.
    pub message: String,
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Refusal {}

/// The kinds of refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum RefusalCode {
    /// The two ends speak different versions.
    Version,
    /// The message could not be decoded, or a field is outside its range.
    Malformed,
    /// No such object, or it belongs to another client.
    UnknownObject,
    /// The object is still used by another.
    Busy,
    /// The object is in a state that does not allow this.
    WrongState,
    /// A limit of the client or of the device is reached.
    Limit,
    /// The memory can't be registered: not a memfd, not sealed, too short.
    BadMemory,
    /// The two objects are of different protection domains.
    WrongPd,
    /// The address is not one of this interface.
    AddressNotLocal,
    /// The port is in use, here or in the kernel.
    PortInUse,
    /// There is no way to the peer: no route, another interface, no neighbour.
    Unreachable,
    /// The host or the kernel said no.
    Host,
    /// The RNIC is shutting down.
    ShuttingDown,
    /// Only an administrator may ask this; an allow-list does not have the peer; the port is not the user's.
    NotPermitted,
    /// The session is over: memory that the client shared could not be accessed any more.
    MemoryFault,
}

/// What [`Request::CreateQp`] asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QpAttributes {
    /// Protection domain of the queue pair.
    pub pd: PdId,
    /// Where send-queue completions go.
    pub send_cq: CqId,
    /// Where receive-queue completions go.
    pub recv_cq: CqId,
    /// Work requests that may be outstanding on the send queue.
    pub sq_depth: u32,
    /// Work requests that may be outstanding on the receive queue; not looked at with `srq`.
    pub rq_depth: u32,
    /// The queue of the same protection domain that its receives come from, instead of one of its
    /// own.
    pub srq: Option<SrqId>,
    /// Scatter/gather elements a work request may have.
    pub max_sge: u32,
    /// Bytes that a work request of the send queue may carry itself; 0 for none.
    pub max_inline: u32,
    /// Completions for every send-queue work request, not only the signalled ones.
    pub signal_all: bool,
    /// How long a Send of the peer waits for a receive; the interface's setting if none is given.
    pub receive_wait: Option<ReceiveWait>,
}

impl QpAttributes {
    /// Work requests that its own receive queue must hold.
    pub fn own_receives(&self) -> u32 {
        if self.srq.is_some() { 0 } else { self.rq_depth }
    }

    /// Places of elements that a work request of the send queue may need.
    pub fn send_places(&self) -> u32 {
        self.max_sge
            .max(self.max_inline.div_ceil(INLINE_PER_SGE as u32))
            .saturating_add(OPERAND_PLACES as u32)
    }
}

/// The states of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum QpState {
    /// No connection yet; receives may be posted.
    Idle,
    /// Connection set-up under way.
    Connecting,
    /// Ready to send: RDMA mode.
    Rts,
    /// A graceful disconnect is under way.
    Closing,
    /// A Terminate was sent or received; the stream is going down.
    Terminate,
    /// The connection is gone and all work was flushed.
    Error,
}

/// What happens without having been asked for at that moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Event {
    /// A peer sent an MPA request to a listener: accept or reject it.
    ConnectRequest {
        listener: ListenerId,
        /// To name in the answer.
        request: ConnRequestId,
        local: SocketAddr,
        remote: SocketAddr,
        /// What the peer asked; `ird` and `ord` are the peer's.
        mpa: MpaOptions,
        /// The peer's private data.
        private_data: Vec<u8>,
    },
    /// The queue pair is in RDMA mode.
    Established {
        qp: QpNum,
        /// What was agreed; `ird` and `ord` are ours now.
        mpa: MpaOptions,
        /// What the peer said itself; none when it spoke revision 1.
        peer: Option<PeerDepths>,
        /// The responder's private data; empty on the responder's side.
        private_data: Vec<u8>,
    },
    /// The peer rejected the connection; the queue pair is in Error.
    Rejected {
        qp: QpNum,
        /// What the peer said of its depths, which may be why; none when it spoke revision 1.
        peer: Option<PeerDepths>,
        /// The peer's private data.
        private_data: Vec<u8>,
    },
    /// The connection did not come about; the queue pair is in Error.
    ConnectFailed {
        qp: QpNum,
        reason: DisconnectReason,
        message: String,
    },
    /// The connection is gone; the queue pair is in Error and all its work is flushed.
    Disconnected {
        qp: QpNum,
        reason: DisconnectReason,
        message: String,
    },
    /// The CQ overflowed; its queue pairs are in Error.
    CqError { cq: CqId },
    /// Fewer receives wait than the limit it was armed with; it is disarmed.
    SrqLimit { srq: SrqId },
    /// The last event: the RNIC takes the client away, with all that it has.
    SessionEnded(Refusal),
    /// A request is gone: its peer went away, it was answered too late, or another took its place. There is no
    /// such event for a request that the client was not told of yet.
    RequestGone {
        listener: ListenerId,
        /// As [`Event::ConnectRequest`] named it.
        request: ConnRequestId,
    },
}

/// Why a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum DisconnectReason {
    /// Both sides closed.
    Graceful,
    /// The application asked for an abort.
    Aborted,
    /// The peer reset the TCP connection.
    Reset,
    /// Nobody listens there (RST to our SYN).
    Refused,
    /// The peer stopped answering.
    TimedOut,
    /// What came is not MPA, or MPA that we can't speak.
    NotMpa,
    /// The peer closed before or in the middle of a message.
    PeerClosed,
    /// We found an error in what the peer sent, and sent a Terminate.
    TerminateSent {
        /// Layer, error type and error code (RFC 5040 section 4.8), as the first 16 bits.
        control: u16,
    },
    /// The peer sent a Terminate.
    TerminateReceived { control: u16 },
    /// A work request of ours was at fault. A peer that could be told got a Terminate: RDMAP's local
    /// catastrophic error.
    LocalError,
    /// The RNIC is shutting down.
    ShuttingDown,
    /// The interface was taken away from the host.
    InterfaceGone,
    /// We found an error in what the peer sent where no Terminate may say so: in its first FPDU (RFC 5044
    /// section 7.1.2), or after our FIN. The connection was reset.
    PeerFault { control: u16 },
    /// Its local address was taken away from the interface.
    AddressGone,
    /// Over SCTP: what came is no DDP Stream Session (RFC 5043), or breaks the rules of SCTP.
    BadSession,
    /// A policy of the host forbids it by now. The peer was not told.
    HostPolicy,
}
