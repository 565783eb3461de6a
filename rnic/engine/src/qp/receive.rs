//! Receiving: FPDUs are checked, placed, and delivered (RFC 5040 section 7.2, RFC 5041 sections
//! 5.3 and 7.1). Placement and Delivery are two steps: [`Qp::place`] copies and tells nobody,
//! [`Qp::deliver`] acts on what the LLP has in order and touches no payload.

use rnic_ipc::control::{Access, QpState};
use rnic_ipc::work::{
    Completion, Sge, WC_SOLICITED, WC_WITH_IMMEDIATE, WC_WITH_INVALIDATE, WcStatus,
    immediate_of_send,
};
use rnic_proto::ddp::{DdpError, Header};
use rnic_proto::mpa::MpaError;
use rnic_proto::mpa::fpdu::{self, Layout};
use rnic_proto::rdmap::{
    Inbound, Offending, RdmapError, ReadRequest, SendKind, SendWord, TerminateError,
};
use rnic_proto::{Bytes, MessageOffset, Msn, Stag, TaggedOffset};

use super::message::RTR_TOKEN;
use super::pending::{Outcome, Ticket};
use super::response::{ReadResponse, Response};
use super::terminate::{count_refusal, source_error, tagged_error};
use super::{Qp, QpContext, QpCounters, elements};
use crate::stag::{StagTable, User, WriteGrant};

