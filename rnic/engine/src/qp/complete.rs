//! Completions and the flush (RFC 5040 section 5.5, rules 14, 15 and 19).

use rnic_ipc::control::QpState;
use rnic_ipc::work::{Completion, WcStatus};

use super::pending::{Outcome, Posted};
use super::{Qp, QpContext, WorkClass};

impl Qp {
    /// Completes the work of the send queue that has ended and has nothing unfinished before it.
    pub(super) fn complete_ended(&mut self, ctx: &mut QpContext<'_>) {
        self.complete_all_ended(ctx);
        self.send
            .pending
            .release_if_empty(&mut ctx.queue_pool.pending);
    }

    /// As above, without giving memory back.
    pub(super) fn complete_all_ended(&mut self, ctx: &mut QpContext<'_>) {
        while let Some((posted, outcome)) = self.send.pending.pop_ended() {
            self.complete_send(ctx, posted, outcome);
        }
    }

    #[inline(always)]
    pub(super) fn complete_send(
        &mut self,
        ctx: &mut QpContext<'_>,
        posted: Posted,
        outcome: Outcome,
    ) {
        count(ctx, outcome.status);
        let success = outcome.status == WcStatus::Success;
        if success && let Some(class) = WorkClass::of(posted.opcode) {
            let took = ctx.now.saturating_duration_since(posted.taken);
            ctx.times.of_mut(class).record(took);
        }
        if success && !posted.signaled {
            return;
        }
        let completion = Completion {
            wr_id: posted.wr_id,
            qp: self.id.num.0,
            byte_len: outcome.byte_len,
            status: outcome.status as u8,
            opcode: posted.opcode,
            flags: posted.flags,
            ..Completion::default()
        };
        // A failed CQ is reported to the shard by the CQ table itself.
        let _ = ctx.cqs.push(self.id.send_cq, &completion, !success);
    }

    /// Completes a receive; `completion` has what the message brought.
    pub(super) fn complete_receive(
        &mut self,
        ctx: &mut QpContext<'_>,
        status: WcStatus,
        completion: Completion,
        solicited: bool,
    ) {
        count(ctx, status);
        let completion = Completion {
            qp: self.id.num.0,
            status: status as u8,
            ..completion
        };
        let solicited = solicited || status != WcStatus::Success;
        // As above.
        let _ = ctx.cqs.push(self.id.recv_cq, &completion, solicited);
    }

    /// The end of all work: nothing of the application's memory is touched any more, and rights given to this
    /// stream's peer do not pass to a later peer.
    pub(super) fn enter_error(&mut self, ctx: &mut QpContext<'_>) {
        self.state = QpState::Error;
        self.hold.reset();
        self.ending.stop();
        self.ending.close = None;
        self.stream = None;
        ctx.stags.stream_ended(self.id.num);
        self.send.close();
        ctx.queue_pool
            .responses
            .release_if_empty(&mut self.send.responses);
        self.flush(ctx);
    }

    /// Completes everything that is posted, each queue in order: as flushed from the first piece of
    /// work on that has not ended.
    pub(super) fn flush(&mut self, ctx: &mut QpContext<'_>) {
        while let Some((posted, outcome)) = self.send.pending.pop() {
            self.complete_send(ctx, posted, outcome);
        }
        self.send
            .pending
            .release_if_empty(&mut ctx.queue_pool.pending);
        if self.receive.drop_current() {
            self.flush_receive(ctx);
        }
        if self.rings_dead {
            return;
        }
        // A client that posts while its work is flushed can't hold the shard here: no more is
        // taken than a ring can hold.
        for _ in 0..self.send.ring.capacity() {
            match self.send.ring.pop(&mut self.send.request) {
                Ok(true) => {
                    let posted = self.posted(&self.send.request.slot, ctx.now);
                    self.complete_send(ctx, posted, Outcome::FLUSHED);
                }
                Ok(false) => break,
                Err(fault) => return self.ring_fault(fault),
            }
        }
        self.flush_own_receives(ctx);
    }

    fn flush_own_receives(&mut self, ctx: &mut QpContext<'_>) {
        let most = self
            .receive
            .own_mut()
            .map_or(0, |(ring, _)| ring.capacity());
        for _ in 0..most {
            let taken = self.receive.own_mut().map(|(ring, into)| ring.pop(into));
            match taken {
                Some(Ok(true)) => self.flush_receive(ctx),
                Some(Ok(false)) | None => break,
                Some(Err(fault)) => return self.ring_fault(fault),
            }
        }
    }

    fn flush_receive(&mut self, ctx: &mut QpContext<'_>) {
        let completion = self.receive_completion();
        self.complete_receive(ctx, WcStatus::WorkRequestFlushed, completion, false);
    }
}

fn count(ctx: &mut QpContext<'_>, status: WcStatus) {
    let counter = match status {
        WcStatus::Success => &mut ctx.counters.work_completed,
        WcStatus::WorkRequestFlushed => &mut ctx.counters.work_flushed,
        _ => &mut ctx.counters.work_failed,
    };
    *counter += 1;
}
