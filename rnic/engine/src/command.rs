//! What the control side asks of a shard, and what a shard tells it.
//!
//! The Privileged Resource Manager has checked every command before it arrives here. The shard trusts the
//! names and rights in a command, but nothing that a client or a peer can write later.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use rnic_ipc::capture::Filter;
use rnic_ipc::control::{
    Access, ConnectSpec, DisconnectReason, Event, ListenSpec, MpaOptions, QpAttributes, QpState,
    ReceiveWait, RefusalCode, RegionSpec, StagKind, Transport,
};
use rnic_ipc::id::{ClientId, ConnRequestId, CqId, ListenerId, PdId, QpNum, SrqId};
use rnic_ipc::ring::{CqProducer, DoorbellConsumer, WorkQueueConsumer};
use rnic_net::{
    IcmpReport, IpsecPolicies, ListOwner, Path, PathDefaults, PeerRules, RejectedPaths,
};
use rnic_proto::Stag;
use rnic_xsk::InternalEnd;
use userspace_tcp::KeepAlive;

use crate::capture::Capture;
use crate::qp::Qp;
use crate::region::RegionMemory;
pub use crate::shard::MovedRequest;
use crate::stag::StagWord;

mod answer;

pub use answer::{Answer, CommandError, PathInUse, QpStatus, ShardMetrics};

/// How long a shard waits for peers and programs, as in [`crate::shard::ShardConfig`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Timeouts {
    /// How long a peer may acknowledge nothing.
    pub user_timeout: Duration,
    /// When idle peers are asked whether they are still there; of connections that begin from now on.
    pub keepalive: Option<KeepAlive>,
    /// How long an initiator may say nothing.
    pub first_byte_timeout: Duration,
    /// How long a program may take to accept or reject a request.
    pub answer_timeout: Duration,
    /// How long a Send waits for a receive; of queue pairs that are made from now on, if they don't say.
    pub receive_wait: ReceiveWait,
}

