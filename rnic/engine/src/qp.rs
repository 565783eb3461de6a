//! A queue pair: work requests become FPDUs, FPDUs become placements and completions (RFC 5040, RFC 5041, RFC
//! 5044 section 4, RFC 7306).
//!
//! It knows no socket, no connection and no clock. Its owner feeds it the bytes of the stream in order, and
//! asks it for the next FPDU when the connection can send. Memory is touched only through what [`StagTable`]
//! granted for the segment at hand. Nothing that a client posts or a peer sends can make it panic. After RDMA
//! mode was entered, nothing makes it allocate beyond its [`QueuePool`].

mod atomics;
mod complete;
mod counters;
mod crc_verified;
mod early;
mod elements;
mod hold;
mod immediate;
mod join;
mod local;
mod message;
mod modify;
mod pending;
mod queue_pool;
mod read_response;
mod receive;
mod recv_queue;
mod response;
mod segmenter;
mod send;
mod source;
mod spares;
mod terminate;
#[cfg(test)]
mod tests;
mod times;
mod work;
mod writes;

use rnic_ipc::control::{Access, DisconnectReason, QpAttributes, QpState};
use rnic_ipc::id::{ClientId, CqId, PdId, QpNum, SrqId};
use rnic_ipc::ring::{RingFault, WorkQueueConsumer};
use rnic_proto::mpa::fpdu;
use rnic_proto::mpa::marker::Markers;
use rnic_proto::mpa::startup::Negotiated;
use rnic_proto::rdmap::Stream;
use rnic_proto::rdmap::stream::StreamConfig;
use rnic_proto::{Bytes, Gather};

use userspace_net::Instant;

use crate::cq::CqTable;
use crate::srq::SrqTable;
use crate::stag::{StagTable, User};

pub use counters::QpCounters;
pub(crate) use early::{FpduSign, PlacedFpdu};
pub use modify::NoSuchTransition;
pub use queue_pool::QueuePool;
pub use times::{WorkClass, WorkTimes};

pub(crate) use crc_verified::CrcVerified;
use hold::Hold;
pub(crate) use hold::{Behind, HoldStep};
use join::Joined;
use recv_queue::ReceiveSide;
pub(crate) use segmenter::TxSegments;
use send::SendSide;
use terminate::Ending;
pub(crate) use writes::{Piece, WriteProgress, is_write};

/// What a queue pair needs of its shard, lent for each call.
#[derive(Debug)]
pub struct QpContext<'a> {
    /// What memory may be touched.
    pub stags: &'a mut StagTable,
    /// Where completions go.
    pub cqs: &'a mut CqTable,
    /// Where receives of queue pairs without their own come from.
    pub srqs: &'a mut SrqTable,
    pub counters: &'a mut QpCounters,
    pub times: &'a mut WorkTimes,
    /// Memory for what is under way.
    pub queue_pool: &'a mut QueuePool,
    /// The time, as the owner knows it without asking.
    pub now: Instant,
}

/// How a connection is to be ended for its queue pair. Asked for with [`Qp::wants_close`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseKind {
    /// Everything posted is sent: FIN.
    Graceful,
    /// Our Terminate was the last FPDU that was written: FIN after it, RST if the peer
    /// takes too long (RFC 5040 section 6.2.1).
    AfterTerminateSent {
        /// Layer, error type and error code.
        control: u16,
    },
    /// The peer sent a Terminate: FIN.
    TerminateReceived { control: u16 },
    /// What the peer sent is in error, and no Terminate may say so (RFC 5044 section 7.1.2): RST.
    PeerFault { control: u16 },
    /// Nothing can be told to the peer any more: RST.
    AbortNow,
}

