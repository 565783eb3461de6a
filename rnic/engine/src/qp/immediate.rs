//! Immediate Data (RFC 7306 section 6): eight bytes that consume a receive as a Send does and lie
//! in its completion; none of the receive's memory is touched.

use rnic_ipc::work::{Completion, WC_SOLICITED, WC_WITH_IMMEDIATE, WcStatus};
use rnic_proto::mpa::fpdu::Writer;
use rnic_proto::rdmap::{TerminateError, segment};
use rnic_proto::{Msn, Qn};

use super::send::{Failed, Turn};
use super::work::Work;
use super::{Qp, QpContext};

/// What is sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Immediate {
    pub data: u64,
    pub solicited: bool,
}

impl Qp {
    pub(super) fn put_immediate(
        &mut self,
        ctx: &mut QpContext<'_>,
        work: &Work,
        immediate: Immediate,
        ulpdu: &mut Writer<'_>,
    ) -> Result<(), Failed> {
        let msn = self.stream.as_mut().ok_or(Failed)?.begin_send();
        let mut bytes = [0; segment::IMMEDIATE_LEN];
        segment::put_immediate(&mut bytes, immediate.solicited, msn, immediate.data);
        ulpdu.put(0, &bytes);
        self.name_message(work.ticket, Qn::SEND, msn);
        ctx.counters.immediates_sent += 1;
        self.message_done(Turn::Work);
        self.work_sent(work.ticket);
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
            flags: WC_WITH_IMMEDIATE,
            ..self.receive_completion()
        };
        if solicited {
            completion.flags |= WC_SOLICITED;
        }
        self.receive.drop_current();
        self.complete_receive(ctx, WcStatus::Success, completion, solicited);
    }
}
