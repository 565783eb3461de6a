//! An acknowledgment arrives: what it says has arrived, round trips, congestion window, and the
//! peer's window (RFC 9293 section 3.10.7.4, RFC 5681). What it says is lost is in
//! [`super::recovery`].

use std::time::Duration;

use crate::congestion::{Phase, Progress};
use crate::effects::Env;
use crate::interface::{Event, InOrder, State};
use crate::options::{SackBlock, Timestamps};
use crate::outbound::Delivered;
use crate::segment::{Flags, Segment};
use crate::seq::{Position, SeqNum};

use super::Connection;
use super::recovery::News;
use super::timeout::Timer;

/// What a segment says of what this end sent.
pub(super) struct Ack<'a> {
    number: SeqNum,
    window: u16,
    ece: bool,
    sack: &'a [SackBlock],
    timestamps: Option<Timestamps>,
    /// The segment takes sequence numbers itself.
    takes_sequence: bool,
}

impl<'a> Ack<'a> {
    pub(super) fn of(segment: &'a Segment<'_>) -> Self {
        let header = &segment.header;
        Self {
            number: header.ack,
            window: header.window,
            ece: header.flags.contains(Flags::ECE),
            sack: header.options.sack.as_slice(),
            timestamps: header.options.timestamps,
            takes_sequence: segment.sequence_len() > 0,
        }
    }

    /// Of segments that are in order.
    pub(super) fn in_order(in_order: &InOrder) -> Self {
        Self {
            number: in_order.ack,
            window: in_order.window,
            ece: false,
            sack: &[],
            timestamps: in_order.timestamps,
            takes_sequence: true,
        }
    }
}

impl<B> Connection<B> {
    /// Takes the ACK of an acceptable segment at `start`; `false` drops the segment. `measures`: it came
    /// about now, so that it tells a round trip.
    pub(super) fn on_ack(
        &mut self,
        env: &mut Env<'_, B>,
        says: &Ack<'_>,
        start: i64,
        measures: bool,
    ) -> bool {
        if self.takes_idle_ack(says, start) {
            return true;
        }
        let position = self.outbound.position(says.number);
        let una = self.outbound.una();
        // RFC 5961 section 5.2.
        let oldest = una.cast_signed() - self.outbound.window_max().cast_signed();
        if position > self.outbound.next().cast_signed() || position < oldest {
            self.challenge(env);
            return false;
        }
        if position < una.cast_signed() {
            self.on_old_ack(env, says, position);
            return true;
        }
        let ack = position.cast_unsigned();
        let window = u64::from(says.window) << self.peer_shift;
        let ece = self.ecn.sends_capable() && says.ece;
        let repeats = ack == una && self.repeats(says, window);
        let duplicate = repeats && self.outbound.outstanding();
        let without_sack = says.sack.is_empty();
        let plain = duplicate && without_sack;
        let flight = self.outbound.flight();
        self.note_starved(env.now, env.config);
        let mut before = self.queue_totals();
        let mut delivered = Delivered::default();
        self.take_ack(env, says, ack, &mut delivered);
        before.lost = before.lost.min(self.outbound.lost_bytes());
        let rtt = match measures {
            true => self.measure(env, says, &delivered),
            false => None,
        };
        if ack > una {
            self.on_progress(env, flight, &delivered, ece, rtt);
        } else if plain {
            self.on_duplicate();
        }
        self.outbound.update_window(start, ack, window);
        if self.outbound.is_shut_out() {
            // A peer that answers may keep its window shut as long as it likes (RFC 9293
            // section 3.8.6.1).
            self.progress_at = env.now;
            self.path.answered();
        }
        let echo = says.timestamps;
        let news = News {
            delivered: &delivered,
            progress: ack > una,
            duplicate,
            plain,
            repeats: repeats && without_sack,
            echo: echo.filter(|_| self.clock.in_use()),
        };
        self.after_ack(env.now, &before, &news);
        self.respond(env.now, &before, ack > una, ece);
        self.update_model(env.now, &before, Some(&delivered));
        self.note_room(env.now, env.config);
        self.tell_what_passes(env, delivered.largest);
        self.ask_path(env, ack > una);
        if self.outbound.fin.acknowledged() {
            self.on_fin_acknowledged(env);
        }
        true
    }

    /// Takes the SACK blocks of an ACK that a later one has overtaken: what they name has arrived all
    /// the same (RFC 2018 section 5, RFC 6675 section 5). Its window and what else it says are old.
    fn on_old_ack(&mut self, env: &mut Env<'_, B>, says: &Ack<'_>, position: i64) {
        if !self.sack || says.sack.is_empty() {
            return;
        }
        let una = self.outbound.una();
        let ack = u64::try_from(position).unwrap_or(0);
        let before = self.queue_totals();
        let mut delivered = Delivered::default();
        self.take_ack(env, says, ack, &mut delivered);
        let echo = says.timestamps;
        let news = News {
            delivered: &delivered,
            progress: false,
            duplicate: false,
            plain: false,
            repeats: false,
            echo: echo.filter(|_| self.clock.in_use()),
        };
        debug_assert_eq!(una, self.outbound.una(), "an old ACK acknowledges nothing");
        self.after_ack(env.now, &before, &news);
        self.respond(env.now, &before, false, false);
        self.update_model(env.now, &before, Some(&delivered));
    }

