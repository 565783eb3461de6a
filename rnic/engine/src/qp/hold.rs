//! A Send for which no receive is posted may wait: it is held, and with it the stream behind it (the setting
//! `receive_wait`). Without the setting it ends the stream (RFC 5041 section 7.1).
//!
//! The FPDU that begins such a message is put back: nothing of it is placed or delivered, and the stream is as if
//! it had not come. Nothing behind it is placed, but for Read Responses and Atomic Responses: they answer this side's
//! own requests, and the receive may be posted only after they came ([`Qp::deliver_behind`]).

use std::time::Duration;

use rnic_ipc::control::ReceiveWait;
use rnic_ipc::id::SrqId;
use rnic_proto::ddp::Header;
use rnic_proto::mpa::fpdu;
use rnic_proto::rdmap::control;
use rnic_proto::{Bytes, Gather, Msn, Qn};
use userspace_net::Instant;

use super::{Qp, QpContext};
use crate::conn::DDP_HEADER_MAX;

/// The Send of a queue pair that waits, and how long one may. What is looked at for every segment is here.
#[derive(Debug, Default)]
pub(super) struct Hold {
    turn: Turn,
    on: bool,
    rest: Box<Details>,
}

#[derive(Debug, Default)]
struct Details {
    wait: ReceiveWait,
    /// The queue pair is joined: one waits as long as the connection lasts, whatever `wait` says.
    forever: bool,
    /// Since when one waits.
    since: Instant,
    /// Its number, until it is put back.
    begun: Option<Msn>,
    /// It is not in the shard's list yet.
    is_new: bool,
    /// How far the stream behind was looked through, in the count of [`super::ReceiveSide::at`].
    looked: u64,
    /// Nothing is looked for any further: an FPDU is not sound, and its turn will end the stream.
    blind: bool,
    /// When the peer's FIN came meanwhile.
    peer_closed: Option<Instant>,
}

/// Whether the next Send may take a receive, or wait for one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Turn {
    /// It takes any, and none waits.
    #[default]
    Never,
    /// It takes one that nobody waits for, and may wait.
    Behind,
    /// It has waited for the next that is posted.
    Next,
    /// It has waited long enough.
    Last,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HoldStep {
    /// There is none any more.
    Ended,
    /// No receive is there yet.
    Waits,
    /// A receive is there, or the time is over: deliver again.
    GoesOn,
}

/// What an FPDU after a Send that waits is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Behind {
    /// Not all there yet, or not sound. Its turn will tell.
    Unknown,
    /// No response: it stays, so many bytes long.
    Stays(usize),
    /// A response, of so many bytes, that is delivered now.
    Delivered(usize),
}

impl Details {
    fn wait(&self) -> ReceiveWait {
        match self.forever {
            true => ReceiveWait::Forever,
            false => self.wait,
        }
    }
}

impl Hold {
    /// Whether a Send waits for ever, or as long as is set. Of a queue pair without a connection.
    pub(super) fn set_forever(&mut self, forever: bool) {
        self.rest.forever = forever;
        self.reset();
    }

    #[inline]
    pub(super) fn is_on(&self) -> bool {
        self.on
    }

    /// Whether Sends of other queue pairs that wait for a shared queue come first.
    #[inline]
    pub(super) fn yields(&self) -> bool {
        self.turn == Turn::Behind
    }

    #[inline]
    pub(super) fn receive_taken(&mut self) {
        if self.turn == Turn::Next {
            self.turn = Turn::Behind;
        }
    }

    /// This Send found no receive: true when it waits from now on.
    #[cold]
    pub(super) fn begin(&mut self, msn: Msn, now: Instant) -> bool {
        if matches!(self.turn, Turn::Never | Turn::Last) {
            return false;
        }
        self.turn = Turn::Behind;
        self.on = true;
        self.rest.since = now;
        self.rest.begun = Some(msn);
        self.rest.is_new = true;
        true
    }

    /// Nothing waits any more, nor has waited.
    pub(super) fn reset(&mut self) {
        let (set, forever) = (self.rest.wait, self.rest.forever);
        let wait = self.rest.wait();
        self.on = false;
        self.turn = match wait {
            ReceiveWait::Off => Turn::Never,
            ReceiveWait::Millis(_) | ReceiveWait::Forever => Turn::Behind,
        };
        *self.rest = Details {
            wait: set,
            forever,
            ..Details::default()
        };
    }
}

impl Qp {
    /// How long a Send for which no receive is posted waits for one.
    pub(crate) fn set_receive_wait(&mut self, wait: ReceiveWait) {
        self.hold.rest.wait = wait;
        self.hold.reset();
    }

    /// No Send waits on this connection: its LLP hands over each segment once.
    pub(crate) fn never_hold(&mut self) {
        self.hold.turn = Turn::Never;
    }

    /// Whether a Send waits for a receive, and the stream with it.
    #[inline]
    pub(crate) fn is_held(&self) -> bool {
        self.hold.is_on() && !self.ending.stopped
    }

    /// The shared receive queue that it waits for, if it is one.
    pub(crate) fn held_for(&self) -> Option<SrqId> {
        self.receive.shared()
    }

    /// Whether a hold has begun since this was asked last.
    pub(crate) fn take_new_hold(&mut self) -> bool {
        std::mem::take(&mut self.hold.rest.is_new) && self.is_held()
    }

