//! BBRv3 (draft-ietf-ccwg-bbr-06, experimental): a model of the path, from what is delivered and how
//! long a round trip takes, says how fast to send and how much may be in the network. A loss changes
//! the model only as far as it says something of the path: what is lost by chance costs what was
//! lost, and no more.
//!
//! Names and sections are the draft's. Sizes are bytes, rates bytes a second, gains hundredths.
//! [`u64::MAX`] is its Infinity. The modules are parts of one algorithm: the model ([`bounds`],
//! [`filter`], [`full_pipe`]), the states ([`probe_bw`], [`probe_rtt`]) and what they set
//! ([`control`]).

mod bounds;
mod control;
mod filter;
mod full_pipe;
mod probe_bw;
mod probe_rtt;
#[cfg(test)]
mod tests;

use userspace_net::Instant;

use crate::pacing::Pace;
use crate::rate::{Losses, RateSample};
use crate::seq::Position;
use bounds::{Latest, ShortTerm, Undo};
use filter::{Aggregation, Recent};
use full_pipe::FullPipe;
use probe_bw::Cycle;
use probe_rtt::RoundTrips;

/// Infinity: no bound, or nothing known.
const INFINITY: u64 = u64::MAX;

/// BBR.StartupPacingGain
const STARTUP_PACING_GAIN: u64 = 277;

/// BBR.DrainPacingGain
const DRAIN_PACING_GAIN: u64 = 50;

/// BBR.DefaultCwndGain
const DEFAULT_CWND_GAIN: u64 = 200;

/// Rounds that Drain lasts at most (section 5.3.2).
const DRAIN_ROUNDS: u64 = 3;

/// Section 5.1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Twice as fast each round, until the pipe is full.
    Startup,
    /// What Startup has left in a queue goes.
    Drain,
    ProbeBw(Phase),
    /// Little is in flight, so that the round trip shows itself.
    ProbeRtt,
}

/// The four states of ProbeBW (section 5.3.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Down,
    Cruise,
    Refill,
    Up,
}

/// BBR's state of one connection.
#[derive(Debug)]
pub(crate) struct Bbr {
    state: State,
    /// C.SMSS
    smss: u64,
    /// The most that cwnd may be.
    limit: u64,
    /// C.InitialCwnd
    initial_cwnd: u64,
    /// C.cwnd, and BBR.prior_cwnd: the last one that no loss had changed.
    cwnd: u64,
    prior_cwnd: u64,
    /// C.pacing_rate
    pacing_rate: u64,
    /// Fast recovery or a timeout is being recovered from (InLossRecovery()).
    recovering: bool,
    round: Round,
    /// BBR.bw, and the filter of BBR.max_bw, whose time is BBR.cycle_count.
    bw: u64,
    max_bw: Recent,
    aggregation: Aggregation,
    full_pipe: FullPipe,
    latest: Latest,
    /// BBR.inflight_longterm
    inflight_longterm: u64,
    short_term: ShortTerm,
    undo: Undo,
    cycle: Cycle,
    round_trips: RoundTrips,
    /// BBR.drain_start_round
    drain_start_round: u64,
    /// BBR.idle_restart
    idle_restart: bool,
    /// What was sent up to here was sent because cwnd allowed no more.
    limited_to: Position,
    /// C.is_cwnd_limited
    cwnd_limited: bool,
}

/// Packet-timed round trips (section 5.5.1).
#[derive(Debug, Default)]
struct Round {
    /// C.delivered
    delivered: u64,
    /// BBR.next_round_delivered
    next_delivered: u64,
    /// BBR.round_start
    start: bool,
    /// BBR.round_count
    count: u64,
}

/// What an ACK brought, beside losses.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ack<'a> {
    pub(crate) now: Instant,
    pub(crate) sample: &'a RateSample,
    /// The sample shows more loss than is well.
    pub(crate) too_high: bool,
    /// Bytes in the network before the ACK, and after it.
    pub(crate) inflight_before: u64,
    pub(crate) inflight: u64,
    /// SND.UNA and SND.NXT.
    pub(crate) una: Position,
    pub(crate) next: Position,
    /// Without selective acknowledgments one loss a round is all that can be seen.
    pub(crate) selective: bool,
    /// Fast recovery is under way.
    pub(crate) fast_recovery: bool,
}

