//! A segment arrives for a connection that knows its peer (RFC 9293 section 3.10.7.4), with the
//! checks of RFC 5961 against blind attacks and PAWS (RFC 7323 section 5).

use std::time::Duration;

use userspace_net::{Ecn, Instant};

use crate::config::Config;
use crate::effects::Env;
use crate::inbound::Text;
use crate::interface::{DeferredAck, Event, InOrder, Received, SegmentRun, State};
use crate::options::Timestamps;
use crate::segment::{Flags, Segment};
use crate::seq::SeqNum;

use super::Connection;
use super::ack::Ack;
use super::handshake::BEHIND_SYN;
use super::timeout::Timer;

/// Least time between two answers to segments that only provoke (RFC 5961 section 7). It also ends
/// a war of ACKs between two ends that disagree.
const ANSWER_INTERVAL: Duration = Duration::from_millis(100);

/// RFC 9293 section 3.8.6.3 (MUST-40).
const ACK_DELAY_MAX: Duration = Duration::from_millis(500);

/// How long an acknowledgment may be delayed.
fn ack_delay(config: &Config) -> Duration {
    config.ack_delay.min(ACK_DELAY_MAX)
}

impl<B> Connection<B> {
    /// Takes a segment.
    pub(crate) fn on_segment(&mut self, env: &mut Env<'_, B>, segment: &Segment<'_>) -> Received {
        let run = segment.run();
        // Most segments with data are like that.
        if let Some(in_order) = self.in_order(env.now, segment)
            && let Some(deferred) = self.commit(env.now, &in_order, run)
        {
            self.finish(env, &deferred);
            return deferred.received();
        }
        self.begin(env.now, run.segments);
        let mut received = Received {
            conn: Some(self.id),
            ..Received::default()
        };
        if self.state == State::SynSent {
            self.on_segment_in_syn_sent(env, segment, &mut received);
        } else {
            self.on_synchronized(env, segment, &mut received);
        }
        received.in_order_to = self.inbound.in_order_to();
        self.refresh_timer(env.now, env.config);
        received
    }

    /// What is done for all segments.
    fn begin(&mut self, now: Instant, segments: u32) {
        self.counters.segments_in += u64::from(segments);
        self.pacer.advance(now);
    }

    /// Whether [`Connection::on_synchronized`] would do no more with a segment than take its bytes and an
    /// ACK that it accepts: header prediction.
    // So that what a segment says is looked at where it is made, mostly in registers.
    #[inline(always)]
    pub(crate) fn in_order(&self, now: Instant, segment: &Segment<'_>) -> Option<InOrder> {
        let header = &segment.header;
        let timestamps = match header.options.timestamps {
            Some(timestamps) => self.clock.in_use() && !self.clock.is_old(now, timestamps),
            None => !self.clock.in_use(),
        };
        let ack = self.outbound.position(header.ack);
        let plain = self.state == State::Established
            && header.flags | Flags::PSH == Flags::ACK | Flags::PSH
            && header.options.sack.is_empty()
            && segment.text_len() > 0
            && self.inbound.is_next(header.seq)
            && timestamps
            && ack >= self.outbound.una().cast_signed()
            && ack <= self.outbound.next().cast_signed()
            && segment.ecn != Ecn::Ce
            && !self.inbound.echoes_marks();
        plain.then(|| InOrder {
            conn: self.id,
            offset: self.inbound.in_order_to(),
            room: self.inbound.room(),
            ack: header.ack,
            window: header.window,
            timestamps: header.options.timestamps,
        })
    }

    /// Takes bytes that are in order: RCV.NXT moves, and the next segment that goes out acknowledges
    /// them. All else is for [`Connection::finish`]. `None`, and nothing is done: they are beyond the
    /// window, or something came since.
    #[inline(always)]
    pub(crate) fn commit(
        &mut self,
        now: Instant,
        in_order: &InOrder,
        run: SegmentRun,
    ) -> Option<DeferredAck> {
        if run.bytes > in_order.room || self.inbound.in_order_to() != in_order.offset {
            return None;
        }
        let start = self.inbound.next().cast_signed();
        self.note_timestamps(now, in_order.timestamps, start);
        self.inbound.take_next(run.bytes);
        Some(DeferredAck {
            in_order: *in_order,
            run,
            measures: true,
        })
    }

