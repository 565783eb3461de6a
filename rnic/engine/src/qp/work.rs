//! Work requests of the send queue: taken, checked, and made into segments (RFC 5040 sections 5.1 to 5.3). A
//! work request is checked as a whole when it is taken. Its memory is checked again for each segment, because
//! the client may deregister its regions at any time.

use rnic_ipc::ring::WorkRequest;
use rnic_ipc::work::{
    Sge, WR_FENCE, WR_INLINE, WR_SIGNALED, WR_SOLICITED, WcStatus, WorkSlot, WrOpcode,
    sges_for_inline,
};
use rnic_proto::rdmap::atomic::OPERAND_LEN;
use rnic_proto::rdmap::{ReadRequest, SendKind, SendWord, Stream, segment};
use rnic_proto::{MessageOffset, Msn, Qn, Stag, TaggedOffset};
use userspace_net::Instant;

use super::pending::{Entry, Outcome, Posted, Ticket};
use super::segmenter::{self, Head, TxSegments};
use super::source::{Failed, Source};
use super::{Qp, QpContext};
use crate::stag::Look;

/// A work request that passed the checks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Work {
    pub ticket: Ticket,
    pub kind: Kind,
    /// Bytes of the message's payload.
    pub total: u32,
    /// Bytes of it that were sent.
    pub sent: u32,
    /// It waits until the Reads and atomics before it are answered.
    pub fenced: bool,
}

/// What it does. What is not said here stays in the request, which is kept as long as the work.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    /// A Send or an RDMA Write: the header of its first segment.
    Payload(Head),
    /// One RDMA Read Request for each element that has bytes, because a Request names one sink
    /// (RFC 5040 section 4.4); `sent` counts the bytes that were asked for. The element to look at next.
    Read(usize),
    /// By itself, or after a Write as a message of its own.
    Immediate,
    Atomic,
    Local,
    /// It is done, but other shards may still use what it took away.
    LocalLeft(Look),
}

impl Work {
    /// Whether the peer answers it: at most ORD of those are outstanding.
    pub(super) fn is_request(&self) -> bool {
        matches!(self.kind, Kind::Read(_) | Kind::Atomic)
    }

    /// Whether it may have to wait until the peer has answered others.
    pub(super) fn waits_for_responses(&self) -> bool {
        self.fenced || self.is_request() || matches!(self.kind, Kind::Local)
    }
}

impl Qp {
    /// Takes the next work request off the send queue, if there is one and room to remember it.
    pub(super) fn take_work(&mut self, ctx: &mut QpContext<'_>) {
        if self.send.pending.is_full() {
            self.complete_all_ended(ctx);
        }
        if self.rings_dead || self.send.pending.is_full() {
            return;
        }
        match self.send.ring.pop(&mut self.send.request) {
            Ok(true) => {}
            Ok(false) => {
                return self
                    .send
                    .pending
                    .release_if_empty(&mut ctx.queue_pool.pending);
            }
            Err(fault) => return self.ring_fault(fault),
        }
        let checked = self.check_work(ctx);
        let mut entry = Entry::new(self.posted(&self.send.request.slot, ctx.now));
        if let Ok((kind, total)) = &checked {
            self.note_message(&mut entry, kind, *total);
        }
        let ticket = (self.send.pending).push(entry, &mut ctx.queue_pool.pending);
        match checked {
            Ok((kind, total)) => {
                self.send.work = Some(Work {
                    ticket,
                    kind,
                    total,
                    sent: 0,
                    fenced: self.send.request.slot.flags & WR_FENCE != 0,
                });
            }
            Err(status) => self.fail_work(ctx, ticket, status),
        }
    }

    /// The record that the completion of a work request taken now is made from.
    #[inline]
    pub(super) fn posted(&self, slot: &WorkSlot, now: Instant) -> Posted {
        Posted {
            wr_id: slot.wr_id,
            taken: now,
            opcode: slot.opcode,
            signaled: self.id.signal_all || slot.flags & WR_SIGNALED != 0,
            flags: slot.completion_flags(),
        }
    }

    /// Notes with the work what message it is, or what its answers will bring.
    #[inline]
    fn note_message(&mut self, entry: &mut Entry, kind: &Kind, total: u32) {
        match kind {
            Kind::Payload(Head::Untagged(head)) => {
                self.stream.as_mut().map(Stream::begin_send);
                entry.became(Qn::SEND, head.msn);
            }
            Kind::Atomic => {
                entry.read_len = OPERAND_LEN;
                entry.sink = self.send.request.sges().first().copied();
            }
            Kind::Read(_) => {
                let sges = self.send.request.sges();
                let sinks = sges.iter().filter(|sge| sge.length > 0).count();
                entry.read_len = total;
                // At most MAX_SGE.
                entry.reads_left = sinks.max(1) as u8;
            }
            _ => {}
        }
    }

