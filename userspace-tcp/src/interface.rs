//! The values that go in and out of a [`crate::Stack`]: names, events, segments to send, and what
//! a received segment brought.

use std::fmt;
use std::ops::{AddAssign, Deref, DerefMut};
use std::time::Duration;

pub use userspace_net::ConnId;
use userspace_net::ranges::GAPS_MAX;
use userspace_net::{Ecn, Endpoint, FourTuple, Instant, checksum::PartialSum};

use crate::options::Timestamps;
use crate::segment::TcpHeader;
use crate::seq::{SeqNum, StreamOffset};

/// Where the connection of a flow may be, by a look at the flow's hash alone
/// ([`crate::Stack::flow_hint`]). It goes stale, and is never trusted: the table is looked up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FlowHint(pub(crate) FlowLocation);

/// What is known of where a flow's connection is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum FlowLocation {
    /// There is none.
    #[default]
    Unknown,
    /// Here, if it is of that flow.
    At(u32),
    /// This one, if it still lives.
    Is(ConnId),
}

impl FlowHint {
    /// What [`ConnId::index`] would be; `None`: there is no connection.
    pub fn index(self) -> Option<usize> {
        match self.0 {
            FlowLocation::Unknown => None,
            FlowLocation::At(index) => Some(index as usize),
            FlowLocation::Is(id) => Some(id.index()),
        }
    }

    /// It is this connection, if it still lives, and no other has the flow as long as it does.
    pub const fn of(id: ConnId) -> Self {
        Self(FlowLocation::Is(id))
    }
}

/// Names a segment of one connection's send queue, in the order of [`crate::Stack::send`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SegmentId(pub(crate) u32);

/// What happened to a connection without being asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A new connection to a listener is established. The first event of a passive connection.
    Incoming {
        /// The address given to [`crate::Stack::listen`].
        listener: Endpoint,
        /// Both ends.
        tuple: FourTuple,
    },
    /// A connection of [`crate::Stack::connect`] is established.
    Established,
    /// Segments may be larger or must be smaller from now on, because of what was learnt of the
    /// path; what was posted before stays as it is.
    MssChanged {
        /// What [`crate::Stack::mss`] says.
        mss: usize,
    },
    /// The peer's window has stayed too small for the first segment that waits, and nothing is on its way (the
    /// override timeout of RFC 9293 section 3.8.6.2.1). [`crate::Stack::split`] cuts the segment to what the
    /// window takes. Only with [`crate::Config::cuts_from`].
    WindowTooSmall,
    /// The peer calls bytes urgent that are not consumed yet, or more of them than before
    /// (RFC 9293 section 3.8.5). They stay in their place; [`Info::urgent_to`] says how far they
    /// reach.
    Urgent,
    /// The connection is in trouble, and goes on.
    SoftError(SoftError),
    /// The peer sends no more: its FIN and every byte before it are here.
    PeerClosed,
    /// The peer reset the connection, which is gone.
    Reset,
    /// The peer refused the connection of [`crate::Stack::connect`], which is gone.
    Refused,
    /// The peer did not answer in time; the connection is gone.
    TimedOut,
    /// Both directions are closed and everything sent is acknowledged; but for our FIN, when the peer
    /// answers it by a reset, because it knows of no connection any more. When the connection still
    /// stands in TIME-WAIT ([`crate::Stack::info`] says so), [`Event::TimeWaitOver`] follows;
    /// otherwise it is gone.
    Closed,
    /// A connection that was [`Event::Closed`] has left TIME-WAIT and is gone.
    TimeWaitOver,
}

/// Something is wrong that may pass: the connection goes on (RFC 9293 section 3.9.1.8).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SoftError {
    /// An ICMP error says that the peer can't be reached.
    Unreachable {
        /// By protocol or port, and not only for the time being.
        hard: bool,
    },
    /// The peer has left three transmissions in a row unanswered (R1 of RFC 9293 section 3.8.3).
    /// The way to it may have changed: a good moment to ask for its link-layer address again.
    NoAnswer,
}

/// An ICMP or ICMPv6 error about a segment that we sent (RFC 9293 section 3.9.2.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IcmpError {
    /// Fragmentation needed (RFC 1191), packet too big (RFC 8201).
    PacketTooBig {
        /// MTU of the next hop, in bytes of an IP packet; 0 when an old router did not say.
        mtu: u32,
    },
    /// The destination can't be reached.
    Unreachable {
        /// By protocol or port, and not only for the time being.
        hard: bool,
    },
}

/// One segment's payload handed to [`crate::Stack::send`].
#[derive(Debug)]
pub struct Outgoing<B> {
    /// The caller's buffer. It goes out with each [`Transmit`] and comes back by
    /// [`crate::Stack::transmitted`].
    pub buf: B,
    /// Bytes of payload in it: 1 to [`crate::Stack::mss`].
    pub len: u32,
    /// The checksum's partial sum over these bytes.
    pub payload_sum: PartialSum,
}