    /// The early exit for a connection that only receives: nothing waits to be acknowledged or sent, so
    /// that an ACK in a segment with data can only say how far the window is open. `false`, and nothing
    /// is done, where there is more to it.
    #[inline]
    fn takes_idle_ack(&mut self, says: &Ack<'_>, start: i64) -> bool {
        let una = self.outbound.una();
        let idle = says.takes_sequence
            && !says.ece
            && says.sack.is_empty()
            && self.outbound.queued_segments() == 0
            && una == self.outbound.next()
            && says.number == self.outbound.wire(una)
            && self.congestion.phase() == Phase::Open
            && self.path.probe().is_none()
            // A model of the path wants to know what could have been sent.
            && self.outbound.rate_mut().is_none()
            // A window that is shut is the peer's answer to those who ask.
            && says.window > 0;
        if idle {
            let window = u64::from(says.window) << self.peer_shift;
            self.outbound.update_window(start, una, window);
        }
        idle
    }

    /// Tells the queue what the ACK says.
    fn take_ack(
        &mut self,
        env: &mut Env<'_, B>,
        says: &Ack<'_>,
        ack: Position,
        delivered: &mut Delivered,
    ) {
        let now = env.now;
        let min_rtt = self.rack.min_rtt();
        let clock = &self.clock;
        let echo = says.timestamps.filter(|_| clock.in_use());
        // RFC 8985 section 6.2, step 2.
        let answers = |sent_at| {
            echo.is_none_or(|echo| clock.is_since(echo, Some(sent_at)))
                && now.nanos_since(sent_at) >= min_rtt
        };
        let released = &mut env.effects.released;
        let queues = &mut env.pools.queues;
        if ack > self.outbound.una() {
            self.outbound
                .acknowledge(ack, answers, queues, delivered, |buf| {
                    released.push_back(buf)
                });
        }
        if self.sack && !says.sack.is_empty() {
            self.outbound
                .note_sacked(says.sack, ack, answers, delivered);
        }
    }

    /// RFC 6298 section 3, also for what is acknowledged selectively. Nanoseconds.
    fn measure(&mut self, env: &Env<'_, B>, says: &Ack<'_>, delivered: &Delivered) -> Option<u64> {
        let rtt = match delivered.sample() {
            Some(sent_at) => Some(env.now.nanos_since(sent_at)),
            // RFC 7323 section 4: an echo says which transmission is answered. But a peer that had
            // all of it before echoes an earlier one, whose own answer was lost long ago.
            None if delivered.bytes > 0 => says
                .timestamps
                .filter(|_| self.clock.in_use())
                .filter(|echo| self.clock.is_since(*echo, delivered.resent_at))
                .and_then(|echo| self.clock.round_trip(env.now, echo))
                // At most 2^20 ms.
                .map(|rtt| rtt.as_nanos() as u64),
            None => None,
        };
        if let Some(rtt) = rtt {
            self.rtt.measured(rtt, env.config);
            self.tlp.measured();
        }
        rtt
    }

    fn on_progress(
        &mut self,
        env: &Env<'_, B>,
        flight: u64,
        delivered: &Delivered,
        ece: bool,
        rtt: Option<u64>,
    ) {
        self.duplicates = 0;
        self.probes = 0;
        self.tail_probe_due = false;
        self.progress_at = env.now;
        let before = self.congestion.phase();
        self.congestion.acknowledged(&Progress {
            now: env.now,
            bytes: delivered.bytes,
            una: self.outbound.una(),
            next: self.outbound.next(),
            flight,
            ece,
            rtt: rtt.map(Duration::from_nanos),
            srtt: self.rtt.srtt_nanos(),
        });
        match self.congestion.phase() {
            Phase::Recovery if self.recovery_by_duplicates => {
                // A partial acknowledgment (RFC 6582 section 3.2 (3)).
                self.outbound.mark_front_lost();
                self.force_lost = self.outbound.front_lost();
            }
            Phase::Recovery | Phase::Loss => {}
            Phase::Open | Phase::Cwr => {
                self.recovery_by_duplicates = false;
                self.outbound.forget_duplicates();
                if matches!(before, Phase::Recovery | Phase::Loss) {
                    self.rack.recovery_over();
                    self.frto.give_up();
                }
            }
        }
        // RFC 6298 section 5.3.
        self.timer = Timer::Idle;
        self.schedule_probe(env.now);
    }

    /// Whether an ACK of SND.UNA says nothing that is new but by SACK blocks: with something
    /// outstanding it is a duplicate ACK (RFC 5681 section 2).
    fn repeats(&self, says: &Ack<'_>, window: u64) -> bool {
        !says.takes_sequence && window == self.outbound.window()
    }

    fn on_fin_acknowledged(&mut self, env: &mut Env<'_, B>) {
        match self.state {
            State::FinWait1 => {
                self.state = State::FinWait2;
                self.timer = self.fin_wait_2_timer(env);
            }
            State::Closing => self.enter_time_wait(env),
            State::LastAck => self.die(env, Some(Event::Closed)),
            _ => {}
        }
    }
}
