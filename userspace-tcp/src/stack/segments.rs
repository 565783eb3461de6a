//! Segments in and out: to whom one belongs, and whose turn it is to send.

use userspace_net::slab::Named;
use userspace_net::{Ecn, FourTuple, Instant};

use crate::config::ConnOptions;
use crate::connection::Connection;
use crate::effects::Env;
use crate::interface::{
    ConnId, DeferredAck, FlowHint, FlowLocation, InOrder, Received, SegmentRun, State, Transmit,
};
use crate::link::{Link, One};
use crate::segment::Segment;
#[cfg(doc)]
use crate::segment::TcpHeader;
use crate::seq::{SeqNum, StreamOffset};
use crate::syn_cookie;

use super::Stack;
use super::delayed_acks::Delayed;

/// Segments that a connection sends before the next has its turn, if it has as many. They come to the
/// peer one behind the other: it takes them as one, finds what it needs of the connection in its cache
/// for all but the first, and acknowledges them together.
pub(super) const SEGMENTS_PER_TURN: u32 = 16;

impl<B> Stack<B> {
    /// Takes a segment whose checksum is right. `options` are for the connection that it may open.
    pub fn receive(
        &mut self,
        now: Instant,
        tuple: FourTuple,
        segment: &Segment<'_>,
        options: ConnOptions,
    ) -> Received {
        self.receive_at(now, tuple, FlowHint::default(), segment, options)
    }

    /// As [`Stack::receive`], for who has asked where the connection is likely to be.
    pub fn receive_at(
        &mut self,
        now: Instant,
        tuple: FourTuple,
        hint: FlowHint,
        segment: &Segment<'_>,
        options: ConnOptions,
    ) -> Received {
        self.now = now;
        let Some(id) = self.connection_at(&tuple, hint) else {
            return self.receive_stranger(now, tuple, segment, options);
        };
        if let Some(valid) = self.cookie_for_another(now, &tuple, id, segment) {
            if !valid {
                // As without the half-open connection: the bytes that bring the cookie follow.
                self.effects.counters.cookies_rejected += 1;
                return Received::default();
            }
            self.remove(id);
            return self.receive_stranger(now, tuple, segment, options);
        }
        if !self.reopens(&tuple, id, segment) {
            return self.receive_for(now, id, segment);
        }
        let sent_to = self.connections.get(id).map(Connection::sent_to);
        self.end_time_wait(id);
        let received = self.receive_stranger(now, tuple, segment, options);
        let conn = received.conn.and_then(|id| self.connections.get_mut(id));
        if let (Some(conn), Some(sent_to)) = (conn, sent_to) {
            conn.begin_behind(sent_to);
        }
        received
    }

    /// Whether a segment is the next in order of an established connection and says nothing else but an
    /// acknowledgment that is acceptable. Its bytes, and those of segments behind it that [only continue
    /// it](TcpHeader::only_continues), may then be used before TCP takes them, as far as there is
    /// [room](InOrder::room): [`Stack::commit`] is to follow at once. Other segments are for
    /// [`Stack::receive_at`], and so may these be. `id` is the connection of the segment's flow
    /// ([`Stack::connection_at`]). `now` may be a little before the segment came: nothing is measured by
    /// it.
    #[inline(always)]
    pub fn in_order(&self, now: Instant, id: ConnId, segment: &Segment<'_>) -> Option<InOrder> {
        self.connections.get(id)?.in_order(now, segment)
    }

    /// Takes the bytes of a segment that is in order, and of those that only continue it: the next segment
    /// that goes out acknowledges them. All that is left to be done is for [`Stack::finish`], soon, and
    /// before anything else of the connection is received. It is as if the peer had sent two segments: first
    /// the bytes with the acknowledgment that it had sent before, then the new acknowledgment. So the layer above
    /// can have the bytes, and even answer, while TCP still does its bookkeeping.
    ///
    /// `None`, and nothing is done: there are more bytes than there is room for, or something of the
    /// connection was received since the segment was found to be in order.
    #[inline(always)]
    pub fn commit(
        &mut self,
        now: Instant,
        in_order: &InOrder,
        run: SegmentRun,
    ) -> Option<DeferredAck> {
        self.now = now;
        self.connections
            .get_mut(in_order.conn)?
            .commit(now, in_order, run)
    }