    /// Does all that [`Connection::commit`] left of segments.
    pub(crate) fn finish(&mut self, env: &mut Env<'_, B>, deferred: &DeferredAck) {
        let DeferredAck { in_order, run, .. } = deferred;
        self.begin(env.now, run.segments);
        self.counters.bytes_in += u64::from(run.bytes);
        self.heard(env.now);
        // Behind the SYN.
        let start = (in_order.offset + 1).cast_signed();
        let text = self.text(env, start, *run);
        self.inbound
            .acknowledge_new(env.now, &text, ack_delay(env.config));
        let ack = Ack::in_order(in_order);
        self.on_ack(env, &ack, start, deferred.measures);
        self.refresh_timer(env.now, env.config);
    }

    /// The bytes of segments that begin at `start`, which say nothing else.
    fn text(&self, env: &mut Env<'_, B>, start: i64, run: SegmentRun) -> Text {
        let rate = &mut env.effects.arrival_rate;
        Text {
            start,
            len: run.bytes,
            segments: run.segments,
            in_fast_stream: run.bytes > 0 && rate.is_fast_with(env.now, run.segments),
            // A longer one was joined on its way: the peer sends none.
            longest: run.longest.min(u32::from(self.mss)),
            fin: false,
            ce: false,
            cwr: false,
        }
    }

    fn on_synchronized(
        &mut self,
        env: &mut Env<'_, B>,
        segment: &Segment<'_>,
        received: &mut Received,
    ) {
        let header = &segment.header;
        let flags = header.flags;
        let start = self.inbound.position(header.seq);
        if self.state == State::SynReceived && flags.syn() && !flags.rst() && start == 0 {
            self.on_syn_in_syn_received(env, segment, received);
            return;
        }
        if !self.passes_paws(env, segment) {
            return;
        }
        if !self.inbound.acceptable(start, segment.sequence_len()) {
            self.on_unacceptable(env, segment, start);
            return;
        }
        if flags.rst() {
            self.on_reset(env, start);
            return;
        }
        if flags.syn() {
            if self.half_open_of().is_some() {
                // Back to LISTEN: the peer opens anew.
                self.die(env, None);
            } else {
                // RFC 5961 section 4.2.
                self.challenge(env);
            }
            return;
        }
        if !flags.ack() {
            return;
        }
        if self.state == State::SynReceived && !self.complete_open(env, segment) {
            return;
        }
        if !self.on_ack(env, &Ack::of(segment), start, true) || self.gone {
            return;
        }
        // Before, a blind attacker could move TS.Recent.
        self.note_timestamps(env.now, segment.header.options.timestamps, start);
        self.heard(env.now);
        if self.state == State::FinWait2 {
            self.timer = self.fin_wait_2_timer(env);
        }
        self.on_text(env, segment, start, received);
    }

    /// An acceptable segment came whose ACK is one that the peer may send.
    fn heard(&mut self, now: Instant) {
        self.keepalive.heard(now);
        self.unanswered = 0;
    }

    /// Of such a segment, what the next one that goes out echoes (RFC 7323 section 4.3).
    #[inline]
    fn note_timestamps(&mut self, now: Instant, timestamps: Option<Timestamps>, start: i64) {
        if let Some(timestamps) = timestamps
            && start <= self.inbound.last_ack_sent().cast_signed()
        {
            self.clock.take(now, timestamps);
        }
    }

    /// The peer has not got our SYN's acknowledgment, or it opens at the same time as we do.
    fn on_syn_in_syn_received(
        &mut self,
        env: &mut Env<'_, B>,
        segment: &Segment<'_>,
        received: &mut Received,
    ) {
        self.syn_due = true;
        self.ecn.peer_said(segment.header.flags);
        if segment.header.flags.ack()
            && self.listener.is_none()
            && self.outbound.position(segment.header.ack) == 1
            && self.outbound.outstanding()
        {
            // Simultaneous open: the other's SYN-ACK acknowledges our SYN.
            self.complete_open(env, segment);
            self.inbound.ack_at_once();
            self.on_text(env, segment, BEHIND_SYN, received);
        }
    }