#[derive(Debug)]
pub struct Qp {
    id: Identity,
    state: QpState,
    /// The RDMAP Stream, from [`Qp::enter_rdma_mode`] on.
    stream: Option<Stream>,
    /// CRCs are used, both ways.
    crc: bool,
    /// What leaves is summed for TCP's checksum.
    checks: bool,
    /// What its peer may do, of what STags allow.
    peer_access: Access,
    /// It is joined by number: see `join`.
    joined: Option<Box<Joined>>,
    send: SendSide,
    receive: ReceiveSide,
    hold: Hold,
    ending: Ending,
    /// How the client broke its rings, until told.
    fault: Option<RingFault>,
    /// The rings can't be trusted any more.
    rings_dead: bool,
}

/// Of the cache lines of a queue pair a message goes through most.
const _: () = assert!(size_of::<Qp>() <= 14 * 64);

/// What does not change while a queue pair lives.
#[derive(Clone, Copy, Debug)]
struct Identity {
    client: ClientId,
    num: QpNum,
    pd: PdId,
    send_cq: CqId,
    recv_cq: CqId,
    max_sge: usize,
    /// Bytes that a work request of the send queue may carry itself.
    max_inline: u32,
    signal_all: bool,
}

impl Identity {
    fn user(&self) -> User {
        User {
            pd: self.pd,
            qp: self.num,
        }
    }
}

/// A queue pair is in a state that does not allow what was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the queue pair is {found:?}, but must be {wanted:?}")]
pub struct WrongQpState {
    pub found: QpState,
    pub wanted: QpState,
}

impl Qp {
    /// A new queue pair, Idle. `attributes` were checked by the Privileged Resource Manager.
    pub fn new(
        client: ClientId,
        num: QpNum,
        attributes: QpAttributes,
        sq: WorkQueueConsumer,
        rq: WorkQueueConsumer,
    ) -> Self {
        let id = Identity {
            client,
            num,
            pd: attributes.pd,
            send_cq: attributes.send_cq,
            recv_cq: attributes.recv_cq,
            max_sge: attributes.max_sge as usize,
            max_inline: attributes.max_inline,
            signal_all: attributes.signal_all,
        };
        Self {
            id,
            state: QpState::Idle,
            stream: None,
            crc: true,
            checks: true,
            peer_access: Access::ALL,
            joined: None,
            send: SendSide::new(sq, attributes.sq_depth, attributes.send_places() as usize),
            receive: ReceiveSide::new(rq, id.max_sge),
            hold: Hold::default(),
            ending: Ending::default(),
            fault: None,
            rings_dead: false,
        }
    }

    /// Its receives come from this shared receive queue, whose receives have up to `max_sge`
    /// elements, and no more from a queue of its own.
    pub fn share_receives(&mut self, srq: SrqId, max_sge: usize) {
        self.receive.share(srq, max_sge);
    }

    /// Reserves the memory that the queue pair will need, so that its work allocates none. The caller that
    /// adds it to a shard calls this once.
    pub fn provide(&self, queue_pool: &mut QueuePool) {
        queue_pool.queue_pair_added(self.send.pending.depth());
    }

    pub fn num(&self) -> QpNum {
        self.id.num
    }

    pub fn client(&self) -> ClientId {
        self.id.client
    }

    /// Its protection domain. The caller that adds the queue pair to a shard tells the shard's [`StagTable`]
    /// ([`StagTable::stream_added`]), and likewise when it removes it.
    pub fn pd(&self) -> PdId {
        self.id.pd
    }

    /// The identity by which it uses STags.
    pub fn user(&self) -> User {
        self.id.user()
    }

    pub fn state(&self) -> QpState {
        self.state
    }

    /// Do its completions go to this CQ?
    pub fn uses_cq(&self, cq: CqId) -> bool {
        self.id.send_cq == cq || self.id.recv_cq == cq
    }

    /// Whether the memory of its own queues is gone.
    pub fn has_broken_rings(&self) -> bool {
        self.send.ring.is_broken()
    }

    /// The first of its CQs that takes no completions any more, if one doesn't.
    pub fn dead_cq(&self, cqs: &CqTable) -> Option<CqId> {
        let own = [self.id.send_cq, self.id.recv_cq];
        own.into_iter().find(|cq| !cqs.is_usable(*cq))
    }

