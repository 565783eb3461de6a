//! The way out: work requests and responses to the peer's requests become FPDUs, one message after the other
//! (RFC 5040 section 5, RFC 5041 section 5.3). Segments of two messages are never mixed; between
//! messages the send queue and the responses take turns.

use std::collections::VecDeque;

use rnic_ipc::control::QpState;
use rnic_ipc::ring::{WorkQueueConsumer, WorkRequest};
use rnic_ipc::work::WrOpcode;
use rnic_proto::mpa::MpaError;
use rnic_proto::mpa::fpdu::{self, Layout, MULPDU_MIN, Writer, Written};
use rnic_proto::mpa::marker::Markers;
use rnic_proto::mpa::startup::Rtr;
use rnic_proto::rdmap::{RdmapError, segment, terminate};

use userspace_tcp::checksum::PartialSum;

use super::pending::Pending;
use super::queue_pool::{RESPONSES_MAX, Spares};
use super::read_response::Response;
use super::whole::Whole;
use super::work::{Kind, Work};
use super::{CloseKind, Qp, QpContext};
use crate::stag::Source;

/// The token of the Ready-to-Receive Read, which is no work request's ticket.
pub(super) const RTR_TOKEN: u64 = u64::MAX;

/// Bytes of the shortest FPDU that is ever sent: an RDMA Write without payload.
pub(super) const FPDU_LEN_MIN: usize = fpdu::fpdu_length(segment::WRITE_LEN);

/// Bytes from which on it pays to check them while they are copied. What is shorter is checked with
/// what is around it.
const CHECKED_COPY_MIN: usize = 256;

/// FPDUs that share a TCP segment at most.
const FPDUS_PER_SEGMENT: usize = 64;

/// Work that sends nothing and is done before the owner is asked again.
const LOCAL_AT_ONCE: usize = 8;

/// What a queue pair has to send.
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
    pub in_message: Option<Turn>,
    /// Whose turn it is when both have something.
    turn: Turn,
    /// The peer may be sent FPDUs.
    may_send: bool,
    /// The Ready-to-Receive indication, until sent.
    rtr: Option<Rtr>,
    pub ord: u16,
    /// Markers in what goes.
    pub markers: Markers,
    /// Where the next FPDU begins, counted from the first byte behind the start-up.
    at: u64,
    /// Local work may be left that was not done for not taking too long.
    more_local: bool,
    /// The Atomic Operation that is next was not done, because others changed its word all the time.
    pub word_busy: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    Work,
    Responses,
}

/// What the next FPDU is.
#[derive(Clone, Copy, Debug)]
enum Next {
    Terminate,
    Rtr(Rtr),
    /// Of the work under way.
    Work,
    /// Of the oldest response.
    Response,
}

/// What there must be for an FPDU to come of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    Terminate,
    Rtr,
    /// Posted, or under way.
    Work,
    Responses,
}

/// All there are: [`Qp::has_nothing_to_send`] looks at these, and [`Qp::plan`] makes sure that nothing
/// comes of any other.
pub(super) const ORIGINS: [Origin; 4] = [
    Origin::Terminate,
    Origin::Rtr,
    Origin::Work,
    Origin::Responses,
];

impl Next {
    fn origin(self) -> Origin {
        match self {
            Self::Terminate => Origin::Terminate,
            Self::Rtr(_) => Origin::Rtr,
            Self::Work => Origin::Work,
            Self::Response => Origin::Responses,
        }
    }
}

/// The next FPDU: what it is, and where its parts lie. Good until anything happens to its queue pair.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    next: Next,
    layout: Layout,
}

/// With what a TCP segment begins.
#[derive(Clone, Copy, Debug)]
pub(crate) enum First<'a> {
    Planned(Plan),
    Whole(&'a Whole),
}

/// What one TCP segment was filled with.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Filled {
    pub bytes: usize,
    pub fpdus: usize,
    /// The checksum's partial sum over the bytes.
    pub sum: PartialSum,
}

/// The stream has failed instead: there may be a Terminate to send.
pub(super) struct Failed;

