//! ProbeBW (section 5.3.3): most of a connection's life. Now and then more is sent than the model
//! says, to see whether the path takes it, and then less, so that a queue it made is gone and others
//! find room.

use std::time::Duration;

use userspace_net::Instant;

use super::{Ack, Bbr, INFINITY, Phase, State};

/// BBR.Headroom: of BBR.inflight_longterm left to others, in hundredths.
const HEADROOM: u64 = 15;

/// Rounds after which bandwidth is probed for at the latest (section 5.3.3.8.3).
const RENO_ROUNDS_MAX: u64 = 63;

/// The least BBR.bw_probe_wait; up to a second is added by chance.
const PROBE_WAIT: Duration = Duration::from_secs(2);

/// BBR.bw_probe_up_rounds at most.
const UP_ROUNDS_MAX: u32 = 30;

/// BBR.ack_phase: what ACKs tell of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AckPhase {
    Init,
    Refilling,
    ProbeStarting,
    ProbeFeedback,
    ProbeStopping,
}

/// The ProbeBW state of section 2.14.
#[derive(Debug)]
pub(super) struct Cycle {
    /// BBR.cycle_stamp
    stamp: Instant,
    pub(super) ack_phase: AckPhase,
    /// BBR.bw_probe_wait in nanoseconds.
    wait: u64,
    /// BBR.rounds_since_probe_up
    pub(super) rounds_since_up: u64,
    /// BBR.is_bw_probe_sample
    pub(super) probe_sample: bool,
    /// BBR.prev_probe_too_high
    pub(super) prev_too_high: bool,
    /// BBR.prev_probe_precautionary
    prev_precautionary: bool,
    /// BBR.bw_probe_up_acked
    up_acked: u64,
    /// BBR.probe_up_acked_per_inc
    up_acked_per_inc: u64,
    /// BBR.bw_probe_up_rounds
    up_rounds: u32,
    /// For random numbers; never 0.
    random: u32,
}

impl Cycle {
    pub(super) fn new(now: Instant, seed: u32) -> Self {
        Self {
            stamp: now,
            ack_phase: AckPhase::Init,
            wait: 0,
            rounds_since_up: 0,
            probe_sample: false,
            prev_too_high: false,
            prev_precautionary: false,
            up_acked: 0,
            up_acked_per_inc: INFINITY,
            up_rounds: 0,
            random: seed | 1,
        }
    }

    /// xorshift32
    fn random(&mut self) -> u32 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 17;
        self.random ^= self.random << 5;
        self.random
    }

    /// PickProbeWait()
    fn pick_wait(&mut self) {
        self.rounds_since_up = u64::from(self.random() & 1);
        let chance = (u64::from(self.random()) * 1_000_000_000) >> 32;
        self.wait = PROBE_WAIT.as_nanos() as u64 + chance;
    }
}

impl Bbr {
    /// StartProbeBW_DOWN()
    pub(super) fn start_probe_bw_down(&mut self, now: Instant) {
        self.reset_congestion_signals();
        self.cycle.up_acked_per_inc = INFINITY;
        self.cycle.pick_wait();
        self.cycle.stamp = now;
        self.stop_probing();
        self.start_round();
        self.state = State::ProbeBw(Phase::Down);
    }

    pub(super) fn start_probe_bw_cruise(&mut self) {
        self.state = State::ProbeBw(Phase::Cruise);
    }

    /// StartProbeBW_REFILL()
    pub(super) fn start_probe_bw_refill(&mut self) {
        self.reset_short_term_model();
        self.cycle.up_rounds = 0;
        self.cycle.up_acked = 0;
        self.cycle.prev_precautionary = false;
        self.cycle.ack_phase = AckPhase::Refilling;
        self.start_round();
        self.state = State::ProbeBw(Phase::Refill);
    }

    fn start_probe_bw_up(&mut self, ack: &Ack<'_>) {
        self.cycle.ack_phase = AckPhase::ProbeStarting;
        self.start_round();
        self.full_pipe.reset(ack.sample.delivery_rate);
        self.state = State::ProbeBw(Phase::Up);
        self.raise_inflight_longterm_slope();
    }

