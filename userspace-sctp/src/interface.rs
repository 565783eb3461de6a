//! The values that go in and out of a [`crate::Stack`]: names, events, messages and packets.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use userspace_net::{Instant, UdpPorts};

/// Names an association of one [`crate::Stack`]. A name is never used again: after the association is gone every call
/// with it says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AssocId {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

impl AssocId {
    /// A small number that no other living association has: an index for the caller's own table. Compare the whole
    /// name before trusting an entry.
    pub const fn index(self) -> usize {
        self.index as usize
    }

    /// Tells it from those that had its place before.
    pub const fn generation(self) -> u32 {
        self.generation
    }
}

/// Both ends of an association, each an address and a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ends {
    pub local: SocketAddr,
    pub remote: SocketAddr,
}

impl fmt::Display for Ends {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} to {}", self.local, self.remote)
    }
}

/// The way of packets: both ends, and how they get there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Route {
    pub ends: Ends,
    /// The peer's UDP encapsulation port (RFC 6951); `None`: SCTP is right above IP.
    pub udp: Option<u16>,
}

impl From<Ends> for Route {
    fn from(ends: Ends) -> Self {
        Self { ends, udp: None }
    }
}

/// The states of RFC 9260 section 4.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// An INIT was sent.
    CookieWait,
    /// The State Cookie was sent back.
    CookieEchoed,
    /// Data goes both ways.
    Established,
    /// Closed by its user, with data that is not acknowledged.
    ShutdownPending,
    /// A SHUTDOWN was sent.
    ShutdownSent,
    /// The peer's SHUTDOWN came, and there is data that is not acknowledged.
    ShutdownReceived,
    /// A SHUTDOWN ACK was sent.
    ShutdownAckSent,
    /// Gone: [`crate::Stack::info`] never shows it.
    Closed,
}

/// What both sides agreed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Agreed {
    /// Both ends; the peer's is its first address.
    pub ends: Ends,
    /// Streams to send on: 0 up to this number.
    pub outbound_streams: u16,
    /// Streams that the peer sends on.
    pub inbound_streams: u16,
    /// The peer's Adaptation Layer Indication.
    pub adaptation: Option<u32>,
}

/// What happened to an association without being asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A peer set up an association with a listener. Always its first event.
    Incoming(Agreed),
    /// An association of [`crate::Stack::connect`] is established.
    Established(Agreed),
    /// The peer has restarted, and has lost all that it knew. Posted chunks are given back. TSNs, streams and
    /// congestion control start over.
    Restarted(Agreed),
    /// The path takes packets of another size, and [`crate::Stack::message_max`] with it. What was posted and is too
    /// long now goes as IP fragments.
    MtuChanged {
        /// Its new value.
        message_max: usize,
    },
    /// `Path.Max.Retrans` was exceeded: the peer does not answer at an address. The association goes on, at another
    /// address if there is one that answers.
    PathDown { remote: IpAddr },
    /// The peer has answered at another of its addresses for the first time: it is there (section 5.4), and data may go
    /// there.
    PathConfirmed { remote: IpAddr },
    /// The peer has answered there again.
    PathUp { remote: IpAddr },
    /// The peer has closed: it sends no more, and takes no more messages than were posted.
    PeerClosed,
    /// The association ended in peace, all its data acknowledged. It is gone.
    Closed,
    /// The peer aborted it. It is gone.
    Aborted(AbortCause),
    /// It failed here. It is gone.
    Failed(Failure),
}

/// Why an association failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// `Max.Init.Retransmits` was exceeded.
    #[error("the peer did not answer the set-up in time")]
    SetupTimedOut,
    /// The INIT ACK is not one that an association can come of. The peer was told, if it can be.
    #[error("the peer's INIT ACK is not acceptable: {0}")]
    BadAnswer(&'static str),
    /// The network says that the peer's host has no SCTP.
    #[error("the peer's host does not speak SCTP, or nobody there takes it in UDP")]
    NoProtocol,
    /// `Association.Max.Retrans` was exceeded.
    #[error("the peer has not answered for too long")]
    Unreachable,
    /// The shutdown was not over after five times `RTO.Max` (T5-shutdown-guard).
    #[error("the peer did not end its part of the shutdown in time")]
    ShutdownTimedOut,
    /// The peer violated the protocol. It was notified by an ABORT.
    #[error("the peer violated the protocol: {0}")]
    Violation(&'static str),
}

/// Bytes of an abort's reason that are kept.
pub const REASON_MAX: usize = 64;

/// What an ABORT of the peer says.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct AbortCause {
    /// The code of its first cause.
    pub code: Option<u16>,
    reason: [u8; REASON_MAX],
    len: u8,
}

