//! An acknowledgment arrives: round trips, congestion window, loss (RFC 5681, 6582, 6675), and the
//! peer's window.

use crate::congestion::{Delivery, Outstanding, Phase, Progress};
use crate::effects::Env;
use crate::interface::{Event, State};
use crate::outbound::DUP_THRESH;
use crate::segment::{Flags, Segment};
use crate::seq::Position;

use super::Connection;
use super::timeout::Timer;

impl<B> Connection<B> {
    /// Takes the ACK of an acceptable segment at `start`; `false` drops the segment.
    pub(super) fn on_ack(
        &mut self,
        env: &mut Env<'_, B>,
        segment: &Segment<'_>,
        start: i64,
    ) -> bool {
        let position = self.outbound.position(segment.header.ack);
        let una = self.outbound.una();
        // RFC 5961 section 5.2.
        let oldest = una.cast_signed() - self.outbound.window_max().cast_signed();
        if position > self.outbound.next().cast_signed() || position < oldest {
            self.challenge(env);
            return false;
        }
        if position < una.cast_signed() {
            return true;
        }
        let ack = position.cast_unsigned();
        let window = u64::from(segment.header.window) << self.peer_shift;
        let ece = self.ecn.sends_capable() && segment.header.flags.contains(Flags::ECE);
        let delivered = self.outbound.delivered();
        let mut lost = self.outbound.lost_octets();
        if ack > una {
            self.on_progress(env, segment, ack, ece);
            lost = lost.min(self.outbound.lost_octets());
        } else if self.is_duplicate(segment, window) {
            self.on_duplicate();
        }
        if self.sack
            && self
                .outbound
                .note_sacked(segment.header.options.sack.as_slice())
        {
            self.outbound.mark_lost();
        }
        self.outbound.update_window(start, ack, window);
        if window == 0 || self.outbound.unsent_fits_window() == Some(false) {
            // A peer that answers may keep its window shut as long as it likes (RFC 9293
            // section 3.8.6.1).
            self.progress_at = env.now;
        }
        if ece && self.congestion.marked(&self.outstanding(delivered)) {
            self.counters.ecn_reductions += 1;
        }
        let may_recover = matches!(self.congestion.phase(), Phase::Open | Phase::Cwr);
        if may_recover && self.outbound.front_lost() {
            self.counters.fast_recoveries += 1;
            self.congestion.enter_recovery(&self.outstanding(delivered));
            self.force_lost = true;
        }
        self.congestion.delivered(&Delivery {
            octets: self.outbound.delivered().saturating_sub(delivered),
            pipe: self.outbound.pipe(),
            safe: ack > una && self.outbound.lost_octets() <= lost,
        });
        if self.outbound.fin.acknowledged() {
            self.on_fin_acknowledged(env);
        }
        true
    }

    /// What is out, when so much had been delivered before.
    pub(super) fn outstanding(&self, delivered: u64) -> Outstanding {
        Outstanding {
            flight: self.outbound.flight(),
            undelivered: self.outbound.next().saturating_sub(delivered),
            next: self.outbound.next(),
        }
    }

    fn on_progress(
        &mut self,
        env: &mut Env<'_, B>,
        segment: &Segment<'_>,
        ack: Position,
        ece: bool,
    ) {
        let flight = self.outbound.flight();
        let released = &mut env.effects.released;
        let queues = &mut env.pools.queues;
        let acked = self
            .outbound
            .acknowledge(ack, queues, |buf| released.push_back(buf));
        let echoed = segment
            .header
            .options
            .timestamps
            .filter(|_| self.clock.in_use());
        let rtt = match acked.sent_at {
            Some(sent_at) => Some(env.now.saturating_duration_since(sent_at)),
            // RFC 7323 section 4: an echo says which transmission is answered. But a peer that had
            // all of it before echoes an earlier one, whose own answer was lost long ago.
            None => echoed
                .filter(|echo| self.clock.is_since(*echo, acked.resent_at))
                .and_then(|echo| self.clock.round_trip(env.now, echo)),
        };
        if let Some(rtt) = rtt {
            self.rtt.measured(rtt, env.config);
        }
        self.duplicates = 0;
        self.probes = 0;
        self.progress_at = env.now;
        self.congestion.acknowledged(&Progress {
            now: env.now,
            octets: acked.octets,
            una: ack,
            next: self.outbound.next(),
            flight,
            ece,
            rtt,
            srtt: self.rtt.srtt(),
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
            }
        }
        // RFC 6298 section 5.3.
        self.timer = Timer::Idle;
    }

    /// RFC 5681 section 2. With SACK blocks it is they that count.
    fn is_duplicate(&self, segment: &Segment<'_>, window: u64) -> bool {
        segment.sequence_len() == 0
            && self.outbound.outstanding()
            && window == self.outbound.window()
            && segment.header.options.sack.is_empty()
    }

    fn on_duplicate(&mut self) {
        self.duplicates = self.duplicates.saturating_add(1);
        if self.congestion.phase() == Phase::Loss {
            return;
        }
        self.outbound.one_left(u64::from(self.emss));
        // RFC 6582 section 3.2 (1): not for what the last recovery has sent twice.
        let fresh = match self.congestion.phase() {
            Phase::Open => self.outbound.una() > self.congestion.recover(),
            Phase::Cwr => true,
            Phase::Recovery | Phase::Loss => false,
        };
        if self.duplicates == DUP_THRESH && fresh {
            self.outbound.mark_front_lost();
            self.recovery_by_duplicates = self.outbound.front_lost();
        }
    }

    fn on_fin_acknowledged(&mut self, env: &mut Env<'_, B>) {
        match self.state {
            State::FinWait1 => {
                self.state = State::FinWait2;
                self.timer = Timer::FinWait2(env.now + env.config.fin_wait_2);
            }
            State::Closing => self.enter_time_wait(env),
            State::LastAck => self.die(env, Some(Event::Closed)),
            _ => {}
        }
    }
}