    /// Does what is left of segments whose bytes are taken, as if they came `now`, which is no time before
    /// they did: a round trip would seem shorter than its path. `consumed` is as for [`Stack::consumed`]. Of
    /// a connection that is gone nothing is left to be done.
    pub fn finish(&mut self, now: Instant, deferred: &DeferredAck, consumed: StreamOffset) {
        let Some(connection) = self.connections.get_mut(deferred.conn()) else {
            return;
        };
        let mut env = Env {
            now,
            config: &self.config,
            effects: &mut self.effects,
            pools: &mut self.pools,
        };
        connection.finish(&mut env, deferred);
        connection.consumed(consumed);
        self.settle_received(deferred.conn(), now);
    }

    /// Whether segments of this flow that follow one another from `seq` on, each of which only
    /// continues the first ([`TcpHeader::only_continues`]), may be received as one
    /// ([`Segment::with_coalesced`]): when they are the next in order. Others are acknowledged one by
    /// one (RFC 5681 section 4.2). `hint` as for [`Stack::receive_at`].
    pub fn takes_together(&self, tuple: &FourTuple, hint: FlowHint, seq: SeqNum) -> bool {
        let id = self.connection_at(tuple, hint);
        let connection = id.and_then(|id| self.connections.get(id));
        connection.is_some_and(|connection| connection.expects(seq))
    }

    /// Whether [`Stack::transmit`] may have something to give: cheaper to ask.
    pub fn wants_transmit(&self) -> bool {
        let ready = self.sending.is_some() || self.ready.first().is_some();
        ready || self.effects.has_answers()
    }

    /// Gives `link` what is to go out next: up to `most` segments of one connection that were never sent
    /// before, or one of any other kind; how many it gave. 0: there is nothing. Connections take turns of
    /// up to 16 segments.
    #[inline]
    pub fn transmit(&mut self, now: Instant, most: usize, link: &mut impl Link<B>) -> usize {
        if most == 0 {
            return 0;
        }
        while let Some(index) = self.next_to_send() {
            let Some(connection) = self.connections.at_mut(index) else {
                continue;
            };
            let turn = match self.ready.len() {
                0 => usize::MAX,
                _ => SEGMENTS_PER_TURN.saturating_sub(self.turn).max(1) as usize,
            };
            let id = connection.id();
            let sent = connection.transmit(now, &self.config, most.min(turn), link);
            if sent > 0 {
                self.turn = self
                    .turn
                    .saturating_add(u32::try_from(sent).unwrap_or(u32::MAX));
                let goes_on = self.turn < SEGMENTS_PER_TURN || self.ready.is_empty();
                if !goes_on {
                    self.settle(id);
                } else if connection.wants_transmit() {
                    self.sending = Some(index);
                } else {
                    self.deadlines.set(index, connection.deadline());
                }
                return sent;
            }
            self.deadlines.set(index, connection.deadline());
        }
        let Some(answer) = self.effects.take_answer(now) else {
            return 0;
        };
        link.send(Transmit {
            conn: answer.conn,
            tuple: answer.tuple,
            header: answer.header,
            payload: None,
            ecn: Ecn::NotEct,
            fragment_to: None,
        });
        1
    }

    /// The next segment to put on the link now, for a link that sends them one by one; fetch until
    /// `None`.
    pub fn poll_transmit(&mut self, now: Instant) -> Option<Transmit<B>> {
        let mut one = One::default();
        self.transmit(now, 1, &mut one);
        one.segment
    }

    /// The connection whose turn to send it is, which stands nowhere then.
    #[inline]
    pub(super) fn next_to_send(&mut self) -> Option<u32> {
        self.sending.take().or_else(|| {
            self.turn = 0;
            self.ready.pop(&mut self.ready_links)
        })
    }

