//! Work of the send queue that sends nothing: Local Invalidate, fast registration, and the binding of
//! memory windows. Each is done in its turn, and waits for the answers to the Reads and atomics
//! before it, whose memory it may be about.

use rnic_ipc::work::WcStatus;
use rnic_proto::Stag;

use super::work::{Kind, Work};
use super::{Qp, QpContext};
use crate::stag::Binding;

/// What is done.
#[derive(Clone, Copy, Debug)]
pub(super) enum Local {
    Invalidate(Stag),
    Bind(Stag, Binding),
    Register {
        stag: Stag,
        binding: Binding,
        /// Only this queue pair's stream may use it.
        one_stream: bool,
    },
}

impl Qp {
    /// Does the work under way if it is local and its time has come.
    pub(super) fn do_local_work(&mut self, ctx: &mut QpContext<'_>) -> bool {
        let Some(Work {
            ticket,
            kind: Kind::Local(local),
            ..
        }) = self.send.work
        else {
            return false;
        };
        let stream = self.stream.as_ref();
        if stream.is_none_or(|stream| stream.outstanding_reads().next().is_some()) {
            return false;
        }
        let user = self.id.user();
        let done = match local {
            Local::Invalidate(stag) => ctx
                .stags
                .local_invalidate(stag, user)
                .map_err(|error| error.to_string()),
            Local::Bind(window, binding) => ctx
                .stags
                .bind(window, user, &binding)
                .map_err(|error| error.to_string()),
            Local::Register {
                stag,
                binding,
                one_stream,
            } => ctx
                .stags
                .fast_register(stag, user, one_stream.then_some(user.qp), &binding)
                .map_err(|error| error.to_string()),
        };
        match done {
            Ok(()) => {
                ctx.counters.local_work_done += 1;
                self.work_sent(ticket);
                self.complete_all_ended(ctx);
            }
            Err(error) => {
                log::debug!("queue pair {}: {error}", self.id.num);
                self.send.work = None;
                self.fail_work(ctx, ticket, WcStatus::LocalProtection);
            }
        }
        true
    }
}