    /// A segment was refused. True when it is a Send that waits from now on: it is as if it had not come. Without
    /// its payload at hand (`whole` is false) none can wait.
    #[cold]
    #[inline(never)]
    pub(super) fn holds_refused(&mut self, ctx: &mut QpContext<'_>, whole: bool) -> bool {
        let Some(msn) = self.hold.rest.begun.take() else {
            return false;
        };
        let Some(stream) = self.stream.as_mut().filter(|_| whole) else {
            self.hold.on = false;
            ctx.counters.refused_no_receive += 1;
            return false;
        };
        stream.take_back_send(msn);
        ctx.counters.fpdus_received -= 1;
        ctx.counters.holds_begun += 1;
        true
    }

    /// Looks whether the Send that waits has waited long enough. Of a peer that has closed its side no receive is
    /// waited for longer than `close_timeout`.
    pub(crate) fn step_hold(
        &mut self,
        ctx: &mut QpContext<'_>,
        close_timeout: Duration,
    ) -> HoldStep {
        if !self.is_held() {
            return HoldStep::Ended;
        }
        let hold = &self.hold.rest;
        let longest = hold.wait().longest().map(|longest| hold.since + longest);
        let closed = hold.peer_closed.map(|at| at + close_timeout);
        let is_over = |by: Option<Instant>| by.is_some_and(|by| by <= ctx.now);
        self.hold.turn = if !self.receive.has_none(ctx.srqs) {
            Turn::Next
        } else if is_over(longest) || is_over(closed) {
            ctx.counters.holds_ran_out += 1;
            Turn::Last
        } else {
            return HoldStep::Waits;
        };
        self.hold.on = false;
        HoldStep::GoesOn
    }

    /// The peer's FIN came after a Send that waits. [`Self::take_held_fin`] says so when nothing waits any more.
    pub(crate) fn hold_fin(&mut self, now: Instant) {
        self.hold.rest.peer_closed.get_or_insert(now);
    }

    /// Whether the peer's FIN came and was kept, once.
    pub(crate) fn take_held_fin(&mut self) -> bool {
        !self.is_held() && self.hold.rest.peer_closed.take().is_some()
    }

    /// The client ends the stream: what waits is dropped, and what is behind it.
    pub(super) fn give_up_held(&mut self) {
        if self.is_held() {
            self.hold.on = false;
            self.ending.stop();
        }
    }

    /// How far after the Send that waits the stream was looked through, in bytes.
    pub(crate) fn looked_behind(&self) -> u64 {
        self.hold.rest.looked.saturating_sub(self.receive.at)
    }

    /// So many bytes more after the Send that waits were looked through.
    pub(crate) fn look_on(&mut self, bytes: u64) {
        self.hold.rest.looked = self.receive.at + self.looked_behind() + bytes;
    }

    /// Looks at the next FPDU after a Send that waits, which begins with these bytes. Responses are placed and
    /// delivered, in their order; everything else stays.
    pub(crate) fn deliver_behind(&mut self, ctx: &mut QpContext<'_>, pieces: &[&[u8]]) -> Behind {
        let bytes = Gather::new(pieces);
        let at = self.receive.at + self.looked_behind();
        let layout = fpdu::parse(&bytes, self.receive.markers, at);
        let whole = layout.and_then(|layout| Some((bytes.sub(0, layout.len())?, layout)));
        let Some((fpdu, layout)) = whole.filter(|_| !self.hold.rest.blind) else {
            return Behind::Unknown;
        };
        let len = layout.len();
        let Ok(ulpdu) = fpdu::verify(&fpdu, &layout, self.crc) else {
            self.hold.rest.blind = true;
            return Behind::Unknown;
        };
        if !is_response(&ulpdu) {
            return Behind::Stays(len);
        }
        ctx.counters.fpdus_received += 1;
        if let Some(stream) = self.stream.as_mut() {
            let inbound = stream.classify(&ulpdu);
            let payload_at = inbound
                .as_ref()
                .map_or(0, rnic_proto::rdmap::Inbound::payload_offset);
            if let Some(payload) = ulpdu.tail(payload_at) {
                self.take_in(ctx, &ulpdu, Some(&payload), inbound);
            }
        }
        Behind::Delivered(len)
    }

    /// As [`Self::deliver_behind`], of an FPDU that was placed out of order, by its header: whether it is a response
    /// and was delivered.
    pub(crate) fn deliver_placed_behind(
        &mut self,
        ctx: &mut QpContext<'_>,
        header: &[u8; DDP_HEADER_MAX],
        ulpdu_len: u16,
    ) -> bool {
        let known = header
            .get(..usize::from(ulpdu_len).min(header.len()))
            .unwrap_or(&[]);
        let response = is_response(&known);
        if response {
            self.take_placed(ctx, header, ulpdu_len);
        }
        response
    }
}

/// Whether a ULPDU is of a Read Response or an Atomic Response, by its header.
fn is_response<'a>(ulpdu: &impl Bytes<'a>) -> bool {
    match Header::parse(ulpdu) {
        Some(Header::Tagged(header)) => {
            control::opcode(header.ulp) == Some(control::Opcode::ReadResponse)
        }
        Some(Header::Untagged(header)) => header.qn == Qn::ATOMIC_RESPONSE,
        None => false,
    }
}
