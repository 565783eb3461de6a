//! Queue pairs that are joined by number (`docs/architecture/join.md`): how they differ from those that a connection
//! manager connects.
//!
//! A Send or an RDMA Write completes when the peer's TCP has acknowledged its last byte. A peer that goes away while
//! nothing is sent is not told: the next that is to be sent fails.

use std::collections::VecDeque;

use rnic_ipc::control::{DisconnectReason, QpState};
use rnic_ipc::work::WrOpcode;
use rnic_proto::{Stag, TaggedOffset, ddp};

use super::pending::{Outcome, Ticket};
use super::send::SendSide;
use super::terminate::Ending;
use super::{Qp, QpContext, WrongQpState};

#[derive(Debug)]
pub(super) struct Joined {
    /// What a responder has to answer to be the one that is meant.
    reply: Box<[u8]>,
    /// What was handed to TCP and is not acknowledged, in order; at most as much as may be pending.
    sent: VecDeque<Sent>,
    /// The peer went away while nothing was sent.
    peer_lost: bool,
}

/// A message that was handed to TCP.
#[derive(Clone, Copy, Debug)]
struct Sent {
    ticket: Ticket,
    /// Where it ends, in the count of [`super::send::SendSide::at`].
    end: u64,
    /// Of an RDMA Write.
    sink: Option<Sink>,
}

/// Where an RDMA Write's bytes go.
#[derive(Clone, Copy, Debug)]
struct Sink {
    stag: Stag,
    to: TaggedOffset,
    len: u32,
}

impl SendSide {
    /// That of the work under way, if it is an RDMA Write with bytes.
    fn sink(&self) -> Option<Sink> {
        let (work, slot) = (self.work?, &self.request.slot);
        let is_write = matches!(
            self.request.opcode(),
            Some(WrOpcode::Write | WrOpcode::WriteImmediate)
        );
        (is_write && work.total > 0).then_some(Sink {
            stag: Stag(slot.rkey),
            to: TaggedOffset(slot.remote_addr),
            len: work.total,
        })
    }
}

impl Sink {
    /// Whether the peer may mean it by the header of a segment.
    fn has(&self, header: &ddp::header::Tagged) -> bool {
        let from = header.to.0.checked_sub(self.to.0);
        self.stag == header.stag && from.is_some_and(|from| from < u64::from(self.len))
    }
}

impl Qp {
    /// From now on it is joined, or not any more. Only an Idle queue pair may begin to be.
    pub(crate) fn set_joined(&mut self, reply: Option<Box<[u8]>>) -> Result<(), WrongQpState> {
        if reply.is_some() {
            self.check_idle()?;
        }
        let most = self.send.pending.depth();
        self.joined = reply.map(|reply| {
            Box::new(Joined {
                reply,
                sent: VecDeque::with_capacity(most),
                peer_lost: false,
            })
        });
        if self.state == QpState::Idle {
            self.hold.set_forever(self.joined.is_some());
        }
        Ok(())
    }

    pub(crate) fn is_joined(&self) -> bool {
        self.joined.is_some()
    }

    /// Whether a responder that answers so is the one that is meant.
    pub(crate) fn may_be_answered(&self, private_data: &[u8]) -> bool {
        let joined = self.joined.as_deref();
        joined.is_none_or(|joined| *joined.reply == *private_data)
    }

    /// An attempt to connect it has failed. True when it is Idle again, with all that is posted: it is joined, and there
    /// may be another attempt.
    pub(crate) fn attempt_failed(&mut self) -> bool {
        let again = self.joined.is_some() && self.state == QpState::Connecting && !self.rings_dead;
        if again {
            self.state = QpState::Idle;
        }
        again
    }

    /// It is as when it was made.
    pub(super) fn leave_join(&mut self) {
        self.joined = None;
        self.hold.set_forever(false);
    }

    /// The work under way was handed to TCP, all of it.
    pub(super) fn sent_to_peer(&mut self, ticket: Ticket) {
        let Some(joined) = &mut self.joined else {
            return self.send.pending.end(ticket, Outcome::SENT);
        };
        joined.sent.push_back(Sent {
            ticket,
            end: self.send.at,
            sink: self.send.sink(),
        });
    }