    /// RFC 7323 section 5.3, R1, and its section 3.2: once in use the option has to be there.
    fn passes_paws(&mut self, env: &Env<'_, B>, segment: &Segment<'_>) -> bool {
        if !self.clock.in_use() || segment.header.flags.rst() {
            return true;
        }
        let Some(timestamps) = segment.header.options.timestamps else {
            // A SYN is answered in any case, so that a peer that has lost its memory learns of it.
            let dropped = !segment.header.flags.syn();
            self.counters.paws_dropped += u64::from(dropped);
            return !dropped;
        };
        if self.clock.is_old(env.now, timestamps) {
            self.counters.paws_dropped += 1;
            // RFC 2883 section 4.3: an original that comes behind its retransmission.
            let start = self.inbound.position(segment.header.seq);
            self.inbound.came_again(start, segment.sequence_len());
            self.answer(env, segment);
            return false;
        }
        true
    }

    fn on_unacceptable(&mut self, env: &mut Env<'_, B>, segment: &Segment<'_>, start: i64) {
        let flags = segment.header.flags;
        if flags.rst() {
            return;
        }
        if self.is_news_from_behind(segment, start) {
            self.on_ack(env, &Ack::of(segment), start, true);
            if self.gone {
                return;
            }
        }
        if !segment.payload.is_empty() {
            self.counters.duplicates += u64::from(segment.run().segments);
        }
        if !flags.syn() {
            self.inbound.came_again(start, segment.sequence_len());
        }
        if self.state == State::TimeWait && flags.fin() {
            self.timer = Timer::TimeWait(env.now + env.config.time_wait);
        }
        self.answer(env, segment);
    }

    /// Whether an empty segment with the number before RCV.NXT acknowledges something. The peer's FIN may stand
    /// where its window ends as far as it knows; then its ACKs look like this. When both sides drop them, neither
    /// ever learns of the other's (RFC 9293 appendix A.2).
    fn is_news_from_behind(&self, segment: &Segment<'_>, start: i64) -> bool {
        let flags = segment.header.flags;
        let synchronized = !matches!(self.state, State::SynReceived | State::TimeWait);
        let behind = start + 1 == self.inbound.next().cast_signed();
        let ack = self.outbound.position(segment.header.ack);
        synchronized
            && behind
            && segment.sequence_len() == 0
            && flags.ack()
            && ack > self.outbound.una().cast_signed()
    }

    /// RFC 5961 section 3.2: only the exact sequence number resets.
    fn on_reset(&mut self, env: &mut Env<'_, B>, start: i64) {
        if self.state == State::TimeWait {
            // RFC 1337 section 3: an old duplicate of ours that reaches the peer when it is gone
            // is answered by such a reset.
            return;
        }
        if start == self.inbound.next().cast_signed() {
            let event = if self.state == State::SynReceived {
                Event::Refused
            } else if self.lacks_only_ack_of_fin() {
                // RFC 9293 section 3.10.7.4: nobody is notified of a reset. The peer has got all, and is
                // gone; its last ACK was lost, and our FIN met a host that knew of nothing any more.
                Event::Closed
            } else {
                Event::Reset
            };
            self.die(env, Some(event));
        } else if self.inbound.in_window(start) {
            self.challenge(env);
        }
    }