/// What [`crate::Stack::send`] may be given now; nothing when the connection is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SendCapacity {
    /// [`crate::Stack::queued_segments`].
    pub queued: usize,
    /// [`crate::Stack::mss`], in bytes.
    pub mss: usize,
    /// [`crate::Stack::send_room`], in bytes, without the segment that may wait beyond the congestion
    /// window.
    pub room: usize,
}

/// Why [`crate::Stack::send`] did not take a segment, with the buffer.
#[derive(Debug)]
pub struct SendError<B> {
    /// The buffer, back.
    pub buf: B,
    /// Why.
    pub reason: SendRefusal,
}

impl<B> fmt::Display for SendError<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.reason.fmt(f)
    }
}

impl<B: fmt::Debug> std::error::Error for SendError<B> {}

/// Why a segment can't be sent. The local layer above is at fault, or the connection is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SendRefusal {
    /// The connection does not exist (any more).
    #[error("the connection is gone")]
    Gone,
    /// It is not established yet.
    #[error("the connection is not established yet; wait for its event")]
    NotEstablished,
    /// It was closed for sending by the layer above.
    #[error("the connection was closed for sending")]
    Closed,
    /// The send queue is full.
    #[error("the send queue holds its limit of {limit} segments; wait for acknowledgments")]
    QueueFull {
        /// [`crate::Config::send_queue_segments`].
        limit: usize,
    },
    /// Empty, or longer than one segment.
    #[error("{len} bytes can't be one segment; it has 1 to {mss} bytes on this connection")]
    Length {
        /// Bytes asked for.
        len: u32,
        /// The most that a segment takes.
        mss: usize,
    },
}

/// Why [`crate::Stack::connect`] made no connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    /// This pair of ends has a connection already.
    #[error("a connection {tuple} exists already (it may be in TIME-WAIT); take another port")]
    InUse {
        /// The pair.
        tuple: FourTuple,
    },
    /// The ends are of different address families, or one has port or address zero.
    #[error("{tuple} can't be the ends of a TCP connection")]
    DropReason {
        /// The pair.
        tuple: FourTuple,
    },
    /// The table of connections is full.
    #[error("the limit of {limit} connections is reached; close some or raise the limit")]
    TooMany {
        /// [`crate::Config::connections`].
        limit: usize,
    },
}

/// Why [`crate::Stack::listen`] made no listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ListenError {
    /// Somebody listens there already.
    #[error("{local} is listened on already")]
    InUse {
        /// The address.
        local: Endpoint,
    },
}

/// A segment to be sent now. The caller puts IP and link headers in front and the checksum in.
#[derive(Debug)]
pub struct Transmit<B> {
    /// Whose. A reset may be of a connection that is gone with it; `None` for one of no connection, and a SYN cookie.
    pub conn: Option<ConnId>,
    /// `local` is the source, `remote` the destination.
    pub tuple: FourTuple,
    /// The header; its checksum is not computed.
    pub header: TcpHeader,
    /// The payload; `None` for a segment without.
    pub payload: Option<Payload<B>>,
    /// The ECN field for the IP header.
    pub ecn: Ecn,
    /// `None`: one packet, with DF set. Otherwise the path has become too narrow for this segment
    /// after it was posted: it goes out as IP fragments of at most so many bytes each.
    pub fragment_to: Option<u32>,
}

/// The payload of a [`Transmit`]. The buffer is the link's until [`crate::Stack::transmitted`].
#[derive(Debug)]
pub struct Payload<B> {
    /// To give back with the buffer.
    pub id: SegmentId,
    /// The buffer.
    pub buf: B,
    /// Bytes of payload in it.
    pub len: u32,
    /// The checksum's partial sum over these bytes.
    pub sum: PartialSum,
    /// It was sent before.
    pub retransmission: bool,
    /// When it went out before, if that transmission is believed to be lost by congestion. `None` for
    /// what goes out for the first time, for a tail loss probe, and for what was too large for its
    /// path.
    pub lost: Option<Instant>,
}

/// Most ranges of new bytes that one segment can bring.
pub const NEW_RANGES_MAX: usize = GAPS_MAX;

/// Bytes of a received segment that never came before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NewRange {
    /// Where they belong in the stream.
    pub offset: StreamOffset,
    /// Where they begin within this segment's payload, in bytes.
    pub skip: u32,
    /// How many they are; never 0.
    pub len: u32,
}

/// Up to [`NEW_RANGES_MAX`] ranges, in ascending order; a slice by dereference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NewRanges {
    ranges: [NewRange; NEW_RANGES_MAX],
    count: u8,
}