    /// Whether [`Self::begin_connecting`] would do.
    pub fn check_idle(&self) -> Result<(), WrongQpState> {
        match self.state {
            QpState::Idle => Ok(()),
            found => Err(WrongQpState {
                found,
                wanted: QpState::Idle,
            }),
        }
    }

    /// Idle becomes Connecting.
    pub fn begin_connecting(&mut self) -> Result<(), WrongQpState> {
        self.check_idle()?;
        self.state = QpState::Connecting;
        Ok(())
    }

    /// The MPA start-up is done: Connecting becomes Ready to send. Does nothing in another state.
    ///
    /// A responder sends nothing before the initiator's first FPDU came (RFC 5044 section 7.1.2);
    /// an initiator opens with the agreed Ready-to-Receive indication (RFC 6581 section 9.2).
    pub fn enter_rdma_mode(&mut self, negotiated: &Negotiated, initiator: bool) {
        if self.state != QpState::Connecting {
            return;
        }
        self.state = QpState::Rts;
        self.crc = negotiated.crc;
        // An earlier connection may have needed none.
        self.checks = true;
        self.send.markers = negotiated.markers_out;
        self.receive
            .reset(negotiated.markers_in, negotiated.aligned);
        self.hold.reset();
        let (ird, ord) = (negotiated.ird, negotiated.ord);
        let expect_rtr = if initiator { None } else { negotiated.rtr };
        self.stream = Some(Stream::new(StreamConfig {
            ird,
            ord,
            expect_rtr,
            sends_with_immediate: self.joined.is_some(),
        }));
        self.send.open(ord, initiator, negotiated.rtr);
    }

    /// The client posted work: answers the doorbell. Posted to a queue pair in Error, or whose peer has gone, it ends at
    /// once; then it says true, and there may be a fault to tell.
    pub fn doorbell(&mut self, ctx: &mut QpContext<'_>) -> bool {
        self.send.clear_pending();
        let flushes = self.state == QpState::Error;
        if flushes {
            self.flush(ctx);
        }
        flushes || self.fail_lost(ctx)
    }

    /// It is in Ready to send: what is posted is sent, and not flushed.
    pub(crate) fn is_ready_to_send(&self) -> bool {
        self.state == QpState::Rts
    }

    /// Where the next work request is looked for, for who fetches it ahead.
    pub(crate) fn next_work(&self) -> [*const u8; 4] {
        self.send.ring.memory_ahead()
    }

    /// Where [`Self::has_nothing_to_send`] sees whether work is posted, for who fetches it ahead.
    pub(crate) fn posted_at(&self) -> *const u8 {
        let [posted, ..] = self.next_work();
        posted
    }

    /// Whether the next that it has to do, if there is something, is to send, as far as a look tells: local
    /// work needs no room anywhere.
    pub(crate) fn would_send(&self) -> bool {
        self.send.would_send()
    }

    /// Receives the bytes of the stream, in order. Returns how many were used, always whole FPDUs; the rest
    /// must be presented again, with more bytes after it. A Send that waits for a receive is not used, nor
    /// what is behind it. Once the stream has ended, all bytes are used and dropped (RFC 5041 section 7.1).
    pub fn receive(&mut self, ctx: &mut QpContext<'_>, pieces: &[&[u8]]) -> usize {
        self.receive_checked(ctx, pieces, &CrcVerified::NONE)
    }

