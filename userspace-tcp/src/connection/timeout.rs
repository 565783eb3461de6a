//! Time passes: retransmission (RFC 6298), window probes (RFC 9293 section 3.8.6.1), TIME-WAIT, the
//! user timeout.

use std::time::Duration;

use userspace_net::{Instant, earlier};

use crate::config::Config;
use crate::effects::Env;
use crate::interface::{Event, SoftError, State};
use crate::tlp::Tlp;

use super::Connection;

/// When a retransmission is due but the link still has the buffer, it is looked at again after this.
const LINK_RETRY: Duration = Duration::from_millis(10);

/// The override timeout of RFC 9293 section 3.8.6.2.1, which asks for 0.1 to 1 second.
const OVERRIDE: Duration = Duration::from_millis(200);

/// R1 of RFC 9293 section 3.8.3: after so many timeouts in a row it may be the path.
const R1: u32 = 3;

/// What a connection waits for, at most one thing at a time; delayed ACKs come on top.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Timer {
    Idle,
    /// Something sent is not acknowledged.
    Retransmit(Instant),
    /// Something to send does not fit the peer's window, and nothing is on its way.
    Persist(Instant),
    FinWait2(Instant),
    TimeWait(Instant),
    /// Nothing is awaited; see [`super::keepalive`].
    KeepAlive(Instant),
}

impl Timer {
    fn at(self) -> Option<Instant> {
        match self {
            Self::Idle => None,
            Self::Retransmit(at)
            | Self::Persist(at)
            | Self::FinWait2(at)
            | Self::TimeWait(at)
            | Self::KeepAlive(at) => Some(at),
        }
    }
}