impl NewRanges {
    /// Appends a range; `false` when there is no place.
    pub(crate) fn push(&mut self, range: NewRange) -> bool {
        let Some(place) = self.ranges.get_mut(usize::from(self.count)) else {
            return false;
        };
        *place = range;
        self.count += 1;
        true
    }
}

impl Deref for NewRanges {
    type Target = [NewRange];

    fn deref(&self) -> &[NewRange] {
        &self.ranges[..usize::from(self.count)]
    }
}

impl DerefMut for NewRanges {
    fn deref_mut(&mut self) -> &mut [NewRange] {
        &mut self.ranges[..usize::from(self.count)]
    }
}

/// What a received segment brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Received {
    /// The connection it belongs to, if there is one (still). The segment may have made it: look
    /// at the events before the bytes.
    pub conn: Option<ConnId>,
    /// Bytes never seen before, in order or not. Keep the buffer while any is needed.
    pub new: NewRanges,
    /// Every byte before this position has been received.
    pub in_order_to: StreamOffset,
}

/// A segment that is the next in order of an established connection and says nothing else but an
/// acknowledgment, as [`crate::Stack::in_order`] found: a ticket for [`crate::Stack::commit`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InOrder {
    pub(crate) conn: ConnId,
    pub(crate) offset: StreamOffset,
    pub(crate) room: u32,
    pub(crate) ack: SeqNum,
    pub(crate) window: u16,
    pub(crate) timestamps: Option<Timestamps>,
}

impl InOrder {
    /// The connection.
    pub const fn conn(&self) -> ConnId {
        self.conn
    }

    /// The position of its first byte.
    pub const fn offset(&self) -> StreamOffset {
        self.offset
    }

    /// So many bytes from there on are within the receive window.
    pub const fn room(&self) -> u32 {
        self.room
    }
}

/// The bytes that are taken of a segment that is [in order](InOrder), and of those behind it that [only
/// continue it](crate::TcpHeader::only_continues).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentRun {
    /// Bytes.
    pub bytes: u32,
    /// In so many segments of the peer's.
    pub segments: u32,
    /// Bytes of the longest of them.
    pub longest: u32,
}

/// All that is left to be done of segments whose bytes are taken ([`crate::Stack::commit`]): their
/// acknowledgment of what was sent, the one that they are due, timers and counters. For
/// [`crate::Stack::finish`].
#[derive(Debug, PartialEq, Eq)]
#[must_use = "without it nothing is ever acknowledged"]
pub struct DeferredAck {
    pub(crate) in_order: InOrder,
    pub(crate) run: SegmentRun,
    /// Whether it measures a round trip.
    pub(crate) measures: bool,
}

impl DeferredAck {
    /// The same of a segment of which it is not known well enough when it came to measure a round trip.
    pub fn unmeasured(self) -> Self {
        Self {
            measures: false,
            ..self
        }
    }

    /// Whose it is.
    pub const fn conn(&self) -> ConnId {
        self.in_order.conn
    }

    /// Where the bytes end in the stream.
    pub fn end(&self) -> StreamOffset {
        self.in_order.offset + u64::from(self.run.bytes)
    }

    /// What [`crate::Stack::receive`] says of the segments.
    pub fn received(&self) -> Received {
        let mut new = NewRanges::default();
        new.push(NewRange {
            offset: self.in_order.offset,
            skip: 0,
            len: self.run.bytes,
        });
        Received {
            conn: Some(self.in_order.conn),
            new,
            in_order_to: self.end(),
        }
    }
}

/// The states of RFC 9293 section 3.3.2; LISTEN and CLOSED are no connections here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    /// Our SYN is out.
    SynSent,
    /// SYN received, ours not acknowledged yet.
    SynReceived,
    /// Both directions open.
    Established,
    /// Our FIN is out.
    FinWait1,
    /// Our FIN is acknowledged, the peer's is not here.
    FinWait2,
    /// Both FINs are out, ours is not acknowledged.
    Closing,
    /// Both directions closed; old segments die out.
    TimeWait,
    /// The peer's FIN is here; we may send.
    CloseWait,
    /// The peer's FIN was first; ours is not acknowledged yet.
    LastAck,
}