impl SendSide {
    pub(super) fn new(ring: WorkQueueConsumer, depth: u32, places: usize) -> Self {
        Self {
            ring,
            request: WorkRequest::with_room(places),
            work: None,
            pending: Pending::new(depth.max(1) as usize),
            responses: VecDeque::new(),
            in_message: None,
            turn: Turn::Work,
            may_send: false,
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
        self.rtr = rtr.filter(|_| initiator);
    }

    /// The peer's first valid FPDU came.
    pub(super) fn allow(&mut self) {
        self.may_send = true;
    }

    /// The peer may be sent FPDUs.
    pub(super) fn may_send(&self) -> bool {
        self.may_send
    }

    /// No message is under way, or waits for being begun but what is still in the send queue.
    #[inline]
    pub(super) fn is_between_messages(&self) -> bool {
        self.may_send
            && self.rtr.is_none()
            && self.in_message.is_none()
            && self.work.is_none()
            && self.responses.is_empty()
    }

    /// What is under way may go on, and nothing comes between.
    #[inline]
    pub(super) fn goes_on(&self) -> bool {
        self.may_send && self.rtr.is_none()
    }

    /// Where the next FPDU begins, counted from the first byte behind the start-up.
    #[inline]
    pub(super) fn at(&self) -> u64 {
        self.at
    }

    /// The message under way went on, and the next FPDU begins there.
    #[inline]
    pub(super) fn goes_on_at(&mut self, at: u64) {
        self.at = at;
        self.more_local = false;
    }

    /// An FPDU of so many bytes is written, a message of the send queue's.
    #[inline]
    pub(super) fn sent_whole(&mut self, bytes: usize) {
        self.at += bytes as u64;
        self.more_local = false;
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
        self.turn = Turn::Work;
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
            Some(work) => !matches!(work.kind, Kind::Local(_)),
            None => !self.ring.next_opcode().is_some_and(WrOpcode::is_local),
        }
    }

    /// Nothing is left to send, and nothing that the peer still has to answer. A peer that is
    /// done answers no Read: then neither Reads nor what is posted behind them holds the end up.
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

impl Plan {
    /// Bytes of the FPDU.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.layout.len()
    }
}

impl Qp {
    /// Whether an FPDU may come of this, as far as a look tells.
    #[inline]
    pub(super) fn has_of(&self, origin: Origin) -> bool {
        match origin {
            Origin::Terminate => self.ending.terminate.is_some(),
            Origin::Rtr => self.send.rtr.is_some(),
            Origin::Work => self.send.work.is_some() || !self.send.ring.is_empty(),
            Origin::Responses => !self.send.responses.is_empty(),
        }
    }

    /// The next FPDU; none when there is nothing to write. `mulpdu` is the longest ULPDU, in bytes.
    #[inline]
    pub fn plan(&mut self, ctx: &mut QpContext<'_>, mulpdu: usize) -> Option<Plan> {
        let next = self.next(ctx)?;
        debug_assert!(
            ORIGINS.contains(&next.origin()) && self.has_of(next.origin()),
            "{next:?} of nothing that is looked at"
        );
        let ulpdu_len = self.ulpdu_len(next, mulpdu.max(MULPDU_MIN));
        let layout = Layout::new(self.send.markers, self.send.at, ulpdu_len);
        Some(Plan { next, layout })
    }

    /// Nothing was to write, but soon there may be.
    pub fn has_more_local_work(&self) -> bool {
        (self.send.more_local || self.send.word_busy) && !self.ending.stopped
    }

    /// Writes the FPDU of a plan that was just made, whole, to the front of `out`: of its length unless
    /// an error makes it a Terminate. None when `out` is too short, or there is nothing to write after all.
    ///
    /// What was written is sent: a Send or RDMA Write completes with its last segment.
    #[inline]
    pub fn produce(
        &mut self,
        ctx: &mut QpContext<'_>,
        plan: Plan,
        mulpdu: usize,
        out: &mut [u8],
    ) -> Option<Written> {
        let written = self.write(ctx, plan, mulpdu, out);
        self.complete_all_ended(ctx);
        written
    }

    /// As above, but for the completions.
    #[inline]
    fn write(
        &mut self,
        ctx: &mut QpContext<'_>,
        plan: Plan,
        mulpdu: usize,
        out: &mut [u8],
    ) -> Option<Written> {
        let Plan {
            mut next,
            mut layout,
        } = plan;
        loop {
            let out = out.get_mut(..layout.len())?;
            let mut ulpdu = Writer::new(out, layout, self.crc);
            if let Ok(()) = self.put(ctx, next, &mut ulpdu) {
                ctx.counters.fpdus_sent += 1;
                self.send.at += layout.len() as u64;
                return Some(ulpdu.finish());
            }
            if self.send.word_busy {
                return None;
            }
            // What failed is not tried again. Its own error was told if it had one, and then this
            // one changes nothing; at most a Terminate follows.
            self.fail(RdmapError::LocalCatastrophic.into(), None);
            Plan { next, layout } = self.plan(ctx, mulpdu)?;
        }
    }

