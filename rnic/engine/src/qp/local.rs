//! Work of the send queue that sends nothing: Local Invalidate, fast registration, and the binding of
//! memory windows. Each is done in its turn, and waits for the answers to the Reads and atomics
//! before it, whose memory it may be about.

use rnic_ipc::control::Access;
use rnic_ipc::ring::WorkRequest;
use rnic_ipc::work::{WR_ONE_STREAM, WcStatus, WrOpcode};
use rnic_proto::{Stag, TaggedOffset};

use super::pending::{Outcome, Ticket};
use super::work::{Kind, Work};
use super::{Qp, QpContext};
use crate::stag::{Binding, Look};

#[derive(Clone, Copy, Debug)]
enum Local {
    Invalidate(Stag),
    Bind(Stag, Binding),
    Register {
        stag: Stag,
        binding: Binding,
        /// Only this queue pair's stream may use it.
        one_stream: bool,
    },
}

impl Local {
    fn of(request: &WorkRequest) -> Option<Self> {
        let slot = &request.slot;
        let stag = Stag(slot.rkey);
        let [len, word, ..] = request.operands()?;
        let binding = Binding {
            // The two halves of the operand.
            region: Stag(word as u32),
            base: TaggedOffset(slot.remote_addr),
            len,
            access: Access::from_bits((word >> 32) as u32),
        };
        match request.opcode()? {
            WrOpcode::LocalInvalidate => Some(Self::Invalidate(stag)),
            WrOpcode::BindWindow => Some(Self::Bind(stag, binding)),
            WrOpcode::FastRegister => Some(Self::Register {
                stag,
                binding,
                one_stream: slot.flags & WR_ONE_STREAM != 0,
            }),
            _ => None,
        }
    }
}

impl Qp {
    /// Does the work under way if it is local and its time has come.
    pub(super) fn do_local_work(&mut self, ctx: &mut QpContext<'_>) -> bool {
        let Some(Work { ticket, kind, .. }) = self.send.work else {
            return false;
        };
        match kind {
            Kind::LocalLeft(others) => return self.finish_local_work(ctx, ticket, others),
            Kind::Local if !self.has_outstanding_reads() => {}
            _ => return false,
        }
        let user = self.id.user();
        let done = match Local::of(&self.send.request) {
            Some(Local::Invalidate(stag)) => {
                let done = ctx.stags.local_invalidate(stag, user);
                done.map_err(|error| error.to_string())
            }
            Some(Local::Bind(window, binding)) => {
                let done = ctx.stags.bind(window, user, &binding);
                done.map_err(|error| error.to_string())
            }
            Some(Local::Register {
                stag,
                binding,
                one_stream,
            }) => {
                let stream = one_stream.then_some(user.qp);
                let done = ctx.stags.fast_register(stag, user, stream, &binding);
                done.map(|()| None).map_err(|error| error.to_string())
            }
            None => Err("no local work".to_owned()),
        };
        match done {
            Ok(None) => self.local_work_done(ctx, ticket),
            Ok(Some(others)) => {
                if let Some(work) = &mut self.send.work {
                    work.kind = Kind::LocalLeft(others);
                }
                return self.finish_local_work(ctx, ticket, others);
            }
            Err(error) => {
                log::debug!("queue pair {}: {error}", self.id.num);
                self.send.work = None;
                self.fail_work(ctx, ticket, WcStatus::LocalProtection);
            }
        }
        true
    }

    /// Completes work that took rights away, if no other shard uses them any more. Else it is to be asked again soon.
    fn finish_local_work(&mut self, ctx: &mut QpContext<'_>, ticket: Ticket, others: Look) -> bool {
        let left = ctx.stags.others_have_moved_on(others);
        self.send.more_local = !left;
        if left {
            self.local_work_done(ctx, ticket);
        }
        left
    }

    fn local_work_done(&mut self, ctx: &mut QpContext<'_>, ticket: Ticket) {
        ctx.counters.local_work_done += 1;
        self.send.work = None;
        self.send.pending.end(ticket, Outcome::SENT);
        self.complete_all_ended(ctx);
    }
}
