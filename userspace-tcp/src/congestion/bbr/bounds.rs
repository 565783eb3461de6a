//! What losses do to the model (sections 5.5.10 and 5.5.11). They set bounds of the rate and of what may be in
//! flight, short-term and long-term. The bounds are undone when there was no loss after all.

use userspace_net::Instant;

use super::probe_bw::AckPhase;
use super::{Ack, Bbr, INFINITY, Phase, State};
use crate::rate::{Excess, Losses};

/// The delivery process of the latest round (section 5.5.10.3).
#[derive(Debug, Default)]
pub(super) struct Latest {
    /// BBR.bw_latest
    pub(super) bw: u64,
    /// BBR.inflight_latest
    pub(super) inflight: u64,
    /// BBR.loss_round_delivered
    round_delivered: u64,
    /// BBR.loss_round_start
    pub(super) round_start: bool,
    /// BBR.is_loss_in_round
    pub(super) loss_in_round: bool,
    /// Sequence ranges lost in it.
    pub(super) ranges_of_round: u32,
}

/// The short-term model.
#[derive(Debug, Clone, Copy)]
pub(super) struct ShortTerm {
    /// BBR.bw_shortterm
    pub(super) bw: u64,
    /// BBR.inflight_shortterm
    pub(super) inflight: u64,
}

impl Default for ShortTerm {
    fn default() -> Self {
        Self {
            bw: INFINITY,
            inflight: INFINITY,
        }
    }
}

/// What was before a loss that may turn out to be none (section 5.5.11).
#[derive(Debug, Default)]
pub(super) struct Undo {
    /// BBR.undo_state: Startup or ProbeBW_UP.
    pub(super) state: Option<State>,
    /// BBR.undo_bw_shortterm and BBR.undo_inflight_shortterm
    short_term: Option<ShortTerm>,
    /// BBR.undo_inflight_longterm
    inflight_longterm: u64,
}

/// BBR.Beta of a value.
pub(super) fn beta(value: u64) -> u64 {
    value / 10 * 7 + value % 10 * 7 / 10
}

impl Bbr {
    /// UpdateLatestDeliverySignals()
    pub(super) fn update_latest_delivery_signals(&mut self, ack: &Ack<'_>) {
        let sample = ack.sample;
        let latest = &mut self.latest;
        latest.bw = latest.bw.max(sample.delivery_rate);
        latest.inflight = latest.inflight.max(sample.delivered);
        latest.round_start = sample.prior_delivered >= latest.round_delivered;
        if latest.round_start {
            latest.round_delivered = sample.total;
        }
    }

    /// AdvanceLatestDeliverySignals()
    pub(super) fn advance_latest_delivery_signals(&mut self, ack: &Ack<'_>) {
        if self.latest.round_start {
            self.latest.bw = ack.sample.delivery_rate;
            self.latest.inflight = ack.sample.delivered;
        }
    }

    /// ResetCongestionSignals()
    pub(super) fn reset_congestion_signals(&mut self) {
        self.latest.loss_in_round = false;
        self.latest.bw = 0;
        self.latest.inflight = 0;
    }

    /// UpdateCongestionSignals()
    pub(super) fn update_congestion_signals(&mut self, ack: &Ack<'_>) {
        self.update_max_bw(ack);
        if self.latest.round_start {
            self.adapt_lower_bounds();
            self.latest.loss_in_round = false;
        }
    }

    /// AdaptLowerBoundsFromCongestion(): never below what the latest round has delivered, and by
    /// BBR.Beta at most.
    fn adapt_lower_bounds(&mut self) {
        let probing = matches!(
            self.state,
            State::Startup | State::ProbeBw(Phase::Refill | Phase::Up)
        );
        if probing || !self.latest.loss_in_round {
            return;
        }
        let short = &mut self.short_term;
        if short.bw == INFINITY {
            short.bw = self.max_bw.get();
        }
        if short.inflight == INFINITY {
            short.inflight = self.cwnd;
        }
        short.bw = self.latest.bw.max(beta(short.bw));
        short.inflight = self.latest.inflight.max(beta(short.inflight));
    }

    /// NoteLoss() and HandleLostPacket() of section 5.5.10.2.
    pub(super) fn note_losses(&mut self, now: Instant, losses: &Losses) {
        if !self.latest.loss_in_round {
            self.latest.round_delivered = self.round.delivered;
            self.latest.ranges_of_round = 0;
            self.save_state();
        }
        self.latest.loss_in_round = true;
        let ranges = &mut self.latest.ranges_of_round;
        *ranges = ranges.saturating_add(losses.ranges.max(1));
        if let Some(excess) = losses.excess.filter(|_| self.cycle.probe_sample) {
            self.inflight_too_high(now, &excess);
        }
    }

    /// HandleInflightTooHigh(): once for each time that bandwidth was probed for.
    fn inflight_too_high(&mut self, now: Instant, excess: &Excess) {
        self.cycle.prev_too_high = true;
        self.cycle.probe_sample = false;
        if !excess.app_limited {
            self.inflight_longterm = excess.inflight.max(beta(self.target_inflight()));
        }
        if self.state == State::ProbeBw(Phase::Up) {
            self.undo.state = Some(self.state);
            self.start_probe_bw_down(now);
        }
    }

    /// SaveStateUponLoss()
    fn save_state(&mut self) {
        self.save_cwnd();
        self.undo = Undo {
            state: None,
            short_term: Some(self.short_term),
            inflight_longterm: self.inflight_longterm,
        };
    }

    /// OnEnterFastRecovery() of section 5.6.4.4.
    pub(crate) fn enter_recovery(&mut self) {
        self.save_state();
        self.recovering = true;
    }

    /// OnEnterRTO() of section 5.6.4.4: one segment may go, and what is delivered lets the rest
    /// follow.
    pub(crate) fn timed_out(&mut self) {
        self.save_state();
        self.recovering = true;
        self.cwnd = self.smss;
    }

    /// What was lost is repaired (section 5.6.4.4).
    pub(crate) fn recovered(&mut self) {
        self.recovering = false;
        self.restore_cwnd();
    }

    /// HandleSpuriousLossDetection() of section 5.5.11.2; `false` when there is nothing to take back.
    pub(crate) fn undo(&mut self) -> bool {
        let Some(before) = self.undo.short_term.take() else {
            return false;
        };
        self.recovered();
        self.latest.loss_in_round = false;
        self.full_pipe.reset(0);
        let short = &mut self.short_term;
        short.bw = short.bw.max(before.bw);
        short.inflight = short.inflight.max(before.inflight);
        self.inflight_longterm = self.inflight_longterm.max(self.undo.inflight_longterm);
        let left = self.undo.state.take().filter(|left| *left != self.state);
        let probe_rtt = self.state == State::ProbeRtt;
        match left {
            Some(State::Startup) => {
                self.full_pipe.reached = false;
                if !probe_rtt {
                    self.state = State::Startup;
                }
            }
            Some(_) if !probe_rtt => self.start_probe_bw_refill(),
            _ => {}
        }
        true
    }

    /// ResetShortTermModel()
    pub(super) fn reset_short_term_model(&mut self) {
        self.short_term = ShortTerm::default();
    }

    /// ACKs tell of what was sent while bandwidth was probed for.
    pub(super) fn stop_probing(&mut self) {
        self.cycle.ack_phase = AckPhase::ProbeStopping;
    }
}