    /// Bytes and FIN.
    pub(super) fn on_text(
        &mut self,
        env: &mut Env<'_, B>,
        segment: &Segment<'_>,
        start: i64,
        received: &mut Received,
    ) {
        match self.state {
            State::Established | State::FinWait1 | State::FinWait2 => {}
            // Behind the peer's FIN nothing counts.
            _ => {
                if segment.sequence_len() > 0 {
                    self.answer(env, segment);
                }
                return;
            }
        }
        self.on_urgent(env, segment);
        let run = segment.run();
        let text = Text {
            fin: segment.header.flags.fin(),
            ce: segment.ecn == Ecn::Ce,
            cwr: segment.header.flags.contains(Flags::CWR),
            ..self.text(env, start, run)
        };
        let ack_delay = ack_delay(env.config);
        let ranges = &mut env.pools.ranges;
        let accepted = self.inbound.accept(env.now, text, ack_delay, ranges);
        received.new = accepted.new;
        let bytes: u64 = accepted.new.iter().map(|range| u64::from(range.len)).sum();
        self.counters.bytes_in += bytes;
        if run.bytes > 0 {
            let segments = |when: bool| u64::from(if when { run.segments } else { 0 });
            self.counters.marked_in += segments(text.ce);
            self.counters.out_of_order += segments(accepted.out_of_order && bytes > 0);
            self.counters.ranges_full += segments(accepted.full);
            self.counters.duplicates += segments(bytes == 0 && !accepted.full);
        }
        if accepted.closed {
            env.effects.events.push_back((self.id, Event::PeerClosed));
            match self.state {
                State::Established => self.state = State::CloseWait,
                State::FinWait1 => self.state = State::Closing,
                _ => self.enter_time_wait(env),
            }
        }
    }

    /// Until when the acknowledgment of what came at `now` may be delayed, if it is.
    pub(crate) fn ack_delayed_at(&self, now: Instant, config: &Config) -> Option<Instant> {
        let until = self.inbound.ack_deadline();
        until.filter(|until| *until == now + ack_delay(config))
    }

    /// The acknowledgment that may be delayed until then, if it still is, goes out as soon as possible;
    /// says whether.
    pub(crate) fn end_ack_delay(&mut self, until: Instant) -> bool {
        self.inbound.end_ack_delay(until)
    }

    pub(super) fn enter_time_wait(&mut self, env: &mut Env<'_, B>) {
        self.state = State::TimeWait;
        self.stop_timers(Timer::TimeWait(env.now + env.config.time_wait));
        let released = &mut env.effects.released;
        let queues = &mut env.pools.queues;
        self.outbound.clear(queues, |buf| released.push_back(buf));
        env.effects.events.push_back((self.id, Event::Closed));
    }

    /// An ACK for a segment that brings nothing new. What takes sequence numbers may be a retransmission,
    /// whose sender waits for it; anything else is answered now and then only.
    fn answer(&mut self, env: &Env<'_, B>, segment: &Segment<'_>) {
        let flags = segment.header.flags;
        if flags.syn() || (segment.payload.is_empty() && !flags.fin()) {
            self.challenge(env);
        } else {
            self.inbound.ack_at_once();
        }
    }

    /// A challenge ACK (RFC 5961), not too often.
    pub(super) fn challenge(&mut self, env: &Env<'_, B>) {
        if env.now >= self.quiet_until {
            self.quiet_until = env.now + ANSWER_INTERVAL;
            self.counters.challenges += 1;
            self.inbound.ack_at_once();
        }
    }

    /// Whether a SYN may open this pair of ends anew while it stands in TIME-WAIT. It must be later than all that
    /// this connection saw (RFC 9293 section 3.6.1), by its timestamp if there is one (RFC 6191 section 2).
    pub(crate) fn gives_way_to(&self, now: Instant, segment: &Segment<'_>) -> bool {
        let flags = segment.header.flags;
        let plain_syn = flags.syn() && !flags.ack() && !flags.rst();
        let later = self.inbound.position(segment.header.seq) > self.inbound.next().cast_signed();
        let timestamps = segment.header.options.timestamps;
        let old = timestamps.is_some_and(|timestamps| self.clock.is_old(now, timestamps));
        let newer = self.clock.is_newer(timestamps);
        self.state == State::TimeWait && plain_syn && !old && (later || newer)
    }

    /// Whether a segment at `seq` would be the next in order, with nothing missing behind it.
    pub(crate) fn expects(&self, seq: SeqNum) -> bool {
        self.inbound.is_next(seq)
    }

    /// What this connection would have sent next: a connection that follows it begins after it.
    pub(crate) fn sent_to(&self) -> SeqNum {
        self.outbound.wire(self.outbound.next())
    }
}