/// A request to a shard. Each is answered before the next is read.
#[derive(Debug)]
pub enum Command {
    /// Other timeouts from now on: those that run keep their length.
    SetTimeouts(Timeouts),
    /// A client appeared; its doorbells are polled from now on.
    AddClient {
        client: ClientId,
        /// The engine's end of its doorbell ring.
        doorbells: DoorbellConsumer,
    },
    /// All of the client's objects are gone already.
    RemoveClient { client: ClientId },
    /// Makes an STag valid.
    AddRegion {
        stag: Stag,
        /// As it was granted. `memory` has as many bytes.
        spec: RegionSpec,
        /// The bytes.
        memory: RegionMemory,
        /// What it has in common with the same STag in other shards, if there are any.
        word: Option<StagWord>,
    },
    /// An STag without memory, which work makes valid.
    AddStag {
        /// Its name; the key changes when it is made valid.
        stag: Stag,
        /// The protection domain it belongs to.
        pd: PdId,
        kind: StagKind,
        /// What it has in common with the same STag in other shards, if there are any.
        word: Option<StagWord>,
    },
    /// Revokes an STag. After the answer no byte of its memory is touched.
    RemoveRegion { stag: Stag },
    AddCq {
        client: ClientId,
        cq: CqId,
        ring: CqProducer,
        /// A socket to which one byte is sent, without blocking, when an armed CQ gets a
        /// completion. All shards have the same one.
        notify: Arc<OwnedFd>,
    },
    /// Another ring for a completion queue that has not failed. Where other shards have rings of it too, whoever
    /// waits for its completions is woken.
    ReplaceCqRing { cq: CqId, ring: CqProducer },
    /// A completion queue takes nothing any more in another shard: nor does it here.
    FailCq { cq: CqId },
    /// No queue pair uses it any more.
    RemoveCq { cq: CqId },
    /// A new shared receive queue.
    AddSrq {
        client: ClientId,
        srq: SrqId,
        /// Elements that a receive may have.
        max_sge: u32,
        ring: WorkQueueConsumer,
    },
    /// Tell once, by [`Event::SrqLimit`], when fewer than `limit` receives wait.
    ArmSrq {
        srq: SrqId,
        /// Receives; 0 for no telling.
        limit: u32,
    },
    /// No queue pair takes from it any more.
    RemoveSrq { srq: SrqId },
    /// A new queue pair, Idle.
    AddQp {
        client: ClientId,
        qp: QpNum,
        /// As the client asked, checked.
        attributes: QpAttributes,
        /// The engine's end of the send queue.
        sq: WorkQueueConsumer,
        /// The engine's end of the receive queue.
        rq: WorkQueueConsumer,
    },
    /// Resets its connection if there is one; nothing of the client's memory is touched for it
    /// after the answer. No event tells of the connection's end.
    RemoveQp { qp: QpNum },
    /// A queue pair of another shard is a stream of this domain too.
    AddStream { pd: PdId, qp: QpNum },
    /// That queue pair is gone.
    RemoveStream { pd: PdId, qp: QpNum },
    /// Takes a waiting request away, for another shard of the same interface; answered by [`Answer::Request`].
    TakeRequest {
        request: ConnRequestId,
        /// The number of that shard.
        to: u8,
    },
    /// Takes a request in that another shard had. When that can't be, its peer is reset.
    PutRequest(Box<MovedRequest>),
    /// Takes an Idle queue pair away, with what was posted to it, for another shard; answered by [`Answer::Qp`].
    TakeQp { qp: QpNum },
    /// Adds a queue pair that another shard had.
    PutQp(Box<Qp>),
    /// The state of a queue pair; answered by [`Answer::QpState`].
    QueryQp { qp: QpNum },
    /// Accept connections to `local`.
    Listen {
        /// Who is notified of requests.
        client: ClientId,
        listener: ListenerId,
        /// Where, with the port that was taken. Most of its backlog are between the handshake of TCP and accept or
        /// reject.
        spec: ListenSpec,
        peers: PeerRules,
    },
    /// What the host lets nobody send in clear over the interface, from now on. Connections that may not go on end with
    /// [`DisconnectReason::HostPolicy`], and their peers are not told.
    SetIpsecPolicies(IpsecPolicies),
    /// Between which addresses the host's routes and rules let nothing go over the interface, from now on. Connections
    /// between them end with [`DisconnectReason::HostPolicy`], and their peers are not told. They end in steps: answered
    /// by [`Answer::Rejected`].
    SetRejectedPaths(RejectedPaths),
    /// Other peers may connect to a listener from now on. Connections that have begun go on.
    SetPeerRules {
        listener: ListenerId,
        peers: PeerRules,
    },
    /// Peers that have not asked whole are reset. Requests of which the client was told are answered as before.
    Unlisten { listener: ListenerId },
    /// Open a connection for an Idle queue pair.
    Connect {
        qp: QpNum,
        /// As it was asked for. Without a local port of its own, an association of the same client to the peer may be
        /// used over SCTP, from whatever port it goes. `local` is then free again by a [`ShardEvent::Released`] as soon
        /// as it is certain not to be needed.
        spec: ConnectSpec,
        /// Our address and port.
        local: SocketAddr,
        path: Path,
        /// The internal link that they go over, counted from 0. None: they go over the interface, or the
        /// loopback when the path is one.
        internal_link: Option<usize>,
        /// What holds for further addresses of the peer, which it may have over SCTP. The first was judged by them.
        peers: PeerRules,
    },
    /// An Idle queue pair is to be joined, or not any more. As long as it is, an attempt to connect it that fails leaves
    /// it Idle with all that is posted, and is told by [`JoinEvent`]; Sends of its peer wait for receives.
    SetJoined {
        qp: QpNum,
        /// What the responder has to answer as its private data if this side connects; none ends the join.
        reply: Option<Box<[u8]>>,
    },
    /// Take a waiting request with an Idle queue pair.
    Accept {
        request: ConnRequestId,
        qp: QpNum,
        /// Our limits.
        mpa: MpaOptions,
        /// For the peer's application.
        private_data: Vec<u8>,
    },
    /// Between whom a waiting request asks for a connection; answered by [`Answer::RequestEnds`].
    QueryRequest { request: ConnRequestId },
    /// Refuse a waiting request.
    Reject {
        request: ConnRequestId,
        /// For the peer's application.
        private_data: Vec<u8>,
    },
    /// Refuse a waiting request that no application sees: a limit stands against it. A session is refused by a
    /// Terminate (RFC 5043 section 6.4).
    Refuse { request: ConnRequestId },
    /// End a queue pair's connection. Ends in [`Event::Disconnected`], or in
    /// [`Event::ConnectFailed`] when it was not established yet.
    Disconnect {
        qp: QpNum,
        /// RST at once, instead of FIN after what was posted.
        abort: bool,
    },
    /// Change a queue pair's state, where [`Request::ModifyQp`](rnic_ipc::control::Request::ModifyQp)
    /// lets a client do that.
    ModifyQp {
        qp: QpNum,
        /// The state that it is to be in.
        state: QpState,
    },
    /// What a queue pair's peer may do, of what STags allow it.
    SetPeerAccess { qp: QpNum, access: Access },
    /// ICMP errors that quote segments which this shard may have sent. Anybody can forge them, so TCP judges
    /// whether the segment was sent and what to believe.
    IcmpErrors {
        /// What was received, in order; a bounded number.
        reports: Vec<IcmpReport>,
    },
    /// Answered by [`Answer::Paths`].
    QueryPaths,
    /// Frames to a peer go another way from now on.
    MovePath {
        /// Our address, of the connections that are meant.
        local: IpAddr,
        remote: IpAddr,
        /// The way, for connections with the same VLAN tag, or without one like it. Others keep
        /// theirs: it came with the peer's frames, and no route is about it.
        path: Path,
    },
    /// What the paths of passive connections begin with from now on.
    SetPathDefaults(PathDefaults),
    /// Frames leave by these of the interface's ports from now on, which are its members' where it is a bond. Frames
    /// are taken from all.
    SetExits {
        /// Whether each carries frames, in the order in which the shard was given them. Where none does, all count as
        /// if they did.
        carry: Vec<bool>,
    },
    /// No frame comes or goes any more: all connections end with
    /// [`DisconnectReason::InterfaceGone`].
    InterfaceGone {
        /// Its name, for people.
        interface: String,
    },
    /// An address is the interface's no more: connections from it over the interface end with
    /// [`DisconnectReason::AddressGone`].
    AddressGone { address: IpAddr },
    /// The broadcast addresses of the interface's subnets, in place of those before. What names one of them as its
    /// source or destination is dropped (RFC 9293 section 3.9.2.3).
    SetBroadcasts(Vec<Ipv4Addr>),
    /// An internal link ends here from now on; answered by [`Answer::InternalLink`].
    SetInternalLink {
        /// Its number: of one whose other end is gone, of which it takes the place, or as many as there are.
        link: usize,
        end: InternalEnd,
    },
    /// Some connections, from a cursor on; answered by [`Answer::Connections`].
    InspectConnections {
        /// 0, or what the last answer said.
        after: u32,
    },
    /// These queue pairs; answered by [`Answer::QueuePairs`].
    InspectQueuePairs {
        /// A bounded number.
        qps: Vec<QpNum>,
    },
    /// These STags; answered by [`Answer::Stags`].
    InspectStags {
        /// A bounded number.
        stags: Vec<Stag>,
    },
    /// Reset a connection, if it is still the one that is meant.
    DropConnection {
        connection: u32,
        /// Its ends, ours first.
        ends: (SocketAddr, SocketAddr),
        /// Whose it is to be; `None` for nobody's.
        owner: Option<ClientId>,
    },
    /// Answered by [`Answer::Counters`].
    QueryCounters,
    /// Answered by [`Answer::Metrics`].
    QueryMetrics,
    /// Show frames to a capture.
    AddCapture {
        number: u32,
        filter: Filter,
        /// Where they go.
        sink: Box<dyn Capture>,
    },
    /// Show it none any more; answered by [`Answer::Capture`].
    RemoveCapture { number: u32 },
}

