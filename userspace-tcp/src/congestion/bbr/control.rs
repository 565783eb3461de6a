//! What the model makes of pacing rate and congestion window (section 5.6).

use super::probe_rtt::PROBE_RTT_CWND_GAIN;
use super::{
    Ack, Bbr, DEFAULT_CWND_GAIN, DRAIN_PACING_GAIN, INFINITY, Phase, STARTUP_PACING_GAIN, State,
};

/// BBR.MinPipeCwnd in segments.
const MIN_PIPE_SEGMENTS: u64 = 4;

/// Send quanta that are in flight or in the ends' hands (section 5.5.8).
const OFFLOAD_QUANTA: u64 = 3;

/// InitPacingRate() takes so many nanoseconds for a round trip that was not measured.
const NOMINAL_RTT: u64 = 1_000_000;

/// BBR.PacingMarginPercent
const PACING_MARGIN: u64 = 1;

impl Bbr {
    /// BBR.pacing_gain, by the table of section 5.6.1.
    pub(super) fn pacing_gain(&self) -> u64 {
        match self.state {
            State::Startup => STARTUP_PACING_GAIN,
            State::Drain => DRAIN_PACING_GAIN,
            State::ProbeBw(Phase::Down) => 90,
            State::ProbeBw(Phase::Cruise | Phase::Refill) | State::ProbeRtt => 100,
            State::ProbeBw(Phase::Up) => 125,
        }
    }

    /// BBR.cwnd_gain, by the same.
    fn cwnd_gain(&self) -> u64 {
        match self.state {
            State::ProbeRtt => PROBE_RTT_CWND_GAIN,
            State::ProbeBw(Phase::Up) => 225,
            State::Startup | State::Drain | State::ProbeBw(_) => DEFAULT_CWND_GAIN,
        }
    }

    /// InitPacingRate() of section 5.6.2.
    pub(super) fn init_pacing_rate(&mut self, srtt: Option<u64>) {
        let srtt = srtt.filter(|srtt| *srtt > 0).unwrap_or(NOMINAL_RTT);
        let nominal = u128::from(self.initial_cwnd) * 1_000_000_000 / u128::from(srtt);
        let rate = nominal * u128::from(STARTUP_PACING_GAIN) / 100;
        self.pacing_rate = u64::try_from(rate).unwrap_or(u64::MAX).max(self.min_rate());
    }

    /// SetPacingRateWithGain() of section 5.6.2.
    pub(super) fn set_pacing_rate(&mut self, gain: u64) {
        let rate = share(share(self.bw, gain), 100 - PACING_MARGIN);
        // Without any sample the first rate holds.
        if self.bw > 0 && (self.full_pipe.reached || rate > self.pacing_rate) {
            self.pacing_rate = rate.max(self.min_rate());
        }
    }

    /// However few ACKs come, two segments may go in a second.
    fn min_rate(&self) -> u64 {
        2 * self.smss
    }

    /// BDPMultiple() of section 5.6.4.2: `gain` hundredths of what the path holds at `bw`.
    pub(super) fn bdp(&self, bw: u64, gain: u64) -> u64 {
        if self.round_trips.min == INFINITY {
            return self.initial_cwnd;
        }
        share(bytes_in(bw, self.round_trips.min), gain)
    }

    /// Inflight()
    pub(super) fn inflight(&self, bw: u64, gain: u64) -> u64 {
        self.quantization_budget(self.bdp(bw, gain))
    }

    fn quantization_budget(&self, cap: u64) -> u64 {
        let budget = self.pace().quantum().saturating_mul(OFFLOAD_QUANTA);
        let cap = cap.max(budget).max(self.min_pipe_cwnd());
        if self.state == State::ProbeBw(Phase::Up) {
            cap.saturating_add(2 * self.smss)
        } else {
            cap
        }
    }

    /// TargetInflight() of section 5.3.3.8.3.
    pub(super) fn target_inflight(&self) -> u64 {
        self.bdp(self.bw, 100).min(self.cwnd)
    }

    /// BBR.MinPipeCwnd
    pub(super) fn min_pipe_cwnd(&self) -> u64 {
        MIN_PIPE_SEGMENTS * self.smss
    }

    /// ProbeRTTCwnd() of section 5.6.4.5.
    pub(super) fn probe_rtt_cwnd(&self) -> u64 {
        self.bdp(self.bw, PROBE_RTT_CWND_GAIN)
            .max(self.min_pipe_cwnd())
    }

    /// SaveCwnd() of section 5.6.4.4.
    pub(super) fn save_cwnd(&mut self) {
        self.prior_cwnd = if self.recovering || self.state == State::ProbeRtt {
            self.prior_cwnd.max(self.cwnd)
        } else {
            self.cwnd
        };
    }

    /// RestoreCwnd()
    pub(super) fn restore_cwnd(&mut self) {
        self.cwnd = self.cwnd.max(self.prior_cwnd);
    }

    /// SetCwnd() of section 5.6.4.6.
    pub(super) fn set_cwnd(&mut self, ack: &Ack<'_>) {
        let gained = self.bdp(self.bw, self.cwnd_gain());
        let wanted = gained.saturating_add(self.aggregation.extra());
        let max_inflight = self.quantization_budget(wanted);
        let grown = self.cwnd.saturating_add(ack.sample.newly_acked);
        if self.full_pipe.reached {
            self.cwnd = grown.min(max_inflight);
        } else if self.cwnd < max_inflight || ack.sample.total < self.initial_cwnd {
            self.cwnd = grown;
        }
        self.cwnd = self.cwnd.max(self.min_pipe_cwnd());
        if self.state == State::ProbeRtt {
            self.cwnd = self.cwnd.min(self.probe_rtt_cwnd());
        }
        self.bound_cwnd_for_model();
        self.bound_cwnd();
    }

    /// BoundCwndForModel() of section 5.6.4.7.
    fn bound_cwnd_for_model(&mut self) {
        let cap = match self.state {
            State::ProbeBw(Phase::Cruise) | State::ProbeRtt => self.inflight_with_headroom(),
            State::ProbeBw(_) => self.inflight_longterm,
            State::Startup | State::Drain => INFINITY,
        };
        let cap = cap.min(self.short_term.inflight).max(self.min_pipe_cwnd());
        self.cwnd = self.cwnd.min(cap);
    }

    /// Whatever the model says: what the send queue could hold, and one segment.
    pub(super) fn bound_cwnd(&mut self) {
        self.cwnd = self.cwnd.min(self.limit).max(self.smss);
    }
}

/// So many hundredths of a value.
fn share(value: u64, hundredths: u64) -> u64 {
    let share = u128::from(value) * u128::from(hundredths) / 100;
    u64::try_from(share).unwrap_or(u64::MAX)
}

/// Bytes that go in so many nanoseconds at a rate of bytes a second.
pub(super) fn bytes_in(rate: u64, nanos: u64) -> u64 {
    let bytes = u128::from(rate) * u128::from(nanos) / 1_000_000_000;
    u64::try_from(bytes).unwrap_or(u64::MAX)
}