impl<B> Connection<B> {
    /// When [`Connection::advance`] has something to do.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let waits = self.outbound.unsent_bytes() > 0 || self.outbound.lost_bytes() > 0;
        let paced = self.pacer.closed_until().filter(|_| waits);
        let timer = earlier(self.timer.at(), self.inbound.ack_deadline());
        let loss = earlier(self.reorder_at, self.probe_at);
        earlier(earlier(timer, loss), paced)
    }

    /// Time has come to `env.now`.
    pub(crate) fn advance(&mut self, env: &mut Env<'_, B>) {
        self.inbound.advance(env.now);
        self.pacer.advance(env.now);
        if self.reorder_at.is_some_and(|at| at <= env.now) {
            self.on_reordering_timeout(env.now);
        }
        if self.probe_at.is_some_and(|at| at <= env.now) {
            self.on_probe_timeout(env);
        }
        if self.timer.at().is_some_and(|at| at <= env.now) {
            match self.timer {
                Timer::Idle => {}
                Timer::Retransmit(_) => self.on_retransmission_timeout(env),
                Timer::Persist(_) => self.on_persist_timeout(env),
                Timer::FinWait2(_) => self.die(env, Some(Event::TimedOut)),
                Timer::TimeWait(_) => self.die(env, Some(Event::TimeWaitOver)),
                Timer::KeepAlive(_) => self.on_keepalive_timeout(env),
            }
        }
    }

    /// Nothing is waited for any more but `timer`.
    pub(super) fn stop_timers(&mut self, timer: Timer) {
        self.timer = timer;
        self.reorder_at = None;
        self.probe_at = None;
    }

    /// Starts, keeps or stops the timer as the queue demands.
    #[inline]
    pub(super) fn refresh_timer(&mut self, now: Instant, config: &Config) {
        // As it should be already, nearly always.
        if !(matches!(self.timer, Timer::Retransmit(_)) && self.outbound.outstanding()) {
            self.choose_timer(now, config);
        }
    }

    fn choose_timer(&mut self, now: Instant, config: &Config) {
        if self.gone || self.state == State::TimeWait {
            return;
        }
        if self.state == State::FinWait2 {
            if !matches!(self.timer, Timer::FinWait2(_)) {
                self.timer = self.idle_timer();
            }
            return;
        }
        if self.outbound.outstanding() {
            if !matches!(self.timer, Timer::Retransmit(_)) {
                self.arm(now, config);
            }
        } else if self.outbound.unsent_fits_window() == Some(false) {
            match self.timer {
                // The window is not closed any more, but too small.
                Timer::Persist(at) if self.waits_for_override() => {
                    self.timer = Timer::Persist(at.min(now + OVERRIDE));
                }
                Timer::Persist(_) => {}
                _ => {
                    self.progress_at = now;
                    self.arm_persist(now, config);
                }
            }
        } else {
            self.timer = self.idle_timer();
            self.probes = 0;
        }
    }

    /// FIN-WAIT-2 lasts for so long after the peer was heard of, or like an open connection.
    pub(super) fn fin_wait_2_timer(&self, env: &Env<'_, B>) -> Timer {
        if env.config.fin_wait_2 == Duration::MAX {
            self.idle_timer()
        } else {
            Timer::FinWait2(env.now + env.config.fin_wait_2)
        }
    }

    /// RFC 6298 section 5.1, 5.3 and 5.6.
    fn arm(&mut self, now: Instant, config: &Config) {
        let at = now + self.rtt.rto(config);
        let give_up_at = self.gives_up_at(config).unwrap_or(at);
        let at = at.min(give_up_at).max(now);
        self.timer = Timer::Retransmit(at);
        self.probe_at = self.probe_at.map(|probe| probe.min(at));
    }

    /// When the user timeout is over (RFC 9293 section 3.9.1); `None`: not by time.
    fn gives_up_at(&self, config: &Config) -> Option<Instant> {
        let opening = matches!(self.state, State::SynSent | State::SynReceived);
        let patience = match self.user_timeout {
            None if opening => return None,
            None => config.user_timeout,
            Some(own) => own,
        };
        Some(self.progress_at + patience)
    }

    /// Gives the connection up if the user timeout is over.
    fn gives_up(&mut self, env: &mut Env<'_, B>) -> bool {
        let over = self.gives_up_at(env.config).is_some_and(|at| at <= env.now);
        if over {
            self.die(env, Some(Event::TimedOut));
        }
        over
    }

    /// The peer's window takes a part of the next segment, which the layer above may be asked to cut.
    fn waits_for_override(&self) -> bool {
        self.cuts_from > 0 && self.outbound.part_in_window().is_some()
    }

    fn arm_persist(&mut self, now: Instant, config: &Config) {
        let mut patience = self.rtt.backed_off(self.probes, config);
        if self.waits_for_override() {
            patience = patience.min(OVERRIDE);
        }
        let at = now + patience;
        let give_up_at = self.gives_up_at(config).unwrap_or(at);
        self.timer = Timer::Persist(at.min(give_up_at).max(now));
    }

    /// Starts or stops the probe timeout (RFC 8985 section 7.2), after something new was sent or
    /// acknowledged. A retransmission timeout that comes first makes room for the probe.
    pub(super) fn schedule_probe(&mut self, now: Instant) {
        let calm = !self.in_recovery() && self.outbound.segs_sacked() == 0;
        let wanted = self.sack && calm && self.outbound.outstanding();
        if !wanted || !self.tlp.may_probe() {
            self.probe_at = None;
            return;
        }
        let pto = Tlp::pto(self.rtt.srtt_nanos(), self.outbound.one_out());
        let at = now.plus_nanos(pto);
        self.probe_at = Some(match self.timer {
            Timer::Retransmit(timeout) => at.min(timeout),
            _ => at,
        });
    }

    /// Section 7.3.
    fn on_probe_timeout(&mut self, env: &mut Env<'_, B>) {
        self.probe_at = None;
        if self.gives_up(env) {
            return;
        }
        // Otherwise the retransmission timeout stays where it is.
        if self.outbound.unsent_fits_window() == Some(true) || self.outbound.tail_here() {
            self.tail_probe_due = true;
            self.arm(env.now, env.config);
        }
    }

    fn on_retransmission_timeout(&mut self, env: &mut Env<'_, B>) {
        if self.gives_up(env) {
            return;
        }
        if self.outbound.front_with_link() {
            self.timer = Timer::Retransmit(env.now + LINK_RETRY);
            return;
        }
        if matches!(self.state, State::SynSent | State::SynReceived) {
            if self.syn_timeouts >= env.config.syn_retries {
                self.die(env, Some(Event::TimedOut));
                return;
            }
            self.syn_timeouts += 1;
            self.syn_due = true;
        } else if self.probe_timed_out(env.now) {
            self.arm(env.now, env.config);
            return;
        } else {
            self.doubt_path(env);
            self.enter_loss(env.now);
        }
        self.rtt.back_off();
        self.arm(env.now, env.config);
        self.unanswered = self.unanswered.saturating_add(1);
        if self.unanswered == R1 {
            self.report(env, SoftError::NoAnswer);
        }
    }

    fn on_persist_timeout(&mut self, env: &mut Env<'_, B>) {
        if self.gives_up(env) {
            return;
        }
        self.counters.probes += 1;
        self.probes = self.probes.saturating_add(1);
        self.probe_due = true;
        if self.waits_for_override() {
            self.outbound.window_is_too_small();
            let event = Event::WindowTooSmall;
            env.effects.events.push_back((self.id, event));
        }
        self.arm_persist(env.now, env.config);
    }
}