    /// As [`Self::receive`]. The CRC of an FPDU that `verified` names as verified is not checked again.
    pub(crate) fn receive_checked(
        &mut self,
        ctx: &mut QpContext<'_>,
        pieces: &[&[u8]],
        checked: &CrcVerified,
    ) -> usize {
        let mut verified = checked.alone;
        let (mut rest, mut skip, mut used, mut taken_last) = (pieces, 0, 0, 0);
        while self.is_receiving() {
            while let Some((first, behind)) = rest.split_first()
                && skip >= first.len()
                && !behind.is_empty()
            {
                skip -= first.len();
                rest = behind;
                verified >>= 1;
            }
            let known = verified & 1 == 1 || !self.crc;
            if skip == 0 && known && rest.first().is_some_and(|bytes| is_write(bytes)) {
                let bits = (0..).map(|at| verified.checked_shr(at).unwrap_or(0) & 1 == 1);
                let writes = rest.iter().zip(bits);
                let writes = writes.map(|(bytes, verified)| Piece {
                    bytes,
                    crc_verified: verified,
                });
                let WriteProgress { pieces, bytes, .. } = self.receive_writes(ctx, writes);
                if pieces > 0 {
                    (rest, used) = (rest.get(pieces..).unwrap_or(&[]), used + bytes);
                    verified = verified.checked_shr(pieces as u32).unwrap_or(0);
                    continue;
                }
            }
            let first = rest.first().and_then(|first| first.get(skip..));
            let taken = first
                .and_then(|first| self.take_fpdu(ctx, &first, skip == 0 && verified & 1 == 1))
                // It ends in another piece than it begins in, or is not all there.
                .or_else(|| self.take_gathered(ctx, (pieces, rest, skip), checked));
            let Some(taken) = taken else {
                return used;
            };
            skip += taken;
            used += taken;
            taken_last = taken;
        }
        if self.is_held() {
            // The last that was taken is the Send that waits.
            self.receive.at -= taken_last as u64;
            return used - taken_last;
        }
        Gather::new(pieces).len()
    }

    /// As [`Self::take_fpdu`], of the bytes from `skip` on of the rest of all pieces.
    fn take_gathered(
        &mut self,
        ctx: &mut QpContext<'_>,
        (all, rest, skip): (&[&[u8]], &[&[u8]], usize),
        checked: &CrcVerified,
    ) -> Option<usize> {
        let segment = checked.segment(all.len() - rest.len());
        if let Some(parts) = rest.get(..segment)
            && segment > 1
            && skip == 0
        {
            let taken = self.take_fpdu(ctx, &Gather::new(parts), true);
            if taken.is_some() {
                return taken;
            }
        }
        self.take_fpdu(ctx, &Gather::new(rest).tail(skip)?, false)
    }