    /// TCP's peer has acknowledged all that was sent but so many bytes. What it acknowledges after its own end is not
    /// delivered to its queue pair any more.
    pub(crate) fn acknowledged(&mut self, ctx: &mut QpContext<'_>, unacknowledged: u64) {
        let to = self.send.at.saturating_sub(unacknowledged);
        let Some(joined) = self.joined.as_mut().filter(|_| !self.ending.peer_done) else {
            return;
        };
        while let Some(sent) = joined.sent.pop_front_if(|sent| sent.end <= to) {
            self.send.pending.end(sent.ticket, Outcome::SENT);
        }
        self.complete_ended(ctx);
    }

    /// The peer refuses this work request, or, without one, the RDMA Write that this header is of, or, without that, what
    /// is next to be acknowledged: it has delivered all that was sent before. The work request that is meant.
    pub(super) fn refused(
        &mut self,
        named: Option<Ticket>,
        header: Option<ddp::Header>,
    ) -> Option<Ticket> {
        let Some(joined) = &mut self.joined else {
            return named;
        };
        let refused = named.or_else(|| {
            let is_meant = |sink: Option<Sink>| match header {
                Some(ddp::Header::Tagged(header)) => sink.is_some_and(|sink| sink.has(&header)),
                Some(ddp::Header::Untagged(_)) => false,
                None => true,
            };
            let sent = joined.sent.iter().find(|sent| is_meant(sent.sink));
            let under_way = self.send.work.filter(|_| is_meant(self.send.sink()));
            let sent = sent.map(|sent| sent.ticket);
            sent.or(under_way.map(|work| work.ticket))
        });
        while let Some(refused) = refused
            && let Some(sent) = joined.sent.pop_front_if(|sent| sent.ticket.0 < refused.0)
        {
            self.send.pending.end(sent.ticket, Outcome::SENT);
        }
        refused
    }

    /// The connection has ended. True when nothing was being sent or received, and it was not this side that ended it:
    /// then the queue pair stays as it is until something is to be sent.
    pub(super) fn loses_peer(&mut self, ctx: &mut QpContext<'_>, reason: DisconnectReason) -> bool {
        let ended_by_peer = match reason {
            DisconnectReason::Graceful => self.ending.peer_done,
            DisconnectReason::Reset | DisconnectReason::TimedOut | DisconnectReason::PeerClosed => {
                true
            }
            _ => false,
        };
        let is_live = matches!(self.state, QpState::Rts | QpState::Closing) && !self.rings_dead;
        let Some(joined) = self.joined.as_mut().filter(|_| ended_by_peer && is_live) else {
            return false;
        };
        self.send.pending.end_first(Outcome::LOST);
        if !self.send.pending.is_empty() || self.receive.is_filling() {
            return false;
        }
        joined.peer_lost = true;
        self.state = QpState::Rts;
        self.ending = Ending::default();
        self.hold.reset();
        self.send.close();
        ctx.queue_pool
            .responses
            .release_if_empty(&mut self.send.responses);
        ctx.stags.stream_ended(self.id.num);
        self.fail_lost(ctx);
        true
    }

    /// Work for a peer that has gone fails, if some is posted; says whether.
    pub(super) fn fail_lost(&mut self, ctx: &mut QpContext<'_>) -> bool {
        let joined = self.joined.as_ref();
        let lost = self.state == QpState::Rts && joined.is_some_and(|joined| joined.peer_lost);
        if !lost || self.rings_dead {
            return false;
        }
        match self.send.ring.pop(&mut self.send.request) {
            Ok(false) => return false,
            Ok(true) => {
                let posted = self.posted(&self.send.request.slot, ctx.now);
                self.complete_send(ctx, posted, Outcome::LOST);
                self.enter_error(ctx);
            }
            Err(fault) => self.ring_fault(fault),
        }
        true
    }
}