impl AbortCause {
    /// With as much of the reason as is kept.
    pub(crate) fn new(code: Option<u16>, text: &[u8]) -> Self {
        let mut reason = [0; REASON_MAX];
        let len = text.len().min(REASON_MAX);
        reason[..len].copy_from_slice(&text[..len]);
        Self {
            code,
            reason,
            // No more than 64.
            len: len as u8,
        }
    }

    /// The Upper Layer Abort Reason, or what is said of a violation; at most [`REASON_MAX`] bytes of it.
    pub fn reason(&self) -> &[u8] {
        &self.reason[..usize::from(self.len)]
    }
}

impl fmt::Debug for AbortCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reason = self.reason().escape_ascii();
        write!(f, "cause {:?}, \"{reason}\"", self.code)
    }
}

/// A message of the peer's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message<'a> {
    pub stream: u16,
    /// The Payload Protocol Identifier.
    pub protocol: u32,
    /// Its bytes: in the packet, or where fragments were put together.
    pub payload: &'a [u8],
}

/// A message to be sent, unordered, in one chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outgoing<B> {
    pub stream: u16,
    /// The Payload Protocol Identifier.
    pub protocol: u32,
    /// Its bytes. They must stay the same until the buffer comes back.
    pub buffer: B,
}

/// Why a message was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PostError {
    /// There is no such association any more.
    #[error("the association is gone")]
    Gone,
    /// One of its sides has closed it.
    #[error("the association is being closed, and takes no more messages")]
    ShuttingDown,
    /// There is no such stream.
    #[error("stream {stream} does not exist; there are {streams} to send on")]
    NoStream {
        stream: u16,
        /// How many there are, from 0 on.
        streams: u16,
    },
    /// A message must have at least one byte.
    #[error("a message must have at least one byte")]
    Empty,
    /// It does not fit into one packet.
    #[error("a message of {len} bytes was posted; the path takes {max} in one packet")]
    TooLong {
        /// Its bytes.
        len: usize,
        /// What [`crate::Stack::message_max`] says.
        max: usize,
    },
    /// [`crate::Config::send_chunks`] are posted: wait for [`crate::Stack::poll_released`].
    #[error("as many messages are posted as can be; wait until the peer has acknowledged some")]
    QueueFull,
}

/// A message that was not taken, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refused<B> {
    pub buffer: B,
    pub error: PostError,
}

/// Why no association was begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    /// An end that can't be one: of two families, port 0, or no unicast address.
    #[error("{ends}: an end has port 0 or no unicast address, or they are of two families")]
    BadEnds { ends: Ends },
    /// UDP encapsulation is asked for, and there is no port for it.
    #[error("there is no local UDP encapsulation port (udp_port)")]
    NoUdpPort,
    /// There is one already.
    #[error("there is an association from {ends} already")]
    InUse { ends: Ends },
    /// [`crate::Config::associations`] exist.
    #[error("{limit} associations exist, and no more may (associations)")]
    TooMany { limit: usize },
}

/// A listener is there already.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("somebody listens on {local} already")]
pub struct InUse {
    pub local: SocketAddr,
}

/// A packet to send: its bytes are in the caller's buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transmit {
    /// Whose it is; `None`: an answer to an unknown flow, or the last packet of an association.
    pub assoc: Option<AssocId>,
    pub ends: Ends,
    /// The UDP header that goes in front of it, if any (RFC 6951). Its checksum may be 0 with IPv4 only.
    pub udp: Option<UdpPorts>,
    /// Bytes of the SCTP packet.
    pub len: usize,
    /// It exceeds the path's MTU, because that shrank after its chunk was posted: it goes as IP fragments of at most
    /// so many bytes, with the headers of IP and UDP. Other packets go in one piece and with the DF bit, probes of the MTU too.
    pub fragment_to: Option<usize>,
}

