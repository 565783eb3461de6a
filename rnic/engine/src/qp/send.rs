//! What a queue pair has to send: its send queue, work in progress, and requests of the peer that are to be
//! answered. [`message`](super::message) chooses which of it is next.

use std::collections::VecDeque;

use rnic_ipc::ring::{WorkQueueConsumer, WorkRequest};
use rnic_ipc::work::WrOpcode;
use rnic_proto::enhanced::Rtr;
use rnic_proto::mpa::marker::Markers;

use super::pending::Pending;
use super::queue_pool::RESPONSES_MAX;
use super::response::Response;
use super::source::Source;
use super::spares::Spares;
use super::work::{Kind, Work};

#[derive(Debug)]
pub(super) struct SendSide {
    pub ring: WorkQueueConsumer,
    /// The work request under way; without one, scratch.
    pub request: WorkRequest,
    pub work: Option<Work>,
    pub pending: Pending,
    /// Requests to be answered, oldest first; at most IRD.
    pub responses: VecDeque<Response>,
    /// Whose segments are under way in the middle of a message.
    pub in_message: Option<Source>,
    /// Whose turn it is when both have something.
    pub turn: Source,
    /// The peer may be sent FPDUs.
    may_send: bool,
    /// Agreed on in the start-up.
    expects_rtr: bool,
    /// The Ready-to-Receive indication, until sent.
    pub rtr: Option<Rtr>,
    pub ord: u16,
    pub markers: Markers,
    /// Where the next FPDU begins, counted from the first byte after the start-up.
    pub at: u64,
    /// Local work may be left that was not done for not taking too long.
    pub more_local: bool,
    /// The Atomic Operation that is next was not done, because others changed its word all the time.
    pub word_busy: bool,
}

impl SendSide {
    pub(super) fn new(ring: WorkQueueConsumer, depth: u32, places: usize) -> Self {
        Self {
            ring,
            request: WorkRequest::with_room(places),
            work: None,
            pending: Pending::new(depth.max(1) as usize),
            responses: VecDeque::new(),
            in_message: None,
            turn: Source::Work,
            may_send: false,
            expects_rtr: false,
            rtr: None,
            ord: 0,
            markers: Markers::Off,
            at: 0,
            more_local: false,
            word_busy: false,
        }
    }

    /// RDMA mode begins.
    pub(super) fn open(&mut self, ord: u16, initiator: bool, rtr: Option<Rtr>) {
        self.ord = ord;
        self.may_send = initiator;
        self.expects_rtr = !initiator && rtr.is_some();
        self.rtr = rtr.filter(|_| initiator);
    }

    /// The peer is to send its Ready-to-Receive indication, and has not (RFC 6581 section 9.2).
    #[inline]
    pub(super) fn awaits_rtr(&self) -> bool {
        self.expects_rtr && !self.may_send
    }

    /// The peer's first valid FPDU came.
    pub(super) fn allow(&mut self) {
        self.may_send = true;
    }

    /// The peer may be sent FPDUs.
    pub(super) fn may_send(&self) -> bool {
        self.may_send
    }

    /// Nothing is posted, under way, or to be answered.
    #[inline]
    pub(super) fn has_nothing(&self) -> bool {
        self.is_between_messages() && self.ring.is_empty()
    }

    /// Nothing is under way, or to be answered.
    #[inline]
    pub(super) fn is_between_messages(&self) -> bool {
        self.rtr.is_none() && self.work.is_none() && self.responses.is_empty()
    }

    /// Nothing is sent any more.
    pub(super) fn close(&mut self) {
        self.work = None;
        self.responses.clear();
        self.in_message = None;
        self.rtr = None;
        self.may_send = false;
    }

    /// As it was made; nothing is pending.
    pub(super) fn reset(&mut self) {
        self.close();
        self.pending.reset();
        self.turn = Source::Work;
        self.ord = 0;
        self.markers = Markers::Off;
        self.at = 0;
    }

    pub(super) fn clear_pending(&self) {
        self.ring.clear_pending();
    }

    /// Queues a request; the stream has looked that there are at most IRD of each kind.
    pub(super) fn respond(&mut self, response: Response, spares: &mut Spares<Response>) {
        spares.push(&mut self.responses, response, RESPONSES_MAX);
    }

    /// See [`Qp::would_send`].
    pub(super) fn would_send(&self) -> bool {
        match &self.work {
            Some(work) => !matches!(work.kind, Kind::Local | Kind::LocalLeft(_)),
            None => !self.ring.next_opcode().is_some_and(WrOpcode::is_local),
        }
    }

    /// Nothing is left to send, and the peer owes no answer. A peer that has finished sending answers no
    /// Read: then neither Reads nor work posted after them delay the end.
    pub(super) fn is_drained(&self, peer_done: bool) -> bool {
        if peer_done && !self.may_send {
            return true;
        }
        let behind_reads =
            self.pending.is_full() || self.work.is_some_and(|work| work.waits_for_responses());
        let stuck = peer_done && behind_reads;
        let nothing_posted = self.work.is_none() && self.ring.is_empty();
        self.in_message.is_none()
            && self.rtr.is_none()
            && self.responses.is_empty()
            && (stuck || nothing_posted)
            && (peer_done || self.pending.is_empty())
    }
}
