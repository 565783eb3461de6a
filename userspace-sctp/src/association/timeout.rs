//! Timers (RFC 9260 sections 4, 6.3.3, 8.1, 9.2).

use userspace_net::Instant;

use super::{Association, WindowProbe};
use crate::cause::Cause;
use crate::effects::Env;
use crate::interface::{Event, Failure, State};

/// T5-shutdown-guard, in times of `RTO.Max`.
pub(super) const GUARD: u32 = 5;

/// The timers of an association, under the RFC's names.
#[derive(Debug, Default)]
pub(super) struct Timers {
    /// T1-init and T1-cookie.
    pub(super) t1: Option<Instant>,
    /// T2-shutdown.
    pub(super) t2: Option<Instant>,
    /// T3-rtx.
    pub(super) t3: Option<Instant>,
    /// T5-shutdown-guard.
    pub(super) t5: Option<Instant>,
    /// The next heartbeat, or the end of the wait for the last one.
    pub(super) heartbeat: Option<Instant>,
    /// PROBE_TIMER of RFC 8899: the end of the wait for the answer to a probe of the path's MTU.
    pub(super) probe: Option<Instant>,
}

impl Timers {
    pub(super) fn next(&self) -> Option<Instant> {
        let all = [
            self.t1,
            self.t2,
            self.t3,
            self.t5,
            self.heartbeat,
            self.probe,
        ];
        all.into_iter().flatten().min()
    }
}

/// Takes a timer out whose time has come.
fn expired(timer: &mut Option<Instant>, now: Instant) -> bool {
    timer.take_if(|at| *at <= now).is_some()
}

impl<B> Association<B> {
    /// Lets time pass.
    pub(crate) fn advance(&mut self, env: &mut Env<'_, B>) {
        let now = env.now;
        if expired(&mut self.timers.t5, now) {
            let cause = Cause::UserInitiated(b"the shutdown takes too long");
            self.abort_by(&cause, env);
            return self.fail(env, Failure::ShutdownTimedOut);
        }
        if expired(&mut self.timers.t1, now) {
            self.on_t1(env);
        }
        if expired(&mut self.timers.t2, now) {
            self.on_t2(env);
        }
        if expired(&mut self.timers.t3, now) {
            self.on_t3(env);
        }
        if expired(&mut self.timers.heartbeat, now) {
            self.on_heartbeat_timer(env);
        }
        if expired(&mut self.timers.probe, now) {
            self.on_probe_timer(now);
        }
    }

    fn on_t1(&mut self, env: &mut Env<'_, B>) {
        if !self.count_unanswered(env) {
            return;
        }
        self.path.rto.back_off();
        self.timers.t1 = Some(env.now + self.path.rto.get());
        match self.state {
            State::CookieWait => self.pending.init = true,
            _ => {
                self.pending.cookie_echo = true;
                self.outbound.timed_out();
            }
        }
    }

    fn on_t2(&mut self, env: &mut Env<'_, B>) {
        self.path.rto.back_off();
        if self.count_error(env) {
            self.timers.t2 = Some(env.now + self.path.rto.get());
            self.send_shutdown();
        }
    }

    fn on_t3(&mut self, env: &mut Env<'_, B>) {
        self.burst = env.config.max_burst;
        if !self.outbound.is_outstanding() {
            // It waited for the window to open.
            self.window_probe = WindowProbe::Due;
            self.is_answered = false;
            return;
        }
        // A peer that answers probes of its closed window is no error (section 6.1, rule A).
        let is_probed = self.window_probe == WindowProbe::Sent && self.is_answered;
        self.is_answered = false;
        if is_probed {
            self.path.mtu.answered();
        } else {
            if !self.count_error(env) {
                return;
            }
            self.doubt_mtu(env);
        }
        env.effects.counters.timeouts += 1;
        self.path.congestion.timed_out();
        self.path.rto.back_off();
        self.outbound.timed_out();
        self.fast = false;
        self.arm_t3(env.now);
    }

    /// The peer did not answer (section 8.1). `false`: for too long, and the association is gone.
    pub(super) fn count_error(&mut self, env: &mut Env<'_, B>) -> bool {
        self.path.errors += 1;
        if self.path.errors > env.config.association_max_retrans {
            self.fail(env, Failure::Unreachable);
            return false;
        }
        if self.path.errors == env.config.path_max_retrans + 1 {
            self.event(env, Event::PathDown);
        }
        true
    }

    /// The peer has answered.
    pub(super) fn peer_answers(&mut self, env: &mut Env<'_, B>) {
        if self.path.errors > env.config.path_max_retrans {
            self.event(env, Event::PathUp);
        }
        self.path.errors = 0;
    }
}