/// What of the host forbids segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForbiddenBy {
    /// [Policies](IpsecPolicies) that don't let them go in clear.
    Ipsec,
    /// [Routes or rules](RejectedPaths) that reject them.
    Routes,
}

/// What becomes of a queue pair that is joined, for the owner of the join. Its client is told of the first and the last
/// as of any connection.
#[derive(Clone, Debug, PartialEq)]
pub enum JoinEvent {
    /// It is connected.
    Established,
    /// An attempt to connect it failed. It is Idle again.
    Failed {
        /// For people.
        message: String,
    },
    /// Its connection is gone.
    Ended,
}

/// What a shard tells without being asked.
#[derive(Debug)]
pub enum ShardEvent {
    Client {
        client: ClientId,
        event: Event,
    },
    /// What becomes of a queue pair that [is joined](Command::SetJoined).
    Join {
        qp: QpNum,
        event: JoinEvent,
    },
    /// A connection request went away before it was accepted or rejected.
    RequestGone {
        request: ConnRequestId,
        reason: DisconnectReason,
    },
    /// No listener and no connection of this shard uses this address and port any more: its
    /// steering entry and the kernel's reservation may go. A command given since may use it again.
    Released {
        /// The port is one of this protocol's.
        transport: Transport,
        local: SocketAddr,
    },
    /// A peer has not answered for three retransmission timeouts (R1 of RFC 9293 section 3.8.3), or a path to it has
    /// become inactive (RFC 9260 section 8.2): the way there may be another by now. Or the peer has told of an address
    /// to which no way is known.
    PathDoubtful {
        local: IpAddr,
        remote: IpAddr,
    },
    /// Peers wanted to connect to a listener, and an allow-list does not have them. Not more than a few of them
    /// are reported in a second.
    PeerRefused {
        client: ClientId,
        listener: ListenerId,
        local: SocketAddr,
        remote: SocketAddr,
        /// The list that does not have it.
        list: ListOwner,
        /// Segments of refused peers since the last such event that were not reported.
        untold: u64,
    },
    /// A region's memory is gone: its owner unmapped it, or the host could not give it back. The stream that
    /// found out has ended, and nobody has any right to the region.
    RegionFault {
        client: ClientId,
        stag: Stag,
    },
    /// A segment of no connection was dropped because the host forbids it, or an answer to it. Not more than a few of
    /// them are reported in a second.
    HostPolicyDropped {
        /// Where it came to.
        local: SocketAddr,
        /// Where it came from.
        remote: SocketAddr,
        /// What of the host does.
        by: ForbiddenBy,
        /// The policy, route or rule, for people.
        rule: String,
        /// Such segments since the last such event that were not reported.
        untold: u64,
    },
    /// Streams of a peer ended by invalid STags so often that its next connection to the client has to wait. Not
    /// more than a few of them are reported in a second.
    GuessesPaused {
        client: ClientId,
        remote: IpAddr,
        streams: u32,
        /// How long it has to wait.
        pause: Duration,
        /// Such events since the last one that were not reported.
        untold: u64,
    },
    /// A client broke the rules of its rings, or took their memory away: its objects are to be taken away.
    ClientFault {
        client: ClientId,
        code: RefusalCode,
        message: String,
    },
}
