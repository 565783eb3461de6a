//! Messages: what a queue pair sends next, and when it may (RFC 5040 section 5, RFC 5041 section 5.3,
//! RFC 5044 section 7.1.2). A work request, or the answer to a request of the peer's, becomes one message
//! after the other: its header, its FPDUs, and what is done when it is out. Segments of two messages are
//! never mixed; between messages the send queue and the responses take turns.

use rnic_ipc::control::QpState;
use rnic_ipc::work::{WcStatus, WrOpcode};
use rnic_proto::enhanced::Rtr;
use rnic_proto::mpa::MpaError;
use rnic_proto::mpa::fpdu::{Layout, MULPDU_MIN, Writer};
use rnic_proto::rdmap::{RdmapError, segment, terminate};

use super::response::Response;
use super::segmenter::{self, Framing, Head, Message, Payload, Progress, TxSegments, Unreadable};
use super::source::{Failed, Source};
use super::work::{Kind, Work};
use super::{CloseKind, Qp, QpContext};
use crate::stag::{StagError, StagTable};

/// The token of the Ready-to-Receive Read, which is no work request's ticket.
pub(super) const RTR_TOKEN: u64 = u64::MAX;

/// Work that sends nothing and is done before the owner is asked again.
const LOCAL_AT_ONCE: usize = 8;

/// What is sent next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Terminate,
    Rtr(Rtr),
    /// Of the work under way.
    Work,
    /// Of the oldest response.
    Response,
}

impl Qp {
    /// Writes FPDUs as long as there is something to send and `out` has room.
    ///
    /// What was written is sent: a Send or RDMA Write ends with its last segment, and completes with
    /// [`Self::end_quantum`].
    #[inline]
    pub(crate) fn transmit(&mut self, ctx: &mut QpContext<'_>, out: &mut impl TxSegments) {
        while out.has_room() && !self.has_nothing_to_send() {
            if self.write_single(ctx, out).is_some() {
                continue;
            }
            let Some(next) = self.next_message(ctx) else {
                return;
            };
            debug_assert!(!self.has_nothing_to_send(), "{next:?} of nothing");
            match self.write(ctx, next, out) {
                Ok(()) => {}
                Err(Failed) if self.send.word_busy => return,
                // What failed is not tried again. Its own error was reported if it had one, and then this
                // one changes nothing; at most a Terminate follows.
                Err(Failed) => self.fail(RdmapError::LocalCatastrophic.into(), None),
            }
        }
    }

    /// It has filled as many segments as it may for now: completes what was sent with them, which the
    /// peer need not wait for.
    pub(crate) fn end_quantum(&mut self, ctx: &mut QpContext<'_>) {
        self.complete_ended(ctx);
    }

    /// Nothing is left to send, but soon there may be.
    pub fn has_more_local_work(&self) -> bool {
        (self.send.more_local || self.send.word_busy)
            && !self.ending.stopped
            && !self.has_nothing_to_send()
    }

    /// Nothing is posted, under way, or to be answered: there is no next message. What changes that
    /// comes by a call.
    #[inline]
    pub fn has_nothing_to_send(&self) -> bool {
        self.ending.terminate.is_none() && self.send.has_nothing()
    }

    /// The message that is next, or under way; none when there is none, or it may not be sent yet. Work
    /// is taken off the send queue for it, and work that sends nothing is done.
    fn next_message(&mut self, ctx: &mut QpContext<'_>) -> Option<Next> {
        self.send.word_busy = false;
        if self.ending.terminate.is_some() && self.send.may_send() {
            return Some(Next::Terminate);
        }
        if !self.may_send_work() {
            return None;
        }
        if let Some(rtr) = self.send.rtr {
            return Some(Next::Rtr(rtr));
        }
        // In the middle of a message of its own it goes on with that.
        self.send.more_local = false;
        if self.send.in_message == Some(Source::Work) && self.send.work.is_some() {
            return Some(Next::Work);
        }
        // Local work is done on the way, at most a bounded number of requests, so that other connections wait
        // only briefly.
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
        if work && let Some(begun) = &mut self.send.work {
            begun.fenced = false;
        }
        let response = !self.send.responses.is_empty();
        match self.send.in_message.unwrap_or(self.send.turn) {
            Source::Work if work => Some(Next::Work),
            _ if response => Some(Next::Response),
            _ => work.then_some(Next::Work),
        }
    }