    /// Receives the next DDP Segment of an LLP that keeps segments whole, and has verified it.
    #[inline]
    pub(crate) fn receive_segment<'a>(
        &mut self,
        ctx: &mut QpContext<'_>,
        segment: &impl Bytes<'a>,
    ) {
        if self.is_receiving() {
            self.receive_ulpdu(ctx, segment);
        }
    }

    /// The peer may be sent FPDUs, whichever side it is: only MPA has a responder wait.
    pub(crate) fn allow_sending(&mut self) {
        self.send.allow();
    }

    /// Nobody looks at the Internet checksum of what it sends: its payload is summed only for a CRC.
    pub(crate) fn skip_checks(&mut self) {
        self.checks = self.crc;
    }

    /// Whether FPDUs have a CRC.
    pub(crate) fn checks_crc(&self) -> bool {
        self.crc
    }

    /// Takes in the FPDU at the front of the bytes; gives its length if all of it is there.
    #[inline]
    fn take_fpdu<'a>(
        &mut self,
        ctx: &mut QpContext<'_>,
        bytes: &impl Bytes<'a>,
        verified: bool,
    ) -> Option<usize> {
        let layout = fpdu::parse(bytes, self.receive.markers, self.receive.at)?;
        let len = layout.len();
        let fpdu = bytes.sub(0, len)?;
        self.receive.at += len as u64;
        let crc = self.crc && !(verified && len == bytes.len());
        self.receive_fpdu(ctx, &fpdu, &layout, crc);
        Some(len)
    }

    pub(crate) fn sends_markers(&self) -> Markers {
        self.send.markers
    }

    /// The client asked for a graceful end: what is posted is sent, and Reads are waited for, then
    /// [`Self::wants_close`] says so.
    pub fn disconnect(&mut self) {
        self.ending.wanted = true;
    }

    /// Whether the queue pair waits for its peer: an answer to a Read or an Atomic Operation is missing, or the
    /// Ready-to-Receive indication, or a requested end of the stream can't complete.
    pub fn awaits_peer(&self) -> bool {
        self.state == QpState::Rts
            && (self.ending.wanted || !self.send.pending.is_empty() || self.send.awaits_rtr())
    }

    /// The peer's FIN came; all bytes before it were received. `mid_fpdu`: some of them are an
    /// FPDU without its end.
    pub fn peer_closed(&mut self, mid_fpdu: bool) {
        self.ending.peer_closed(mid_fpdu);
    }

    /// How the connection is to be ended, once. To be asked after every other call.
    pub fn wants_close(&mut self) -> Option<CloseKind> {
        if self.ending.wanted && self.state == QpState::Rts && self.is_drained() {
            self.state = QpState::Closing;
            self.ending.close.get_or_insert(CloseKind::Graceful);
            self.give_up_held();
        }
        self.ending.close.take()
    }

    /// Whether one of [`Self::wants_close`], [`Self::take_fault`], [`Self::take_invalid_stag`] and
    /// [`Self::awaits_peer`] may say something.
    #[inline]
    pub(crate) fn needs_update(&self) -> bool {
        self.ending.close.is_some()
            || self.ending.invalid_stag
            || self.fault.is_some()
            || self.awaits_peer()
            || self.state == QpState::Terminate
    }

    /// Whether the stream was ended by an STag that there is not, once.
    pub(crate) fn take_invalid_stag(&mut self) -> bool {
        std::mem::take(&mut self.ending.invalid_stag)
    }

    /// The connection is gone, or did not come about. All work is flushed; the state is Error, but for a queue pair that
    /// loses its peer (see `join`). No memory is touched any more.
    pub fn connection_ended(&mut self, ctx: &mut QpContext<'_>, reason: DisconnectReason) {
        log::debug!("queue pair {}: connection ended: {reason:?}", self.id.num);
        if !self.loses_peer(ctx, reason) {
            self.enter_error(ctx);
        }
    }

    /// A CQ that it uses died: Error at once, and [`Self::wants_close`] says to abort.
    pub fn cq_failed(&mut self, ctx: &mut QpContext<'_>) {
        self.enter_error(ctx);
        self.ending.close = Some(CloseKind::AbortNow);
    }

    /// TCP did not take all that was written, so the stream has a hole: [`Self::wants_close`] says to abort.
    pub(crate) fn stream_broken(&mut self) {
        self.ending.close = Some(CloseKind::AbortNow);
    }

    /// How the client broke the rules of its rings, once. The client is to be taken away.
    pub fn take_fault(&mut self) -> Option<RingFault> {
        self.fault.take()
    }

    /// The queue pair is removed: it returns what it borrowed, and the reserve made by [`Self::provide`] is
    /// released. It must not be used afterwards.
    pub fn give_back(&mut self, queue_pool: &mut QueuePool) {
        while self.send.pending.pop().is_some() {}
        self.send.pending.release_if_empty(&mut queue_pool.pending);
        self.send.responses.clear();
        queue_pool
            .responses
            .release_if_empty(&mut self.send.responses);
        queue_pool.queue_pair_removed(self.send.pending.depth());
    }

    fn is_receiving(&self) -> bool {
        self.stream.is_some()
            && !self.ending.stopped
            && !self.hold.is_on()
            && matches!(self.state, QpState::Rts | QpState::Closing)
    }

    /// Nothing is left to be sent or waited for.
    fn is_drained(&self) -> bool {
        self.send.is_drained(self.ending.peer_done)
    }

    fn ring_fault(&mut self, fault: RingFault) {
        self.fault.get_or_insert(fault);
        self.rings_dead = true;
        self.state = QpState::Error;
        self.ending.stop();
        self.ending.close = Some(CloseKind::AbortNow);
    }
}
