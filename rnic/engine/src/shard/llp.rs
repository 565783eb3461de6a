//! What is asked of a lower layer, TCP or SCTP, without asking which it is.
//!
//! A connection has what carries it as a value, from when it is made ([`ConnKind`](crate::conn::ConnKind)). Only
//! [`Datapath::llp`] and [`Datapath::llp_mut`] choose by it, so one more lower layer is one more [`Llp`], and one more
//! arm in these two.

use std::net::{IpAddr, SocketAddr};

use rnic_ipc::control::Transport;
use rnic_proto::mpa::fpdu;
use rnic_proto::mpa::marker::MARKER_LEN;
use rnic_xsk::{Frame, Port};
use userspace_net::{ConnId, Endpoint, Instant};
use userspace_tcp::DeferredAck;

use super::datapath::Datapath;
use crate::conn::{Conn, ConnTable, Frames};

/// The least EMSS, in bytes: an FPDU of the smallest MULPDU, with the Marker that it may have.
pub(in crate::shard) const EMSS_MIN: usize = fpdu::fpdu_length(fpdu::MULPDU_MIN) + MARKER_LEN;

/// A message of the start-up could not be sent: no frame is free, or the connection is gone.
#[derive(Debug)]
pub(in crate::shard) struct NotSent;

/// The local end has a listener, or what is left of one.
#[derive(Debug)]
pub(in crate::shard) struct InUse;

/// What has become of a connection that was aborted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::shard) enum Aborted {
    Gone,
    /// It is gone, and with it these, which its association carried.
    With(Vec<ConnId>),
    /// It is a session that is still to be ended by both sides.
    Ends,
}

/// When a peer was heard.
pub(in crate::shard) struct Heard {
    /// Something is not acknowledged.
    pub awaits_ack: bool,
    pub at: Instant,
}

/// What a lower layer works with.
pub(in crate::shard) struct LlpContext<'a> {
    pub frames: &'a mut Frames,
    pub now: Instant,
}

/// A lower layer protocol (RFC 5041 section 3), with all connections that go over it.
pub(in crate::shard) trait Llp {
    /// Accepts connections at a local end.
    fn listen(&mut self, local: SocketAddr, backlog: usize) -> Result<(), InUse>;

    /// Accepts no more there.
    fn unlisten(&mut self, local: SocketAddr);

    /// How many places are taken of those that there are for connections.
    fn connections(&self, conns: &ConnTable) -> usize;

    fn connections_at(&self, local: Endpoint) -> usize;

    /// Sends a message of the start-up, behind room for `headers` bytes if it needs that.
    fn send_startup(
        &mut self,
        context: LlpContext<'_>,
        id: ConnId,
        headers: usize,
        bytes: &[u8],
    ) -> Result<(), NotSent>;

    /// Ends what is sent, after what is queued. `is_answer`: what is queued is the answer to the peer's request, and siw
    /// does not look at it if it hears of FIN first.
    fn close(&mut self, id: ConnId, is_answer: bool);

    /// Ends the connection at once.
    fn abort(&mut self, context: LlpContext<'_>, id: ConnId) -> Aborted;

    /// Frames that it keeps of the connection: each a segment, or a chunk.
    fn queued_segments(&self, id: ConnId) -> usize;

    /// The same if the peer has acknowledged all of them, by `deferred` at the latest.
    fn acknowledged(&self, id: ConnId, deferred: Option<&DeferredAck>) -> Option<usize>;

    /// Bytes that were sent, or are to be, and that the peer has not acknowledged; more, if so many are not known.
    fn unacknowledged(&self, id: ConnId) -> u64;

    /// What came is acknowledged without delay.
    fn acknowledge_at_once(&mut self, id: ConnId);

    /// When the peer was heard; none of a connection that is gone.
    fn heard(&self, id: ConnId) -> Option<Heard>;

    /// Packets to an address of the peer go another way from now on.
    fn path_moved(&mut self, now: Instant, id: ConnId, remote: IpAddr);

    /// The first link of a path takes packets of at most so many bytes.
    fn limit_mtu(&mut self, now: Instant, id: ConnId, mtu: u32);
}

impl<P: Port> Datapath<P> {
    /// What a connection goes over. One that is not in the table is TCP's at most: sessions and associations are taken up
    /// when they are made.
    #[inline]
    pub fn transport(&self, id: ConnId) -> Transport {
        self.conns.get(id).map_or(Transport::Tcp, Conn::transport)
    }

    /// Asks a lower layer. `ask` is compiled for each of them, so it costs no indirect call on the data path.
    #[inline(always)]
    pub fn llp<R>(&self, transport: Transport, ask: impl FnOnce(&dyn Llp) -> R) -> R {
        match transport {
            Transport::Tcp => ask(&self.stack),
            Transport::Sctp => ask(&self.sctp),
        }
    }

    /// Has a lower layer do something.
    pub fn llp_mut<R>(
        &mut self,
        transport: Transport,
        act: impl FnOnce(&mut dyn Llp, LlpContext<'_>) -> R,
    ) -> R {
        let (frames, now) = (&mut self.frames, self.now);
        let context = LlpContext { frames, now };
        match transport {
            Transport::Tcp => act(&mut self.stack, context),
            Transport::Sctp => act(&mut self.sctp, context),
        }
    }

    /// Sends a message of the start-up: MPA's, or a session's.
    pub fn send_startup(&mut self, id: ConnId, bytes: &[u8]) -> Result<(), NotSent> {
        let conn = self.conns.get(id).ok_or(NotSent)?;
        let (transport, headers) = (conn.transport(), conn.header_room());
        self.llp_mut(transport, |llp, context| {
            llp.send_startup(context, id, headers, bytes)
        })
    }
}

impl Frames {
    /// A frame with these bytes behind room for headers, if one is free.
    pub(in crate::shard) fn with(&mut self, headers: usize, bytes: &[u8]) -> Option<Frame> {
        let end = headers + bytes.len();
        let mut frame = self.pool.alloc_for(end)?;
        let Some(place) = self.umem.bytes_mut(&mut frame).get_mut(headers..end) else {
            self.pool.free(frame);
            return None;
        };
        place.copy_from_slice(bytes);
        frame.set_len(end);
        Some(frame)
    }
}