    /// Fills a TCP segment, whose place is `out`: with the next FPDU, as it was just found, and with
    /// those behind it that are there to be sent now and fit whole (RFC 5044 section 5.1), if there are
    /// no Markers. None is made shorter for that, and nothing is waited for.
    ///
    /// What was sent completes with [`Self::turn_over`].
    pub(crate) fn fill_segment(
        &mut self,
        ctx: &mut QpContext<'_>,
        first: First<'_>,
        mulpdu: usize,
        out: &mut [u8],
    ) -> Filled {
        let most = match self.send.markers {
            Markers::Off => FPDUS_PER_SEGMENT,
            // tshark 4.0 takes some Writes for Sends otherwise; others may fail so too.
            Markers::On => 1,
        };
        let mut filled = Filled::default();
        let mut written = match first {
            First::Planned(plan) => self.write(ctx, plan, mulpdu, out),
            First::Whole(whole) => self.write_whole(ctx, whole, out),
        };
        while let Some(fpdu) = written {
            filled.bytes += fpdu.len;
            filled.fpdus += 1;
            // Every FPDU is of an even number of bytes.
            filled.sum += PartialSum::from_folded(fpdu.sum);
            written = match out.get_mut(filled.bytes..) {
                Some(rest)
                    if rest.len() >= FPDU_LEN_MIN
                        && filled.fpdus < most
                        && !self.has_nothing_to_send() =>
                {
                    let whole = self.next_whole(mulpdu);
                    whole
                        .and_then(|whole| self.write_whole(ctx, &whole, rest))
                        .or_else(|| self.write_planned(ctx, mulpdu, rest))
                }
                _ => None,
            };
        }
        filled
    }

    /// The next FPDU, whatever it is, if it fits.
    #[inline(never)]
    fn write_planned(
        &mut self,
        ctx: &mut QpContext<'_>,
        mulpdu: usize,
        out: &mut [u8],
    ) -> Option<Written> {
        let plan = self.plan(ctx, mulpdu)?;
        self.write(ctx, plan, mulpdu, out)
    }

    /// It has filled as many segments as it may for now: completes what was sent with them, which the
    /// peer need not wait for.
    pub(crate) fn turn_over(&mut self, ctx: &mut QpContext<'_>) {
        self.complete_ended(ctx);
    }

    fn next(&mut self, ctx: &mut QpContext<'_>) -> Option<Next> {
        self.send.word_busy = false;
        if self.ending.terminate.is_some() && self.send.may_send {
            return Some(Next::Terminate);
        }
        if self.state != QpState::Rts || !self.send.may_send || self.ending.stopped {
            return None;
        }
        if let Some(rtr) = self.send.rtr {
            return Some(Next::Rtr(rtr));
        }
        // In the middle of a message of its own it goes on with that.
        self.send.more_local = false;
        if self.send.in_message == Some(Turn::Work) && self.send.work.is_some() {
            return Some(Next::Work);
        }
        // Local work is done on the way, no more of it at a time than keeps others waiting for a
        // moment.
        for done_before in 0..LOCAL_AT_ONCE {
            if self.send.work.is_none() {
                self.take_work(ctx);
            }
            let done = self.do_local_work(ctx);
            if self.ending.terminate.is_some() {
                return Some(Next::Terminate);
            }
            if self.ending.stopped {
                return None;
            }
            if !done {
                break;
            }
            self.send.more_local = done_before + 1 == LOCAL_AT_ONCE;
        }
        let work = self.send.work.as_ref();
        let work = work.is_some_and(|work| self.may_begin(work));
        let response = !self.send.responses.is_empty();
        match self.send.in_message.unwrap_or(self.send.turn) {
            Turn::Work if work => Some(Next::Work),
            _ if response => Some(Next::Response),
            _ => work.then_some(Next::Work),
        }
    }

    fn may_begin(&self, work: &Work) -> bool {
        let stream = self.stream.as_ref();
        match work.kind {
            Kind::Local(_) => false,
            _ => !work.is_request() || stream.is_some_and(|stream| stream.can_begin_read()),
        }
    }

    fn ulpdu_len(&self, next: Next, mulpdu: usize) -> usize {
        let segment = |header: usize, left: u32| header + (left as usize).min(mulpdu - header);
        match next {
            Next::Terminate => {
                let terminate = self.ending.terminate.as_ref();
                terminate.map_or(0, |(message, _)| message.bytes().len())
            }
            Next::Rtr(Rtr::Write) => segment::WRITE_LEN,
            Next::Rtr(Rtr::Send) => segment::SEND_LEN,
            Next::Rtr(Rtr::Read) => segment::READ_REQUEST_LEN,
            Next::Work => self.send.work.as_ref().map_or(0, |work| {
                let left = work.total.saturating_sub(work.sent);
                match work.kind {
                    Kind::Send { .. } => segment(segment::SEND_LEN, left),
                    Kind::Write { .. } => segment(segment::WRITE_LEN, left),
                    Kind::Read { .. } => segment::READ_REQUEST_LEN,
                    Kind::Immediate(_) => segment::IMMEDIATE_LEN,
                    Kind::Atomic { .. } => segment::ATOMIC_REQUEST_LEN,
                    // Never next.
                    Kind::Local(_) => 0,
                }
            }),
            Next::Response => match self.send.responses.front() {
                Some(Response::Read(response)) => {
                    segment(segment::READ_RESPONSE_LEN, response.left())
                }
                Some(Response::Atomic { .. }) => segment::ATOMIC_RESPONSE_LEN,
                None => 0,
            },
        }
    }

