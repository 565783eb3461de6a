//! Atomic Operations (RFC 7306 section 5), as requester and as responder.
//!
//! A responder checks a request at its Delivery, and executes it once the requests before it are answered and
//! it can answer too. So operations and Reads happen in the order of their requests.

use rnic_ipc::control::Access;
use rnic_ipc::work::WrOpcode;
use rnic_proto::rdmap::atomic::OPERAND_LEN;
use rnic_proto::rdmap::{
    AtomicOperation, AtomicRequest, AtomicResponse, Offending, RdmapError, TerminateError, segment,
};
use rnic_proto::{Msn, Qn, Stag, TaggedOffset};

use super::pending::Ticket;
use super::response::Response;
use super::source::{Failed, Source};
use super::terminate::{count_refusal, source_error};
use super::work::Work;
use super::{Qp, QpContext};

impl Qp {
    pub(super) fn put_atomic_request(
        &mut self,
        ctx: &mut QpContext<'_>,
        work: &Work,
        out: &mut [u8],
    ) -> Result<(), Failed> {
        let request = &self.send.request;
        let [data, mask, compare, compare_mask] = request.operands().ok_or(Failed)?;
        let operation = match request.opcode() {
            Some(WrOpcode::AtomicFetchAdd) => AtomicOperation::FetchAdd { add: data, mask },
            _ => AtomicOperation::CompareSwap {
                swap: data,
                swap_mask: mask,
                compare,
                compare_mask,
            },
        };
        let (stag, to) = (
            Stag(request.slot.rkey),
            TaggedOffset(request.slot.remote_addr),
        );
        let stream = self.stream.as_mut().ok_or(Failed)?;
        let begun = stream.begin_atomic(work.ticket.0, stag, to, operation);
        let (msn, request) = begun.ok_or(Failed)?;
        segment::put_atomic_request(out, msn, &request);
        self.name_message(work.ticket, Qn::READ_REQUEST, msn);
        ctx.counters.atomic_requests_sent += 1;
        self.message_done(Source::Work);
        self.send.work = None;
        Ok(())
    }

    /// Puts the original value, in host order, where the work request wants it. That is our own
    /// region, checked when the work was posted: if it can't be written now, its owner took it away.
    pub(super) fn place_atomic_response(
        &mut self,
        ctx: &mut QpContext<'_>,
        token: u64,
        original: u64,
    ) -> Result<(), TerminateError> {
        let entry = self.send.pending.get_mut(Ticket(token));
        let sink = entry.and_then(|entry| entry.sink);
        let sink = sink.ok_or(RdmapError::LocalCatastrophic)?;
        let written = ctx
            .stags
            .local_write(&sink, self.id.user())
            .is_ok_and(|sink| sink.write(0, &original.to_ne_bytes()).is_ok());
        if !written {
            self.fail_response(ctx, token);
            return Err(RdmapError::LocalCatastrophic.into());
        }
        ctx.counters.bytes_placed += u64::from(OPERAND_LEN);
        Ok(())
    }

    /// The operation is complete (RFC 7306 section 5.4, rule 7).
    pub(super) fn deliver_atomic_response(&mut self, ctx: &mut QpContext<'_>, token: u64) {
        ctx.counters.atomic_responses_received += 1;
        self.send.pending.responded(Ticket(token));
        self.complete_ended(ctx);
    }

    pub(super) fn deliver_atomic_request(
        &mut self,
        ctx: &mut QpContext<'_>,
        msn: Msn,
        request: AtomicRequest,
    ) -> Result<(), TerminateError> {
        ctx.counters.atomic_requests_received += 1;
        let AtomicRequest { stag, to, .. } = request;
        let allowed = self.check_peer_access(Access::REMOTE_ATOMIC, stag);
        let user = self.id.user();
        let found = allowed.and_then(|()| ctx.stags.remote_atomic(stag, to, user).map(|_| ()));
        if let Err(error) = found {
            count_refusal(ctx, error);
            return Err(source_error(error));
        }
        self.respond(ctx, Response::Atomic { msn, request });
        Ok(())
    }

    /// Does an operation and answers it. The memory is checked again: it may have been revoked. Where
    /// others never stop changing the word it is not done yet ([`Qp::has_more_local_work`]).
    pub(super) fn put_atomic_response(
        &mut self,
        ctx: &mut QpContext<'_>,
        msn: Msn,
        request: &AtomicRequest,
        out: &mut [u8],
    ) -> Result<(), Failed> {
        let target = ctx
            .stags
            .remote_atomic(request.stag, request.to, self.id.user());
        let original = match target {
            Ok(target) => match target.apply(request.operation).map_err(|_| Failed)? {
                Some(original) => original,
                None => {
                    self.send.word_busy = true;
                    return Err(Failed);
                }
            },
            Err(error) => {
                count_refusal(ctx, error);
                let mut bytes = [0; segment::ATOMIC_REQUEST_LEN];
                segment::put_atomic_request(&mut bytes, msn, request);
                let offending = Offending::of(&&bytes[..]);
                self.fail(source_error(error), Some(&offending));
                return Err(Failed);
            }
        };
        let number = self.stream.as_mut().ok_or(Failed)?.begin_atomic_response();
        let response = AtomicResponse {
            identifier: request.identifier,
            original,
        };
        segment::put_atomic_response(out, number, &response);
        ctx.counters.atomic_responses_sent += 1;
        self.response_done(ctx);
        Ok(())
    }
}