impl Qp {
    /// Takes in one whole FPDU, whose CRC is to be looked at or not.
    #[inline]
    pub(super) fn receive_fpdu<'a>(
        &mut self,
        ctx: &mut QpContext<'_>,
        fpdu: &impl Bytes<'a>,
        layout: &Layout,
        crc: bool,
    ) {
        if layout.has_markers() {
            return self.receive_marked(ctx, fpdu, layout, crc);
        }
        let ulpdu = fpdu::check(fpdu, layout, crc)
            .and_then(|()| fpdu::ulpdu(fpdu, layout).ok_or(MpaError::CrcMismatch));
        match ulpdu {
            Ok(ulpdu) => self.receive_ulpdu(ctx, &ulpdu),
            Err(error) => self.bad_fpdu(ctx, error),
        }
    }

    /// One with Markers. A function of its own, so that those without are no further from each other.
    #[inline(never)]
    fn receive_marked<'a>(
        &mut self,
        ctx: &mut QpContext<'_>,
        fpdu: &impl Bytes<'a>,
        layout: &Layout,
        crc: bool,
    ) {
        match fpdu::verify(fpdu, layout, crc) {
            Ok(ulpdu) => self.receive_ulpdu(ctx, &ulpdu),
            Err(error) => self.bad_fpdu(ctx, error),
        }
    }

    #[cold]
    fn bad_fpdu(&mut self, ctx: &mut QpContext<'_>, error: MpaError) {
        match error {
            MpaError::MarkerMismatch => ctx.counters.marker_errors += 1,
            _ => ctx.counters.crc_errors += 1,
        }
        self.fail(error.into(), None);
    }

    /// Takes in the ULPDU of a verified FPDU.
    #[inline(always)]
    pub(super) fn receive_ulpdu<'a>(&mut self, ctx: &mut QpContext<'_>, ulpdu: &impl Bytes<'a>) {
        ctx.counters.fpdus_received += 1;
        self.send.allow();
        let Some(stream) = self.stream.as_mut() else {
            return;
        };
        let header = Header::parse(ulpdu);
        let payload = header.and_then(|header| ulpdu.tail(header.payload_offset()));
        match (header, payload) {
            (Some(Header::Tagged(header)), Some(payload)) => {
                let inbound = stream.classify_tagged(&header, payload.len());
                self.take_in(ctx, ulpdu, Some(&payload), inbound);
            }
            (Some(Header::Untagged(header)), Some(payload)) => {
                match stream.classify_send(&header, payload.len()) {
                    Some(inbound) => self.take_in(ctx, ulpdu, Some(&payload), Ok(inbound)),
                    None => self.receive_other(ctx, ulpdu),
                }
            }
            _ => self.receive_other(ctx, ulpdu),
        }
    }

    /// Takes in a ULPDU that has no payload to be placed, most likely.
    fn receive_other<'a>(&mut self, ctx: &mut QpContext<'_>, ulpdu: &impl Bytes<'a>) {
        let Some(stream) = self.stream.as_mut() else {
            return;
        };
        let inbound = stream.classify(ulpdu);
        let payload_at = inbound.as_ref().map_or(0, Inbound::payload_offset);
        if let Some(payload) = ulpdu.tail(payload_at) {
            self.take_in(ctx, ulpdu, Some(&payload), inbound);
        }
    }

    /// Places and delivers what the next ULPDU in order turned out to be; without its payload, which
    /// then lies in its place already, as [`Self::place`] does.
    #[inline(always)]
    pub(super) fn take_in<'a>(
        &mut self,
        ctx: &mut QpContext<'_>,
        ulpdu: &impl Bytes<'a>,
        payload: Option<&impl Bytes<'a>>,
        inbound: Result<Inbound, TerminateError>,
    ) {
        // Not by closures, which stay functions of their own: that took 70 instructions more.
        let done = match inbound {
            Ok(inbound) => match self.place(ctx, &inbound, payload) {
                Ok(()) => self.deliver(ctx, &inbound),
                refused => refused,
            },
            Err(error) => {
                count_protocol(ctx, error);
                Err(error)
            }
        };
        if let Err(error) = done
            && !self.holds_refused(ctx, payload.is_some())
        {
            self.fail(error, Some(&Offending::of(ulpdu)));
        }
    }

    /// Copies a segment's payload to its final place, if that allows it; of one that lies there
    /// already, without a payload, only this is looked at.
    #[inline(always)]
    fn place<'a>(
        &mut self,
        ctx: &mut QpContext<'_>,
        inbound: &Inbound,
        payload: Option<&impl Bytes<'a>>,
    ) -> Result<(), TerminateError> {
        match *inbound {
            Inbound::Write { stag, to, len, .. } if len > 0 => {
                self.place_write(ctx, stag, to, len, payload)
            }
            Inbound::ReadResponse {
                token,
                stag,
                to,
                len,
                ..
            } if len > 0 => self.place_read_response(ctx, token, stag, to, len, payload),
            Inbound::Send { msn, mo, len, .. } => self.place_send(ctx, msn, mo, len, payload),
            Inbound::Immediate { msn, .. } => self.place_immediate(ctx, msn),
            Inbound::AtomicResponse { token, original } => {
                self.place_atomic_response(ctx, token, original)
            }
            _ => Ok(()),
        }
    }

    #[inline]
    fn place_write<'a>(
        &mut self,
        ctx: &mut QpContext<'_>,
        stag: Stag,
        to: TaggedOffset,
        len: u32,
        payload: Option<&impl Bytes<'a>>,
    ) -> Result<(), TerminateError> {
        let allowed = self.check_peer_access(Access::REMOTE_WRITE, stag);
        let found = allowed.and_then(|()| ctx.stags.remote_write(stag, to, len, self.id.user()));
        match found {
            Ok(sink) => put(&sink, payload, ctx.counters),
            Err(error) => {
                count_refusal(ctx, error);
                Err(tagged_error(error))
            }
        }
    }

    /// The sink is our own region, checked when the Read was posted: if it can't be written now,
    /// its owner took it away.
    fn place_read_response<'a>(
        &mut self,
        ctx: &mut QpContext<'_>,
        token: u64,
        stag: Stag,
        to: TaggedOffset,
        len: u32,
        payload: Option<&impl Bytes<'a>>,
    ) -> Result<(), TerminateError> {
        let sink = read_sink(stag, to, len);
        match ctx.stags.local_write(&sink, self.id.user()) {
            Ok(sink) => put(&sink, payload, ctx.counters),
            Err(error) => {
                self.fail_response(ctx, token);
                Err(tagged_error(error))
            }
        }
    }

    /// What the peer answers can't be placed: the client's own fault.
    pub(super) fn fail_response(&mut self, ctx: &mut QpContext<'_>, token: u64) {
        ctx.counters.local_errors += 1;
        self.ending.own_fault = true;
        let outcome = Outcome {
            status: WcStatus::LocalProtection,
            byte_len: 0,
        };
        self.send.pending.end_up_to(Ticket(token), outcome);
        self.complete_ended(ctx);
    }

    fn place_send<'a>(
        &mut self,
        ctx: &mut QpContext<'_>,
        msn: Msn,
        mo: MessageOffset,
        len: u32,
        payload: Option<&impl Bytes<'a>>,
    ) -> Result<(), TerminateError> {
        self.hold_receive(ctx, msn, mo, len)?;
        let sges = self.receive.request.sges();
        if scatter(ctx.stags, self.id.user(), sges, (mo, len), payload).is_err() {
            ctx.counters.local_errors += 1;
            self.fail_receive(ctx, WcStatus::LocalProtection);
            return Err(RdmapError::LocalCatastrophic.into());
        }
        if payload.is_some() {
            ctx.counters.bytes_placed += u64::from(len);
        }
        Ok(())
    }

    /// Sees to it that the receive of a Send is in hand and has room for this segment of it.
    pub(super) fn hold_receive(
        &mut self,
        ctx: &mut QpContext<'_>,
        msn: Msn,
        mo: MessageOffset,
        len: u32,
    ) -> Result<(), TerminateError> {
        if !self.receive.is_for(msn) {
            self.take_receive(ctx, msn)?;
        }
        let end = u64::from(mo.0) + u64::from(len);
        if end > self.receive.request.total_length() {
            ctx.counters.refused_send_too_long += 1;
            self.fail_receive(ctx, WcStatus::LocalLength);
            return Err(DdpError::MessageTooLong.into());
        }
        Ok(())
    }

    /// Takes the receive that a Send consumes: the oldest that is posted.
    pub(super) fn take_receive(
        &mut self,
        ctx: &mut QpContext<'_>,
        msn: Msn,
    ) -> Result<(), TerminateError> {
        match self.receive.pop(ctx.srqs, self.hold.yields()) {
            Ok(true) => self.hold.receive_taken(),
            Ok(false) => {
                let may_hold = self.state == QpState::Rts;
                if !(may_hold && self.hold.begin(msn, ctx.now)) {
                    ctx.counters.refused_no_receive += 1;
                }
                return Err(DdpError::NoBuffer.into());
            }
            Err(fault) => {
                self.ring_fault(fault);
                return Err(RdmapError::LocalCatastrophic.into());
            }
        }
        self.receive.begin(msn);
        let possible = self.receive.is_possible(&self.receive.request);
        if !possible {
            ctx.counters.local_errors += 1;
            self.fail_receive(ctx, WcStatus::LocalQpOperation);
            return Err(RdmapError::LocalCatastrophic.into());
        }
        Ok(())
    }

    fn fail_receive(&mut self, ctx: &mut QpContext<'_>, status: WcStatus) {
        self.receive.drop_current();
        let completion = self.receive_completion();
        self.complete_receive(ctx, status, completion, false);
    }

    pub(super) fn receive_completion(&self) -> Completion {
        let slot = &self.receive.request.slot;
        Completion {
            wr_id: slot.wr_id,
            opcode: slot.opcode,
            flags: slot.completion_flags(),
            ..Completion::default()
        }
    }

    /// Acts on a segment that the LLP has in order.
    #[inline(always)]
    fn deliver(
        &mut self,
        ctx: &mut QpContext<'_>,
        inbound: &Inbound,
    ) -> Result<(), TerminateError> {
        match *inbound {
            Inbound::Write { last: true, .. } => ctx.counters.writes_received += 1,
            Inbound::ReadResponse {
                token, last: true, ..
            } => self.deliver_read(ctx, token),
            Inbound::Send {
                kind,
                word,
                mo,
                len,
                last: true,
                ..
            } => {
                let length = mo.0.saturating_add(len);
                return self.deliver_send(ctx, kind, word, length);
            }
            Inbound::ReadRequest { msn, request } => {
                return self.deliver_read_request(ctx, msn, request);
            }
            Inbound::Immediate {
                solicited, data, ..
            } => self.deliver_immediate(ctx, solicited, data),
            Inbound::AtomicRequest { msn, request } => {
                return self.deliver_atomic_request(ctx, msn, request);
            }
            Inbound::AtomicResponse { token, .. } => self.deliver_atomic_response(ctx, token),
            Inbound::Terminate(terminate) => self.receive_terminate(ctx, &terminate),
            _ => {}
        }
        Ok(())
    }

    fn deliver_read(&mut self, ctx: &mut QpContext<'_>, token: u64) {
        ctx.counters.read_responses_received += 1;
        if token == RTR_TOKEN {
            return;
        }
        self.send.pending.responded(Ticket(token));
        self.complete_ended(ctx);
    }

    fn deliver_send(
        &mut self,
        ctx: &mut QpContext<'_>,
        kind: SendKind,
        word: u32,
        length: u32,
    ) -> Result<(), TerminateError> {
        let mut completion = Completion {
            byte_len: length,
            ..self.receive_completion()
        };
        match kind.word {
            SendWord::Unused => {}
            SendWord::Immediate => {
                completion.flags |= WC_WITH_IMMEDIATE;
                completion.immediate = immediate_of_send(word);
            }
            SendWord::Invalidate => {
                if ctx.stags.invalidate(Stag(word), self.id.user()).is_err() {
                    ctx.counters.refused_invalidate += 1;
                    return Err(RdmapError::CannotInvalidate.into());
                }
                ctx.counters.stags_invalidated += 1;
                completion.flags |= WC_WITH_INVALIDATE;
                completion.invalidated = word;
            }
        }
        if kind.solicited {
            completion.flags |= WC_SOLICITED;
        }
        ctx.counters.sends_received += 1;
        self.receive.drop_current();
        self.complete_receive(ctx, WcStatus::Success, completion, kind.solicited);
        Ok(())
    }

    fn deliver_read_request(
        &mut self,
        ctx: &mut QpContext<'_>,
        msn: Msn,
        request: ReadRequest,
    ) -> Result<(), TerminateError> {
        ctx.counters.read_requests_received += 1;
        if request.size > 0 {
            let ReadRequest {
                source_stag,
                source_to,
                size,
                ..
            } = request;
            let allowed = self.check_peer_access(Access::REMOTE_READ, source_stag);
            let user = self.id.user();
            let found =
                allowed.and_then(|()| ctx.stags.remote_read(source_stag, source_to, size, user));
            if let Err(error) = found {
                count_refusal(ctx, error);
                return Err(source_error(error));
            }
        }
        self.respond(ctx, Response::Read(ReadResponse::new(msn, request)));
        Ok(())
    }

    pub(super) fn respond(&mut self, ctx: &mut QpContext<'_>, response: Response) {
        if self.state == QpState::Rts {
            self.send.respond(response, &mut ctx.queue_pool.responses);
        } else if let Some(stream) = &mut self.stream {
            // After our FIN there is no way to answer; the peer learns it from the FIN.
            response.done(stream);
        }
    }
}