    fn put(
        &mut self,
        ctx: &mut QpContext<'_>,
        next: Next,
        ulpdu: &mut Writer<'_>,
    ) -> Result<(), Failed> {
        match next {
            Next::Terminate => self.put_terminate(ctx, ulpdu),
            Next::Rtr(rtr) => self.put_rtr(rtr, ulpdu)?,
            Next::Work => self.put_work(ctx, ulpdu)?,
            Next::Response => match *self.send.responses.front().ok_or(Failed)? {
                Response::Read(response) => self.put_read_response(ctx, response, ulpdu)?,
                Response::Atomic { msn, request } => {
                    self.put_atomic_response(ctx, msn, &request, ulpdu)?;
                }
            },
        }
        Ok(())
    }

    fn put_work(&mut self, ctx: &mut QpContext<'_>, ulpdu: &mut Writer<'_>) -> Result<(), Failed> {
        let work = self.send.work.as_ref().ok_or(Failed)?;
        // Where it can be long it is not moved.
        match work.kind {
            Kind::Send { .. } | Kind::Write { .. } => self.put_payload_segment(ctx, ulpdu),
            Kind::Read { stag, from, next } => {
                self.put_read_request(ctx, *work, (stag, from), next, ulpdu)
            }
            Kind::Immediate(immediate) => self.put_immediate(ctx, &{ *work }, immediate, ulpdu),
            Kind::Atomic {
                stag,
                to,
                operation,
            } => self.put_atomic_request(ctx, &{ *work }, (stag, to), operation, ulpdu),
            Kind::Local(_) => Err(Failed),
        }
    }

    fn put_terminate(&mut self, ctx: &mut QpContext<'_>, ulpdu: &mut Writer<'_>) {
        if let Some((message, control)) = self.ending.terminate.take() {
            ulpdu.put(0, message.bytes());
            self.ending.close = Some(CloseKind::AfterTerminateSent { control });
            ctx.counters.terminates_sent += 1;
        }
    }

    /// Repeats an initiator's Ready-to-Receive indication, as the one that stands for no message: an
    /// RDMA Write without bytes. In the middle of a message there is no need, and no place.
    pub(crate) fn indicate_again(&mut self) {
        if self.state == QpState::Rts && self.send.in_message.is_none() {
            self.send.rtr.get_or_insert(Rtr::Write);
        }
    }

    fn put_rtr(&mut self, rtr: Rtr, ulpdu: &mut Writer<'_>) -> Result<(), Failed> {
        self.send.rtr = None;
        let stream = self.stream.as_mut().ok_or(Failed)?;
        let mut bytes = [0; MULPDU_MIN];
        let Some(len) = stream.put_rtr(rtr, RTR_TOKEN, &mut bytes) else {
            self.fail(MpaError::NoMatchingRtr.into(), None);
            return Err(Failed);
        };
        ulpdu.put(0, &bytes[..len]);
        Ok(())
    }

    /// Copies `len` bytes of the application to the ULPDU's bytes from `from` on.
    pub(super) fn copy_out(
        source: &Source<'_>,
        ulpdu: &mut Writer<'_>,
        from: usize,
        len: usize,
    ) -> Result<(), Failed> {
        if len < CHECKED_COPY_MIN {
            return ulpdu.fill(from, len, |at, place| {
                source.read(at as u64, place).map_err(|_| Failed)
            });
        }
        ulpdu.copy(from, len, |crc, place, markers| {
            source
                .read_checked(0, Some(crc), place, markers)
                .map_err(|_| Failed)
        })
    }

    /// A message is out: the other one's turn.
    pub(super) fn message_done(&mut self, done: Turn) {
        self.send.in_message = None;
        self.send.turn = match done {
            Turn::Work => Turn::Responses,
            Turn::Responses => Turn::Work,
        };
    }
}

// So the longest message that is never segmented fits, and every header leaves room for payload.
const _: () = assert!(MULPDU_MIN > segment::ATOMIC_REQUEST_LEN);
const _: () = assert!(MULPDU_MIN > terminate::ULPDU_LEN_MAX);