    /// Checks a work request as it was posted. Its memory is checked again when its segments are written;
    /// of a message whose payload is one element that is the only time.
    #[inline]
    fn check_work(&self, ctx: &QpContext<'_>) -> Result<(Kind, u32), WcStatus> {
        let impossible = WcStatus::LocalQpOperation;
        let request = &self.send.request;
        let (slot, sges, inline) = (&request.slot, request.sges(), request.is_inline());
        let total = match sges {
            [sge] if !inline && self.id.max_sge > 0 => sge.length,
            _ => self.total_of(request).ok_or(impossible)?,
        };
        let opcode = request.opcode().ok_or(impossible)?;
        if wraps(opcode, slot, total) {
            return Err(impossible);
        }
        let kind = match self.payload_head(opcode, slot) {
            Some(head) => Kind::Payload(head),
            None => self.check_other(opcode, total).ok_or(impossible)?,
        };
        let is_payload = matches!(kind, Kind::Payload(_));
        if !inline && (sges.len() != 1 || !is_payload) {
            self.check_elements(ctx, is_payload)?;
        }
        Ok((kind, total))
    }

    /// The header of the first segment of what is a message with payload.
    #[inline(always)]
    fn payload_head(&self, opcode: WrOpcode, slot: &WorkSlot) -> Option<Head> {
        match opcode {
            WrOpcode::SendImmediate if self.joined.is_none() => None,
            WrOpcode::Send | WrOpcode::SendInvalidate | WrOpcode::SendImmediate => {
                let kind = SendKind {
                    solicited: slot.flags & WR_SOLICITED != 0,
                    word: match opcode {
                        WrOpcode::SendInvalidate => SendWord::Invalidate,
                        WrOpcode::SendImmediate => SendWord::Immediate,
                        _ => SendWord::Unused,
                    },
                };
                let msn = self.stream.as_ref()?.next_send();
                let mo = MessageOffset(0);
                let head = segment::send(kind, slot.rkey, msn, mo, false);
                Some(Head::Untagged(head))
            }
            WrOpcode::Write | WrOpcode::WriteImmediate => {
                let to = TaggedOffset(slot.remote_addr);
                Some(Head::Tagged(segment::write(Stag(slot.rkey), to, false)))
            }
            _ => None,
        }
    }

    /// Early exit of [`Self::take_work`] and all that follows: the next work request is a message of one
    /// element and one FPDU, and nothing else is in progress. Only its completion remains to be done. Returns
    /// None and takes nothing if a condition is not met, no frame is available, or anything is wrong.
    #[inline(always)]
    pub(super) fn write_single(
        &mut self,
        ctx: &mut QpContext<'_>,
        out: &mut impl TxSegments,
    ) -> Option<()> {
        let is_next = self.may_send_work() && self.send.is_between_messages();
        // What completes later needs its entry.
        if !is_next
            || self.joined.is_some()
            || self.send.markers.are_on()
            || self.send.pending.is_full()
        {
            return None;
        }
        let slot = self.send.ring.single()?;
        let (sge, opcode) = (&slot.sge[0], WrOpcode::from_u8(slot.opcode)?);
        let plain = slot.flags & (WR_INLINE | WR_FENCE) == 0 && opcode != WrOpcode::WriteImmediate;
        if !plain || self.id.max_sge == 0 || wraps(opcode, &slot, sge.length) {
            return None;
        }
        let head = self.payload_head(opcode, &slot)?;
        let source = ctx.stags.local_read(sge, self.id.user()).ok()?;
        let len = sge.length as usize;
        let written = segmenter::write_single(head, &source, len, self.framing(), out)?;
        self.send.ring.take_single();
        let posted = self.posted(&slot, ctx.now);
        let mut entry = Entry::new(posted);
        self.note_message(&mut entry, &Kind::Payload(head), sge.length);
        if !self.send.pending.push_sent(posted) {
            entry.outcome = Some(Outcome::SENT);
            (self.send.pending).push(entry, &mut ctx.queue_pool.pending);
        }
        self.send.at += written.len as u64;
        ctx.counters.fpdus_sent += 1;
        ctx.counters.bytes_gathered += u64::from(sge.length);
        self.payload_sent(ctx, &head);
        Some(())
    }