    /// UpdateProbeBWCyclePhase()
    pub(super) fn update_probe_bw_cycle_phase(&mut self, ack: &Ack<'_>) {
        if !self.full_pipe.reached || self.adapt_long_term_model(ack) {
            return;
        }
        let State::ProbeBw(phase) = self.state else {
            return;
        };
        match phase {
            Phase::Down | Phase::Cruise if self.is_time_to_probe(ack.now) => {
                self.start_probe_bw_refill();
            }
            Phase::Down if self.is_time_to_cruise(ack) => self.start_probe_bw_cruise(),
            Phase::Refill if self.round.start => {
                self.cycle.probe_sample = true;
                self.start_probe_bw_up(ack);
            }
            Phase::Up if self.is_time_to_go_down(ack) => {
                self.cycle.prev_too_high = false;
                self.start_probe_bw_down(ack.now);
            }
            Phase::Down | Phase::Cruise | Phase::Refill | Phase::Up => {}
        }
    }

    /// IsTimeToProbeBW(): a clock, or as many rounds as Reno would need to fill the pipe.
    fn is_time_to_probe(&self, now: Instant) -> bool {
        let reno_rounds = (self.target_inflight() / self.smss).min(RENO_ROUNDS_MAX);
        now.nanos_since(self.cycle.stamp) > self.cycle.wait
            || self.cycle.rounds_since_up >= reno_rounds
    }

    fn is_time_to_cruise(&self, ack: &Ack<'_>) -> bool {
        ack.inflight <= self.inflight_with_headroom()
            && ack.inflight <= self.inflight(self.max_bw.get(), 100)
    }

    /// IsTimeToGoDown()
    fn is_time_to_go_down(&mut self, ack: &Ack<'_>) -> bool {
        if self.cycle.prev_too_high && ack.inflight >= self.inflight_longterm {
            self.cycle.prev_precautionary = true;
            return true;
        }
        if self.cwnd_limited && self.cwnd >= self.inflight_longterm {
            self.full_pipe.reset(ack.sample.delivery_rate);
            return false;
        }
        self.full_pipe.now
    }

    /// InflightWithHeadroom()
    pub(super) fn inflight_with_headroom(&self) -> u64 {
        if self.inflight_longterm == INFINITY {
            return INFINITY;
        }
        let headroom = (self.inflight_longterm / 100 * HEADROOM).max(self.smss);
        let left = self.inflight_longterm.saturating_sub(headroom);
        left.max(self.min_pipe_cwnd())
    }

    /// RaiseInflightLongtermSlope(): twice as steep each round.
    fn raise_inflight_longterm_slope(&mut self) {
        let growth = 1 << self.cycle.up_rounds;
        self.cycle.up_rounds = (self.cycle.up_rounds + 1).min(UP_ROUNDS_MAX);
        self.cycle.up_acked_per_inc = (self.cwnd / growth).max(self.smss);
    }

    /// ProbeInflightLongtermUpward()
    fn probe_inflight_longterm_upward(&mut self, ack: &Ack<'_>) {
        if !self.cwnd_limited || self.cwnd < self.inflight_longterm {
            return;
        }
        let cycle = &mut self.cycle;
        cycle.up_acked = cycle.up_acked.saturating_add(ack.sample.newly_acked);
        let segments = cycle.up_acked / cycle.up_acked_per_inc;
        cycle.up_acked %= cycle.up_acked_per_inc;
        let delta = segments.saturating_mul(self.smss);
        // Infinity is never reached.
        self.inflight_longterm = self
            .inflight_longterm
            .saturating_add(delta)
            .min(INFINITY - 1);
        if self.round.start {
            self.raise_inflight_longterm_slope();
        }
    }

    /// AdaptLongTermModel(); `true` when it has decided the next state.
    fn adapt_long_term_model(&mut self, ack: &Ack<'_>) -> bool {
        let probing = matches!(self.state, State::ProbeBw(_));
        if self.cycle.ack_phase == AckPhase::ProbeStarting && self.round.start {
            self.cycle.ack_phase = AckPhase::ProbeFeedback;
        }
        if self.cycle.ack_phase == AckPhase::ProbeStopping && self.round.start {
            self.cycle.probe_sample = false;
            self.cycle.ack_phase = AckPhase::Init;
            if probing && !ack.sample.app_limited {
                self.max_bw.advance();
            }
            if probing && self.cycle.prev_precautionary && !self.cycle.prev_too_high {
                self.start_probe_bw_refill();
                return true;
            }
        }
        if !ack.too_high && self.inflight_longterm < INFINITY {
            self.inflight_longterm = self.inflight_longterm.max(ack.sample.tx_in_flight);
            if self.state == State::ProbeBw(Phase::Up) {
                self.probe_inflight_longterm_upward(ack);
            }
        }
        false
    }
}