    /// Whether work and responses may be sent.
    #[inline]
    pub(super) fn may_send_work(&self) -> bool {
        self.state == QpState::Rts && self.send.may_send() && !self.ending.stopped
    }

    fn may_begin(&self, work: &Work) -> bool {
        let stream = self.stream.as_ref();
        if work.fenced && self.has_outstanding_reads() {
            return false;
        }
        match work.kind {
            Kind::Local | Kind::LocalLeft(_) => false,
            _ => !work.is_request() || stream.is_some_and(|stream| stream.can_begin_read()),
        }
    }

    /// Whether the peer has not answered all Reads and atomics; also when there is no stream any more.
    pub(super) fn has_outstanding_reads(&self) -> bool {
        let stream = self.stream.as_ref();
        stream.is_none_or(|stream| stream.outstanding_reads().next().is_some())
    }

    /// How the next FPDU is written.
    #[inline]
    pub(super) fn framing(&self) -> Framing {
        Framing {
            markers: self.send.markers,
            crc: self.crc,
            checks: self.checks,
            at: self.send.at,
        }
    }

    /// Writes the FPDUs of a message that there is room for.
    #[inline]
    fn write(
        &mut self,
        ctx: &mut QpContext<'_>,
        next: Next,
        out: &mut impl TxSegments,
    ) -> Result<(), Failed> {
        let message = match next {
            Next::Work => self.work_message(ctx.stags),
            Next::Response => self.response_message(ctx.stags),
            _ => Ok(None),
        };
        let message = match message {
            Ok(Some(message)) => message,
            Ok(None) => return self.write_control(ctx, next, out),
            Err(error) => return Err(self.refuse_source(ctx, error)),
        };
        let (progress, ran) = segmenter::run(message, self.framing(), out);
        self.send.at = progress.at;
        ctx.counters.fpdus_sent += u64::from(progress.fpdus);
        ctx.counters.bytes_gathered += u64::from(progress.bytes);
        match next {
            Next::Work => self.work_written(ctx, &progress, ran),
            _ => self.response_written(ctx, &progress, ran),
        }
    }

    /// The message of the work under way, if it is of payload.
    #[inline]
    fn work_message<'a>(&'a self, stags: &'a StagTable) -> Result<Option<Message<'a>>, StagError> {
        let Some(Work {
            kind: Kind::Payload(head),
            sent,
            total,
            ..
        }) = self.send.work
        else {
            return Ok(None);
        };
        let request = &self.send.request;
        let payload = match request.is_inline() {
            true => Payload::Inline(request),
            false => Payload::Elements(request.sges(), stags, self.id.user()),
        };
        Ok(Some(Message {
            head,
            payload,
            sent,
            total,
        }))
    }

    #[inline]
    fn work_written(
        &mut self,
        ctx: &mut QpContext<'_>,
        progress: &Progress,
        ran: Result<(), Unreadable>,
    ) -> Result<(), Failed> {
        let work = self.send.work.as_mut().ok_or(Failed)?;
        work.sent += progress.bytes;
        let ticket = work.ticket;
        if ran.is_err() {
            self.fail_work(ctx, ticket, WcStatus::LocalProtection);
            return Err(Failed);
        }
        if !progress.is_whole {
            self.message_goes_on(Source::Work, progress);
            return Ok(());
        }
        let Kind::Payload(head) = work.kind else {
            return Err(Failed);
        };
        if self.send.request.opcode() == Some(WrOpcode::WriteImmediate) {
            work.kind = Kind::Immediate;
        } else {
            self.work_sent(ticket);
        }
        self.payload_sent(ctx, &head);
        Ok(())
    }