    /// Checks the memory of a request's elements.
    #[inline(never)]
    fn check_elements(&self, ctx: &QpContext<'_>, is_payload: bool) -> Result<(), WcStatus> {
        let sges = self.send.request.sges();
        for sge in sges.iter().filter(|sge| sge.length > 0) {
            let found = match is_payload {
                true => ctx.stags.local_read(sge, self.id.user()).map(|_| ()),
                false => ctx.stags.local_write(sge, self.id.user()).map(|_| ()),
            };
            found.map_err(|_| WcStatus::LocalProtection)?;
        }
        Ok(())
    }

    /// Bytes of a request's payload; none when they are too many, or in more elements than it may have.
    fn total_of(&self, request: &WorkRequest) -> Option<u32> {
        let slot = &request.slot;
        let fits = if request.is_inline() {
            slot.inline_len <= self.id.max_inline
                && sges_for_inline(slot.inline_len as usize) == request.num_sge()
        } else {
            request.num_sge() <= self.id.max_sge
        };
        // A message is shorter than 2^32 bytes (RFC 5041 section 5.2).
        let total = u32::try_from(request.total_length()).ok()?;
        fits.then_some(total)
    }

    /// What work without payload is.
    #[inline(never)]
    fn check_other(&self, opcode: WrOpcode, total: u32) -> Option<Kind> {
        let request = &self.send.request;
        request.operands()?;
        // The original value has one place, of its size.
        let one_place = request.sges().len() == 1 && total == OPERAND_LEN && !request.is_inline();
        let answered = self.send.ord > 0;
        match opcode {
            WrOpcode::Immediate if total == 0 => Some(Kind::Immediate),
            WrOpcode::AtomicFetchAdd | WrOpcode::AtomicCompareSwap if answered && one_place => {
                Some(Kind::Atomic)
            }
            WrOpcode::Read if answered && !request.is_inline() => Some(Kind::Read(0)),
            _ if opcode.is_local() && total == 0 => Some(Kind::Local),
            _ => None,
        }
    }

    /// The RDMA Read Request for a Read's next element that has bytes; for the only one, or none,
    /// when no element has. The responses come in the order of the Requests (RFC 5040 section 5.5),
    /// so the Read has all its bytes with the last response.
    pub(super) fn put_read_request(
        &mut self,
        ctx: &mut QpContext<'_>,
        mut work: Work,
        out: &mut [u8],
    ) -> Result<(), Failed> {
        let Kind::Read(next) = work.kind else {
            return Err(Failed);
        };
        let (slot, sges) = (&self.send.request.slot, self.send.request.sges());
        let filled = |(_, sge): &(usize, &Sge)| sge.length > 0;
        let found = sges.iter().enumerate().skip(next).find(filled);
        let (index, sink) = found
            .or_else(|| sges.iter().enumerate().next())
            .map_or((0, Sge::default()), |(index, sge)| (index, *sge));
        let request = ReadRequest {
            sink_stag: Stag(sink.lkey),
            sink_to: TaggedOffset(sink.addr),
            size: sink.length,
            source_stag: Stag(slot.rkey),
            // Checked when the work request was taken: the whole Read does not wrap.
            source_to: TaggedOffset(slot.remote_addr.saturating_add(u64::from(work.sent))),
        };
        let stream = self.stream.as_mut().ok_or(Failed)?;
        let msn = stream.begin_read(work.ticket.0, &request).ok_or(Failed)?;
        segment::put_read_request(out, msn, &request);
        self.name_message(work.ticket, Qn::READ_REQUEST, msn);
        ctx.counters.read_requests_sent += 1;
        self.message_done(Source::Work);
        work.sent = work.sent.saturating_add(sink.length);
        work.kind = Kind::Read(index + 1);
        self.send.work = (work.sent < work.total).then_some(work);
        Ok(())
    }

    /// The work under way needs no answer of the peer's: it has ended when it is handed to the LLP, or when the peer's LLP
    /// has it.
    pub(super) fn work_sent(&mut self, ticket: Ticket) {
        match self.joined {
            None => self.send.pending.end(ticket, Outcome::SENT),
            Some(_) => self.sent_to_peer(ticket),
        }
        self.send.work = None;
    }

    pub(super) fn name_message(&mut self, ticket: Ticket, qn: Qn, msn: Msn) {
        if let Some(entry) = self.send.pending.get_mut(ticket) {
            entry.became(qn, msn);
        }
    }
}

/// Whether what a request's message is about would wrap around the tagged offsets.
#[inline]
fn wraps(opcode: WrOpcode, slot: &WorkSlot, total: u32) -> bool {
    let tagged = matches!(
        opcode,
        WrOpcode::Write | WrOpcode::WriteImmediate | WrOpcode::Read
    );
    let to = TaggedOffset(slot.remote_addr);
    tagged && to.checked_add(u64::from(total)).is_none()
}
