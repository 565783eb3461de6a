//! Work requests of the send queue: taken, checked, and made into segments (RFC 5040 sections 5.1 to
//! 5.3). What a client posted is checked as a whole when it is taken, and its memory again for each
//! segment, because the client may take its regions away at any time.

use rnic_ipc::control::Access;
use rnic_ipc::work::{
    Sge, WR_ONE_STREAM, WR_SIGNALED, WR_SOLICITED, WcStatus, WorkSlot, WrOpcode, sges_for_inline,
};
use rnic_proto::mpa::fpdu::Writer;
use rnic_proto::rdmap::atomic::OPERAND_LEN;
use rnic_proto::rdmap::{AtomicOperation, ReadRequest, SendKind, segment};
use rnic_proto::{MessageOffset, Msn, Qn, Stag, TaggedOffset};
use userspace_tcp::Instant;

use super::immediate::Immediate;
use super::local::Local;
use super::pending::{Entry, Outcome, Posted, Ticket};
use super::send::{Failed, Turn};
use super::{Qp, QpContext, elements};
use crate::stag::Binding;

/// A work request that passed the checks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Work {
    pub ticket: Ticket,
    pub kind: Kind,
    /// Bytes of the message's payload.
    pub total: u32,
    /// Bytes of it that were sent.
    pub sent: u32,
}

/// What it does.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    Send {
        kind: SendKind,
        invalidate: Stag,
        msn: Option<Msn>,
    },
    Write {
        stag: Stag,
        to: TaggedOffset,
        /// What follows it as a message of its own.
        immediate: Option<Immediate>,
    },
    /// One RDMA Read Request for each element that has bytes, because a Request names one sink
    /// (RFC 5040 section 4.4); `sent` counts the bytes that were asked for.
    Read {
        stag: Stag,
        from: TaggedOffset,
        /// The element to look at next.
        next: usize,
    },
    Immediate(Immediate),
    Atomic {
        stag: Stag,
        to: TaggedOffset,
        operation: AtomicOperation,
    },
    Local(Local),
}

impl Work {
    /// Whether the peer answers it: at most ORD of those are outstanding.
    pub(super) fn is_request(&self) -> bool {
        matches!(self.kind, Kind::Read { .. } | Kind::Atomic { .. })
    }