    /// A message of one segment without payload of the application's.
    // By itself, so that the code of the others lies together.
    #[inline(never)]
    fn write_control(
        &mut self,
        ctx: &mut QpContext<'_>,
        next: Next,
        out: &mut impl TxSegments,
    ) -> Result<(), Failed> {
        let len = self.control_len(next).ok_or(Failed)?;
        let layout = Layout::new(self.send.markers, self.send.at, len);
        let Some(place) = out.place(layout.len()) else {
            return Ok(());
        };
        let mut bytes = [0; MULPDU_MIN];
        self.put_control(ctx, next, &mut bytes)?;
        let mut ulpdu = Writer::new(place, layout, self.crc);
        ulpdu.put(0, &bytes[..len]);
        let written = ulpdu.finish();
        out.add(&written);
        self.send.at += layout.len() as u64;
        ctx.counters.fpdus_sent += 1;
        if let (Next::Work, Some(work)) = (next, self.send.work)
            && matches!(work.kind, Kind::Immediate)
        {
            self.work_sent(work.ticket);
        }
        Ok(())
    }

    /// Bytes of its ULPDU.
    fn control_len(&self, next: Next) -> Option<usize> {
        Some(match next {
            Next::Terminate => self.ending.terminate.as_ref()?.0.bytes().len(),
            Next::Rtr(Rtr::Write) => segment::WRITE_LEN,
            Next::Rtr(Rtr::Send) => segment::SEND_LEN,
            Next::Rtr(Rtr::Read) => segment::READ_REQUEST_LEN,
            Next::Work => match self.send.work?.kind {
                Kind::Read(_) => segment::READ_REQUEST_LEN,
                Kind::Immediate => segment::IMMEDIATE_LEN,
                Kind::Atomic => segment::ATOMIC_REQUEST_LEN,
                _ => return None,
            },
            Next::Response => segment::ATOMIC_RESPONSE_LEN,
        })
    }

    /// Puts its ULPDU to the front of `out`, and does what comes with it.
    fn put_control(
        &mut self,
        ctx: &mut QpContext<'_>,
        next: Next,
        out: &mut [u8],
    ) -> Result<(), Failed> {
        match next {
            Next::Terminate => self.put_terminate(ctx, out),
            Next::Rtr(rtr) => self.put_rtr(rtr, out)?,
            Next::Work => {
                let work = self.send.work.ok_or(Failed)?;
                match work.kind {
                    Kind::Read(_) => self.put_read_request(ctx, work, out)?,
                    Kind::Immediate => self.put_immediate(ctx, &work, out)?,
                    Kind::Atomic => self.put_atomic_request(ctx, &work, out)?,
                    _ => return Err(Failed),
                }
            }
            Next::Response => match self.send.responses.front() {
                Some(&Response::Atomic { msn, request }) => {
                    self.put_atomic_response(ctx, msn, &request, out)?;
                }
                _ => return Err(Failed),
            },
        }
        Ok(())
    }

    fn put_terminate(&mut self, ctx: &mut QpContext<'_>, out: &mut [u8]) {
        if let Some((message, control)) = self.ending.terminate.take() {
            let bytes = message.bytes();
            out[..bytes.len()].copy_from_slice(bytes);
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

    fn put_rtr(&mut self, rtr: Rtr, out: &mut [u8]) -> Result<(), Failed> {
        self.send.rtr = None;
        let stream = self.stream.as_mut().ok_or(Failed)?;
        if stream.put_rtr(rtr, RTR_TOKEN, out).is_none() {
            self.fail(MpaError::NoMatchingRtr.into(), None);
            return Err(Failed);
        }
        Ok(())
    }

    /// A message of the send queue's with payload is out.
    #[inline]
    pub(super) fn payload_sent(&mut self, ctx: &mut QpContext<'_>, head: &Head) {
        match head {
            Head::Tagged(_) => ctx.counters.writes_sent += 1,
            Head::Untagged(_) => ctx.counters.sends_sent += 1,
        }
        self.message_done(Source::Work);
    }

    /// A message has begun, and there was no room for all of it: nothing comes between.
    pub(super) fn message_goes_on(&mut self, turn: Source, progress: &Progress) {
        if progress.fpdus > 0 {
            self.send.in_message = Some(turn);
        }
    }

    /// A message is out: the other one's turn.
    pub(super) fn message_done(&mut self, done: Source) {
        self.send.in_message = None;
        self.send.turn = match done {
            Source::Work => Source::Responses,
            Source::Responses => Source::Work,
        };
    }
}

// So the longest message that is never segmented fits, and every header leaves room for payload.
const _: () = assert!(MULPDU_MIN > segment::ATOMIC_REQUEST_LEN);
const _: () = assert!(MULPDU_MIN > terminate::ULPDU_LEN_MAX);