impl Bbr {
    /// OnInit() of section 5.2.1, at the end of the handshake: `srtt` in nanoseconds, if it was
    /// measured; `seed` is any number.
    pub(crate) fn new(now: Instant, setup: &Setup) -> Self {
        let mut bbr = Self {
            state: State::Startup,
            smss: setup.smss.max(1),
            limit: setup.limit,
            initial_cwnd: setup.cwnd,
            cwnd: setup.cwnd,
            prior_cwnd: 0,
            pacing_rate: 0,
            recovering: false,
            round: Round::default(),
            bw: 0,
            max_bw: Recent::default(),
            aggregation: Aggregation::new(now),
            full_pipe: FullPipe::default(),
            latest: Latest::default(),
            inflight_longterm: INFINITY,
            short_term: ShortTerm::default(),
            undo: Undo::default(),
            cycle: Cycle::new(now, setup.seed),
            round_trips: RoundTrips::new(now, setup.srtt),
            drain_start_round: 0,
            idle_restart: false,
            limited_to: 0,
            cwnd_limited: false,
        };
        bbr.init_pacing_rate(setup.srtt);
        bbr
    }

    pub(crate) fn cwnd(&self) -> u64 {
        self.cwnd
    }

    /// How fast, and in which quanta, bytes go out.
    pub(crate) fn pace(&self) -> Pace {
        Pace::of_rate(self.pacing_rate, self.smss)
    }

    /// Segments have another size from now on.
    pub(crate) fn mss_changed(&mut self, smss: u64) {
        self.smss = smss.max(1);
        self.bound_cwnd();
    }

    /// Section 5.2.3, UpdateOnACK(): the model, the state, and what follows from them. Returns
    /// whether samples are to be taken for application-limited from now on.
    pub(crate) fn acknowledged(&mut self, ack: &Ack<'_>) -> bool {
        if ack.inflight_before.saturating_add(self.smss) > self.cwnd {
            self.limited_to = ack.next;
        }
        self.cwnd_limited = ack.una <= self.limited_to;
        self.round.delivered = ack.sample.total;
        self.update_latest_delivery_signals(ack);
        self.update_congestion_signals(ack);
        self.update_ack_aggregation(ack);
        self.check_full_bw_reached(ack);
        self.check_startup_done(ack);
        self.check_drain_done(ack);
        self.update_probe_bw_cycle_phase(ack);
        self.update_min_rtt(ack);
        let app_limited = self.check_probe_rtt(ack);
        self.advance_latest_delivery_signals(ack);
        self.bw = self.max_bw.get().min(self.short_term.bw);
        self.set_pacing_rate(self.pacing_gain());
        self.set_cwnd(ack);
        app_limited
    }

    /// Section 5.3.1, CheckStartupDone().
    fn check_startup_done(&mut self, ack: &Ack<'_>) {
        self.check_startup_high_loss(ack);
        if self.state == State::Startup && self.full_pipe.reached {
            self.state = State::Drain;
            self.drain_start_round = self.round.count;
        }
    }

    /// Section 5.3.2, CheckDrainDone().
    fn check_drain_done(&mut self, ack: &Ack<'_>) {
        let long = self.round.count > self.drain_start_round.saturating_add(DRAIN_ROUNDS);
        if self.state == State::Drain && (long || ack.inflight <= self.inflight(self.bw, 100)) {
            self.start_probe_bw_down(ack.now);
        }
    }

    /// Section 5.5.1, UpdateRound().
    fn update_round(&mut self, ack: &Ack<'_>) {
        self.round.start = ack.sample.prior_delivered >= self.round.next_delivered;
        if self.round.start {
            self.start_round();
            self.round.count += 1;
            self.cycle.rounds_since_up = self.cycle.rounds_since_up.saturating_add(1);
        }
    }

    /// Section 5.5.1, StartRound().
    fn start_round(&mut self) {
        self.round.next_delivered = self.round.delivered;
    }

    /// Something is sent while nothing is in the network, after the application had nothing to send
    /// (section 5.4.1, HandleRestartFromIdle()).
    pub(crate) fn restarts_from_idle(&mut self, now: Instant) {
        self.idle_restart = true;
        self.aggregation.restart(now);
        match self.state {
            State::ProbeBw(_) => self.set_pacing_rate(100),
            State::ProbeRtt => self.check_probe_rtt_done(now),
            State::Startup | State::Drain => {}
        }
    }

    /// What was found lost (section 5.2.4), when so much was delivered.
    pub(crate) fn lost(&mut self, now: Instant, losses: &Losses, delivered: u64) {
        self.round.delivered = delivered;
        if losses.segments > 0 {
            self.note_losses(now, losses);
        }
    }
}

/// What a connection begins with.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Setup {
    pub(crate) smss: u64,
    pub(crate) limit: u64,
    /// The initial window.
    pub(crate) cwnd: u64,
    /// In nanoseconds.
    pub(crate) srtt: Option<u64>,
    /// Any number: it decides when bandwidth is probed for.
    pub(crate) seed: u32,
}