    /// Where the connection of a flow is likely to be. It is not looked at, so that its memory can be
    /// fetched ([`Stack::memory_at`]) while something else is done.
    pub fn flow_hint(&self, tuple: &FourTuple) -> FlowHint {
        let place = self.flows.find(self.secret.flow(tuple), |_| true);
        FlowHint(place.map_or(FlowLocation::Unknown, FlowLocation::At))
    }

    /// The connection of a flow, which is likely to be there. As long as the connection lives its name is
    /// that of no other flow's.
    pub fn connection_at(&self, tuple: &FourTuple, hint: FlowHint) -> Option<ConnId> {
        let found = match hint.0 {
            FlowLocation::Unknown => None,
            FlowLocation::At(index) => self.connections.at(index).filter(|at| at.tuple() == *tuple),
            FlowLocation::Is(id) => self.connections.get(id),
        };
        match found {
            Some(connection) => Some(connection.id()),
            None => self.find(tuple),
        }
    }

    /// The connection of a flow.
    pub fn find(&self, tuple: &FourTuple) -> Option<ConnId> {
        let is_it = |connection: &&Connection<B>| connection.tuple() == *tuple;
        let of = |index| self.connections.at(index).filter(is_it);
        let hash = self.secret.flow(tuple);
        let index = self.flows.find(hash, |index| of(index).is_some())?;
        of(index).map(Named::id)
    }

    pub(super) fn receive_for(
        &mut self,
        now: Instant,
        id: ConnId,
        segment: &Segment<'_>,
    ) -> Received {
        let Some(connection) = self.connections.get_mut(id) else {
            return Received::default();
        };
        let half_open_of = connection.half_open_of();
        let state = connection.state();
        let mut env = Env {
            now,
            config: &self.config,
            effects: &mut self.effects,
            pools: &mut self.pools,
        };
        let mut received = connection.on_segment(&mut env, segment);
        if connection.is_gone() {
            received.conn = None;
        }
        let left_backlog = half_open_of.is_some() && connection.half_open_of().is_none();
        let in_time_wait = connection.state() == State::TimeWait && state != State::TimeWait;
        if left_backlog {
            self.leave_backlog(half_open_of, id.index);
        }
        if in_time_wait {
            self.time_waits.push(&mut self.state_links, id.index);
        }
        self.settle_received(id, now);
        received
    }

    /// As [`Stack::settle`], behind a segment that came at `now`: its acknowledgment may have begun to
    /// wait, and another one have waited long enough therefore.
    fn settle_received(&mut self, id: ConnId, now: Instant) {
        self.settle(id);
        let connection = self.connections.get(id);
        let Some(until) =
            connection.and_then(|connection| connection.ack_delayed_at(now, &self.config))
        else {
            return;
        };
        let index = id.index;
        let Some(oldest) = self.delayed_acks.begin(Delayed { index, until }) else {
            return;
        };
        if let Some(connection) = self.connections.at_mut(oldest.index)
            && connection.end_ack_delay(oldest.until)
        {
            let id = connection.id();
            self.settle(id);
        }
    }

    /// An ACK that does not fit a half-open connection, while the listener gives out cookies: a late
    /// copy of a SYN that had been answered by a cookie may have made it. Says whether the ACK
    /// brings a valid one; `None`: it is the half-open connection's.
    fn cookie_for_another(
        &self,
        now: Instant,
        tuple: &FourTuple,
        id: ConnId,
        segment: &Segment<'_>,
    ) -> Option<bool> {
        let connection = self.connections.get(id)?;
        let listener = connection.half_open_of()?;
        let header = &segment.header;
        let plain_ack = header.flags.ack() && !header.flags.syn() && !header.flags.rst();
        let other = header.ack != connection.sent_to();
        (plain_ack && other && self.gave_cookies(listener, now))
            .then(|| syn_cookie::check(&self.secret, &self.config, now, tuple, header).is_some())
    }

    fn reopens(&self, tuple: &FourTuple, id: ConnId, segment: &Segment<'_>) -> bool {
        self.connections
            .get(id)
            .is_some_and(|connection| connection.gives_way_to(self.now, segment))
            && self.listener_for(tuple.local).is_some()
    }
}