/// The sink of a Read as the element that was posted.
pub(super) fn read_sink(stag: Stag, to: TaggedOffset, len: u32) -> Sge {
    Sge {
        addr: to.0,
        length: len,
        lkey: stag.0,
    }
}

/// Copies a segment of a Send to the elements of its receive, which have room for it; without a
/// payload, looks whether that is allowed.
pub(super) fn scatter<'a>(
    stags: &StagTable,
    user: User,
    sges: &[Sge],
    (mo, len): (MessageOffset, u32),
    payload: Option<&impl Bytes<'a>>,
) -> Result<(), TerminateError> {
    let catastrophic = RdmapError::LocalCatastrophic;
    let mut from = 0;
    for sge in elements::pieces(sges, u64::from(mo.0), len) {
        let sink = stags.local_write(&sge, user).map_err(|_| catastrophic)?;
        if let Some(payload) = payload {
            let part = payload.sub(from, sge.length as usize).ok_or(catastrophic)?;
            copy_in(&sink, &part)?;
        }
        from += sge.length as usize;
    }
    Ok(())
}

/// Copies a whole payload, if there is one, to its sink, and counts it.
#[inline]
fn put<'a>(
    sink: &WriteGrant<'_>,
    payload: Option<&impl Bytes<'a>>,
    counters: &mut QpCounters,
) -> Result<(), TerminateError> {
    if let Some(payload) = payload {
        copy_in(sink, payload)?;
        counters.bytes_placed += payload.len() as u64;
    }
    Ok(())
}

/// Copies a whole payload to its sink.
#[inline]
pub(super) fn copy_in<'a>(
    sink: &WriteGrant<'_>,
    payload: &impl Bytes<'a>,
) -> Result<(), TerminateError> {
    let copied = sink.write_bytes(payload);
    copied.map_err(|_| DdpError::LocalCatastrophic.into())
}

fn count_protocol(ctx: &mut QpContext<'_>, error: TerminateError) {
    // Of what the stream judges, only a Read Request beyond the IRD has no buffer.
    if error == TerminateError::Ddp(DdpError::NoBuffer) {
        ctx.counters.refused_ird_exceeded += 1;
    } else {
        ctx.counters.refused_protocol += 1;
    }
}