/// What an ICMP or ICMPv6 error says (RFC 9260 section 10).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IcmpError {
    /// Protocol unreachable, an unrecognized next header, or port unreachable for the UDP encapsulation port.
    NoProtocol,
    /// Fragmentation needed, or packet too big.
    PacketTooBig {
        /// MTU of the next hop, in bytes of an IP packet; 0 where the router named none.
        mtu: usize,
    },
}

/// What an ICMP error quotes of the packet that we sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IcmpQuote {
    /// From and to where it went.
    pub ends: Ends,
    pub tag: u32,
    /// The Initiate Tag, if its first chunk is quoted and is an INIT.
    pub init_tag: Option<u32>,
}

/// A look at an association.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Info {
    /// Both ends, streams, adaptation.
    pub agreed: Agreed,
    pub state: State,
    /// Chunks that can be posted.
    pub room: usize,
    /// Bytes of chunks that are believed to be under way.
    pub flight: usize,
    /// The congestion window, in bytes of chunks.
    pub cwnd: usize,
    /// The slow start threshold.
    pub ssthresh: usize,
    /// The smoothed round trip time, once there is one.
    pub srtt: Option<Duration>,
    /// Its mean deviation.
    pub rttvar: Duration,
    /// The retransmission timeout.
    pub rto: Duration,
    /// Consecutive errors.
    pub errors: u32,
    /// Bytes of the largest IP packet that the path is known to take.
    pub mtu: usize,
    /// The peer's UDP encapsulation port (RFC 6951).
    pub udp: Option<u16>,
    /// Bytes of user data that are here and not consumed.
    pub held: usize,
    /// When the peer's last packet with the right Verification Tag came; at first, when the association began.
    pub heard_at: Instant,
    /// What it did so far.
    pub counters: AssocCounters,
}

/// What one association did so far. A restart of the peer begins another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AssocCounters {
    /// Bytes of user data received for the first time.
    pub bytes_in: u64,
    /// Bytes of user data sent for the first time.
    pub bytes_out: u64,
    /// DATA chunks sent again.
    pub retransmits: u64,
    /// Expirations of T3-rtx with data outstanding.
    pub timeouts: u64,
}

/// A look at the path to one address of the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PathInfo {
    pub remote: IpAddr,
    /// It is known that the peer is there (section 5.4).
    pub is_confirmed: bool,
    /// `Path.Max.Retrans` is not exceeded.
    pub is_active: bool,
    /// Consecutive errors.
    pub errors: u32,
    /// The congestion window, in bytes of chunks.
    pub cwnd: usize,
    /// Bytes of chunks that are believed to be under way here.
    pub flight: usize,
    /// The smoothed round trip time, once there is one.
    pub srtt: Option<Duration>,
    /// The retransmission timeout.
    pub rto: Duration,
    /// Bytes of the largest IP packet that it is known to take.
    pub mtu: usize,
    /// The peer's UDP encapsulation port (RFC 6951).
    pub udp: Option<u16>,
}

/// What a stack has sent and received, and what was done with packets that brought nothing to an association.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Packets with the right checksum.
    pub packets_in: u64,
    /// Packets sent.
    pub packets_out: u64,
    /// DATA chunks sent, each time.
    pub chunks_out: u64,
    /// DATA chunks sent again.
    pub retransmits: u64,
    /// Expirations of T3-rtx with data outstanding.
    pub timeouts: u64,
    /// Probes of a path's MTU that were sent.
    pub mtu_probes: u64,
    /// No SCTP packets, or with a wrong checksum.
    pub malformed: u64,
    /// With a Verification Tag that is not the association's.
    pub wrong_tags: u64,
    /// Of no association: out of the blue.
    pub strangers: u64,
    /// INITs that were refused.
    pub inits_refused: u64,
    /// State Cookies that are not ours, or of other ends.
    pub foreign_cookies: u64,
    /// State Cookies that came too late.
    pub stale_cookies: u64,
    /// State Cookies for which there was no room.
    pub associations_refused: u64,
    /// Answers that were not sent, by their bound.
    pub answers_dropped: u64,
}
