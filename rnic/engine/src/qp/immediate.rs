//! Immediate Data (RFC 7306 section 6): eight bytes that consume a receive as a Send does and lie
//! in its completion; none of the receive's memory is touched.

use rnic_ipc::work::{Completion, WC_SOLICITED, WC_WITH_IMMEDIATE, WR_SOLICITED, WcStatus};
use rnic_proto::rdmap::{TerminateError, segment};
use rnic_proto::{Msn, Qn};

use super::source::{Failed, Source};
use super::work::Work;
use super::{Qp, QpContext};

impl Qp {
    pub(super) fn put_immediate(
        &mut self,
        ctx: &mut QpContext<'_>,
        work: &Work,
        out: &mut [u8],
    ) -> Result<(), Failed> {
        let request = &self.send.request;
        let solicited = request.slot.flags & WR_SOLICITED != 0;
        let [data, ..] = request.operands().ok_or(Failed)?;
        let msn = self.stream.as_mut().ok_or(Failed)?.begin_send();
        segment::put_immediate(out, solicited, msn, data);
        self.name_message(work.ticket, Qn::SEND, msn);
        ctx.counters.immediates_sent += 1;
        self.message_done(Source::Work);
        Ok(())
    }

    /// Takes the receive that it consumes.
    pub(super) fn place_immediate(
        &mut self,
        ctx: &mut QpContext<'_>,
        msn: Msn,
    ) -> Result<(), TerminateError> {
        if self.receive.is_for(msn) {
            return Ok(());
        }
        self.take_receive(ctx, msn)
    }

    pub(super) fn deliver_immediate(
        &mut self,
        ctx: &mut QpContext<'_>,
        solicited: bool,
        data: u64,
    ) {
        ctx.counters.immediates_received += 1;
        let mut completion = Completion {
            immediate: data,
            ..self.receive_completion()
        };
        completion.flags |= WC_WITH_IMMEDIATE;
        if solicited {
            completion.flags |= WC_SOLICITED;
        }
        self.receive.drop_current();
        self.complete_receive(ctx, WcStatus::Success, completion, solicited);
    }
}