/// A look at one connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Info {
    /// Its ends.
    pub tuple: FourTuple,
    /// Its state.
    pub state: State,
    /// Payload bytes of a full segment (EMSS).
    pub mss: usize,
    /// The largest IP packet that is believed to pass, in bytes (PLPMTU of RFC 8899).
    pub path_mtu: u32,
    /// Segments carry timestamps (RFC 7323 section 3): known once it is established.
    pub timestamps: bool,
    /// Segments are sent as ECN-capable (RFC 3168): known once it is established.
    pub ecn: bool,
    /// Smoothed round trip time; `None` before the first measurement.
    pub srtt: Option<Duration>,
    /// Its mean deviation.
    pub rttvar: Duration,
    /// The retransmission timeout, back-off included.
    pub rto: Duration,
    /// Congestion window, in bytes.
    pub cwnd: u64,
    /// Slow start threshold, in bytes.
    pub ssthresh: u64,
    /// Bytes believed to be in the network.
    pub pipe: u64,
    /// The peer's receive window, in bytes.
    pub peer_window: u64,
    /// Where the peer's urgent bytes end; `None` when all of them are consumed.
    pub urgent_to: Option<StreamOffset>,
    /// Segments in the send queue, sent or not.
    pub queued_segments: usize,
    /// The peer owes an acknowledgment, or room in its window: the user timeout counts.
    pub awaits_ack: bool,
    /// When something acceptable came from the peer last; before that, when it was begun.
    pub heard_at: Instant,
    /// What it did so far.
    pub counters: ConnCounters,
}

/// What one connection did so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ConnCounters {
    /// Segments received, of any kind.
    pub segments_in: u64,
    /// Segments sent, of any kind, retransmissions included.
    pub segments_out: u64,
    /// Bytes of payload received for the first time.
    pub bytes_in: u64,
    /// Bytes of payload sent for the first time.
    pub bytes_out: u64,
    /// Segments with payload sent again.
    pub retransmits: u64,
    /// Retransmission timeouts.
    pub timeouts: u64,
    /// Times that fast recovery began.
    pub fast_recoveries: u64,
    /// Tail loss probes sent (RFC 8985 section 7), of new bytes or again.
    pub tail_probes: u64,
    /// Fast recoveries that turned out to be needless, because segments were only late.
    pub needless_recoveries: u64,
    /// Retransmission timeouts that turned out to be spurious (RFC 5682).
    pub spurious_timeouts: u64,
    /// Zero-window probes sent.
    pub probes: u64,
    /// Keep-alive probes sent.
    pub keepalives: u64,
    /// Segments that came out of order.
    pub out_of_order: u64,
    /// Segments without anything new in them although they had payload.
    pub duplicates: u64,
    /// Segments dropped because the set of out-of-order ranges was full.
    pub ranges_full: u64,
    /// Segments dropped by PAWS (RFC 7323 section 5).
    pub paws_dropped: u64,
    /// Challenge ACKs sent (RFC 5961).
    pub challenges: u64,
    /// Segments received with a congestion mark (CE).
    pub marked_in: u64,
    /// Times that the peer's echo of congestion marks reduced the congestion window.
    pub ecn_reductions: u64,
}

impl AddAssign for ConnCounters {
    fn add_assign(&mut self, other: Self) {
        self.segments_in += other.segments_in;
        self.segments_out += other.segments_out;
        self.bytes_in += other.bytes_in;
        self.bytes_out += other.bytes_out;
        self.retransmits += other.retransmits;
        self.timeouts += other.timeouts;
        self.fast_recoveries += other.fast_recoveries;
        self.tail_probes += other.tail_probes;
        self.needless_recoveries += other.needless_recoveries;
        self.spurious_timeouts += other.spurious_timeouts;
        self.probes += other.probes;
        self.keepalives += other.keepalives;
        self.out_of_order += other.out_of_order;
        self.duplicates += other.duplicates;
        self.ranges_full += other.ranges_full;
        self.paws_dropped += other.paws_dropped;
        self.challenges += other.challenges;
        self.marked_in += other.marked_in;
        self.ecn_reductions += other.ecn_reductions;
    }
}

/// What the whole stack did with segments that belong to no connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// SYNs dropped because a listener's backlog was full, or more than the link could take were
    /// answered already.
    pub backlog_full: u64,
    /// SYNs answered by a SYN cookie.
    pub cookies_sent: u64,
    /// Connections established by a SYN cookie.
    pub cookies_accepted: u64,
    /// Segments without a valid cookie to a listener that gave some out lately: dropped.
    pub cookies_rejected: u64,
    /// Half-open connections given up early, their SYN-ACK unanswered, to make room.
    pub half_open_evicted: u64,
    /// SYNs dropped because the table of connections was full.
    pub table_full: u64,
    /// Segments to flows that are not there.
    pub unknown_flow: u64,
    /// RSTs sent, by any cause.
    pub resets_sent: u64,
    /// RSTs not sent because of [`crate::Config::resets_per_second`].
    pub resets_limited: u64,
    /// ICMP errors that could not be about a segment in the network.
    pub icmp_ignored: u64,
    /// Connections evicted from TIME-WAIT early to make room.
    pub time_wait_evicted: u64,
}