    /// Whether it may have to wait until the peer has answered others.
    pub(super) fn waits_for_responses(&self) -> bool {
        self.is_request() || matches!(self.kind, Kind::Local(_))
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
            Ok(false) => return self.send.pending.settle(&mut ctx.queue_pool.pending),
            Err(fault) => return self.ring_fault(fault),
        }
        let posted = self.posted(&self.send.request.slot, ctx.now);
        let ticket = self
            .send
            .pending
            .push(Entry::new(posted), &mut ctx.queue_pool.pending);
        match self.check_work(ctx) {
            Ok((kind, total)) => {
                self.note_answers(ticket, &kind, total);
                self.send.work = Some(Work {
                    ticket,
                    kind,
                    total,
                    sent: 0,
                });
            }
            Err(status) => self.fail_work(ctx, ticket, status),
        }
    }

    /// What is told of a work request that is taken now when it completes.
    #[inline]
    pub(super) fn posted(&self, slot: &WorkSlot, now: Instant) -> Posted {
        Posted {
            wr_id: slot.wr_id,
            taken: now,
            opcode: slot.opcode,
            signaled: self.id.signal_all || slot.flags & WR_SIGNALED != 0,
        }
    }

    /// Notes with the work what its answers will bring, if the peer answers it.
    #[inline]
    fn note_answers(&mut self, ticket: Ticket, kind: &Kind, total: u32) {
        let sges = self.send.request.sges();
        let entry = match kind {
            Kind::Read { .. } | Kind::Atomic { .. } => self.send.pending.get_mut(ticket),
            _ => None,
        };
        let Some(entry) = entry else {
            return;
        };
        if let Kind::Atomic { .. } = kind {
            entry.read_len = OPERAND_LEN;
            entry.sink = sges.first().copied();
        } else {
            let sinks = sges.iter().filter(|sge| sge.length > 0).count();
            entry.read_len = total;
            // At most MAX_SGE.
            entry.reads_left = sinks.max(1) as u8;
        }
    }

    /// Checks a work request as it was posted. Its memory is checked again for each segment.
    fn check_work(&self, ctx: &QpContext<'_>) -> Result<(Kind, u32), WcStatus> {
        let impossible = WcStatus::LocalQpOperation;
        let request = &self.send.request;
        let (slot, sges) = (&request.slot, request.sges());
        let inline = request.is_inline();
        let fits = if inline {
            slot.inline_len <= self.id.max_inline
                && sges_for_inline(slot.inline_len as usize) == request.num_sge()
        } else {
            request.num_sge() <= self.id.max_sge
        };
        if !fits {
            return Err(impossible);
        }
        // A message is shorter than 2^32 bytes (RFC 5041 section 5.2).
        let total = u32::try_from(request.total_length()).map_err(|_| impossible)?;
        let to = TaggedOffset(slot.remote_addr);
        let opcode = request.opcode().ok_or(impossible)?;
        let tagged = matches!(
            opcode,
            WrOpcode::Write | WrOpcode::WriteImmediate | WrOpcode::Read
        );
        if tagged && to.checked_add(u64::from(total)).is_none() {
            return Err(impossible);
        }
        let [data, mask, compare, compare_mask] = request.operands().ok_or(impossible)?;
        let solicited = slot.flags & WR_SOLICITED != 0;
        let stag = Stag(slot.rkey);
        let send = |invalidate| {
            let kind = SendKind {
                solicited,
                invalidate,
            };
            Kind::Send {
                kind,
                invalidate: stag,
                msn: None,
            }
        };
        let immediate = Immediate { data, solicited };
        let binding = Binding {
            // The two halves of the operand.
            region: Stag(mask as u32),
            base: to,
            len: data,
            access: Access::from_bits((mask >> 32) as u32),
        };
        let atomic = |operation| Kind::Atomic {
            stag,
            to,
            operation,
        };
        // The original value has one place, of its size.
        let one_place = sges.len() == 1 && total == OPERAND_LEN && !inline;
        let atomic_possible = self.send.ord > 0 && one_place;
        let kind = match opcode {
            WrOpcode::Send => send(false),
            WrOpcode::SendInvalidate => send(true),
            WrOpcode::Write => Kind::Write {
                stag,
                to,
                immediate: None,
            },
            WrOpcode::WriteImmediate => Kind::Write {
                stag,
                to,
                immediate: Some(immediate),
            },
            WrOpcode::LocalInvalidate if total == 0 => Kind::Local(Local::Invalidate(stag)),
            WrOpcode::BindWindow if total == 0 => Kind::Local(Local::Bind(stag, binding)),
            WrOpcode::FastRegister if total == 0 => Kind::Local(Local::Register {
                stag,
                binding,
                one_stream: slot.flags & WR_ONE_STREAM != 0,
            }),
            WrOpcode::Immediate if total == 0 => Kind::Immediate(immediate),
            WrOpcode::AtomicFetchAdd if atomic_possible => {
                atomic(AtomicOperation::FetchAdd { add: data, mask })
            }
            WrOpcode::AtomicCompareSwap if atomic_possible => {
                atomic(AtomicOperation::CompareSwap {
                    swap: data,
                    swap_mask: mask,
                    compare,
                    compare_mask,
                })
            }
            WrOpcode::Read if self.send.ord > 0 && !inline => Kind::Read {
                stag,
                from: to,
                next: 0,
            },
            _ => return Err(impossible),
        };
        if inline {
            return Ok((kind, total));
        }
        for sge in sges.iter().filter(|sge| sge.length > 0) {
            let found = match kind {
                Kind::Read { .. } | Kind::Atomic { .. } => {
                    ctx.stags.local_write(sge, self.id.user()).map(|_| ())
                }
                _ => ctx.stags.local_read(sge, self.id.user()).map(|_| ()),
            };
            found.map_err(|_| WcStatus::LocalProtection)?;
        }
        Ok((kind, total))
    }

    /// The RDMA Read Request for a Read's next element that has bytes; for the only one, or none,
    /// when no element has. The responses come in the order of the Requests (RFC 5040 section 5.5),
    /// so the Read has all its bytes with the last response.
    pub(super) fn put_read_request(
        &mut self,
        ctx: &mut QpContext<'_>,
        mut work: Work,
        (stag, from): (Stag, TaggedOffset),
        next: usize,
        ulpdu: &mut Writer<'_>,
    ) -> Result<(), Failed> {
        let sges = self.send.request.sges();
        let filled = |(_, sge): &(usize, &Sge)| sge.length > 0;
        let found = sges.iter().enumerate().skip(next).find(filled);
        let (index, sink) = found
            .or_else(|| sges.iter().enumerate().next())
            .map_or((0, Sge::default()), |(index, sge)| (index, *sge));
        let request = ReadRequest {
            sink_stag: Stag(sink.lkey),
            sink_to: TaggedOffset(sink.addr),
            size: sink.length,
            source_stag: stag,
            // Checked when the work request was taken: the whole Read does not wrap.
            source_to: TaggedOffset(from.0.saturating_add(u64::from(work.sent))),
        };
        let stream = self.stream.as_mut().ok_or(Failed)?;
        let msn = stream.begin_read(work.ticket.0, &request).ok_or(Failed)?;
        let mut bytes = [0; segment::READ_REQUEST_LEN];
        segment::put_read_request(&mut bytes, msn, &request);
        ulpdu.put(0, &bytes);
        self.name_message(work.ticket, Qn::READ_REQUEST, msn);
        ctx.counters.read_requests_sent += 1;
        self.message_done(Turn::Work);
        work.sent = work.sent.saturating_add(sink.length);
        work.kind = Kind::Read {
            stag,
            from,
            next: index + 1,
        };
        self.send.work = (work.sent < work.total).then_some(work);
        Ok(())
    }

    /// A segment of a Send or an RDMA Write.
    pub(super) fn put_payload_segment(
        &mut self,
        ctx: &mut QpContext<'_>,
        ulpdu: &mut Writer<'_>,
    ) -> Result<(), Failed> {
        let work = self.send.work.as_mut().ok_or(Failed)?;
        let header_len = match work.kind {
            Kind::Send { .. } => segment::SEND_LEN,
            _ => segment::WRITE_LEN,
        };
        // No longer than the ULPDU, whose length is 16 bits.
        let len = (ulpdu.ulpdu_len() - header_len) as u32;
        let last = work.sent.saturating_add(len) >= work.total;
        match &mut work.kind {
            Kind::Send {
                kind,
                invalidate,
                msn,
            } => {
                let number = match *msn {
                    Some(number) => number,
                    None => {
                        let number = self.stream.as_mut().ok_or(Failed)?.begin_send();
                        *msn = Some(number);
                        if let Some(entry) = self.send.pending.get_mut(work.ticket) {
                            entry.became(Qn::SEND, number);
                        }
                        number
                    }
                };
                let mo = MessageOffset(work.sent);
                let header = segment::send(*kind, *invalidate, number, mo, last);
                ulpdu.begin(header.to_words());
            }
            Kind::Write { stag, to, .. } => {
                // Checked when the work request was taken: the whole Write does not wrap.
                let to = TaggedOffset(to.0.saturating_add(u64::from(work.sent)));
                ulpdu.begin(segment::write(*stag, to, last).to_words());
            }
            _ => return Err(Failed),
        }
        let (ticket, sent) = (work.ticket, work.sent);
        work.sent = sent.saturating_add(len);
        if self.gather(ctx, sent, ulpdu, header_len).is_err() {
            self.fail_work(ctx, ticket, WcStatus::LocalProtection);
            return Err(Failed);
        }
        ctx.counters.bytes_gathered += u64::from(len);
        if !last {
            self.send.in_message = Some(Turn::Work);
            return Ok(());
        }
        self.message_done(Turn::Work);
        let work = self.send.work.as_mut().ok_or(Failed)?;
        match work.kind {
            Kind::Send { .. } => ctx.counters.sends_sent += 1,
            _ => ctx.counters.writes_sent += 1,
        }
        if let Kind::Write {
            immediate: Some(immediate),
            ..
        } = work.kind
        {
            work.kind = Kind::Immediate(immediate);
            return Ok(());
        }
        self.work_sent(ticket);
        Ok(())
    }

    /// The work under way needs no answer of the peer's: it has ended when it is handed to the LLP.
    pub(super) fn work_sent(&mut self, ticket: Ticket) {
        self.send.work = None;
        self.send.pending.end(ticket, Outcome::SENT);
    }

    /// Copies the work request's bytes from `offset` on to the ULPDU's from `from` on.
    fn gather(
        &self,
        ctx: &QpContext<'_>,
        offset: u32,
        ulpdu: &mut Writer<'_>,
        from: usize,
    ) -> Result<(), Failed> {
        let request = &self.send.request;
        if request.is_inline() {
            return ulpdu.fill(from, ulpdu.ulpdu_len() - from, |at, place| {
                request.copy_inline(offset as usize + at, place);
                Ok(())
            });
        }
        let sges = request.sges();
        let mut at = from;
        for sge in elements::pieces(sges, u64::from(offset), (ulpdu.ulpdu_len() - from) as u32) {
            let source = ctx
                .stags
                .local_read(&sge, self.id.user())
                .map_err(|_| Failed)?;
            Self::copy_out(&source, ulpdu, at, sge.length as usize)?;
            at += sge.length as usize;
        }
        debug_assert!(
            at == ulpdu.ulpdu_len(),
            "the total is the sum of the elements"
        );
        Ok(())
    }

    pub(super) fn name_message(&mut self, ticket: Ticket, qn: Qn, msn: Msn) {
        if let Some(entry) = self.send.pending.get_mut(ticket) {
            entry.became(qn, msn);
        }
    }
}
