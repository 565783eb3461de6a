//! Timers (RFC 9260 sections 4, 6.3.3, 8.1, 9.2).

use userspace_net::Instant;

use super::{Association, WindowProbe};
use crate::cause::Cause;
use crate::effects::Env;
use crate::interface::{Event, Failure, State};
use crate::outbound::Lost;

/// T5-shutdown-guard, in times of `RTO.Max`.
pub(super) const GUARD: u32 = 5;

/// The timers of an association but for those of its paths, under the RFC's names.
#[derive(Debug, Default)]
pub(super) struct Timers {
    /// T1-init and T1-cookie.
    pub(super) t1: Option<Instant>,
    /// T2-shutdown.
    pub(super) t2: Option<Instant>,
    /// T5-shutdown-guard.
    pub(super) t5: Option<Instant>,
    /// The end of the user timeout, while data is outstanding: from the last SACK on.
    pub(super) user: Option<Instant>,
}

impl Timers {
    pub(super) fn next(&self) -> Option<Instant> {
        let all = [self.t1, self.t2, self.t5, self.user];
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
        if expired(&mut self.timers.user, now) {
            let cause = Cause::UserInitiated(b"nothing was acknowledged for too long");
            self.abort_by(&cause, env);
            return self.fail(env, Failure::Unreachable);
        }
        if expired(&mut self.timers.t1, now) {
            self.on_t1(env);
        }
        if expired(&mut self.timers.t2, now) {
            self.on_t2(env);
        }
        for at in 0..self.paths.len() {
            if expired(&mut self.paths[at].timers.t3, now) {
                self.on_t3(at, env);
            }
            if self.is_gone() {
                return;
            }
            if expired(&mut self.paths[at].timers.heartbeat, now) {
                self.on_heartbeat_timer(at, env);
            }
            if expired(&mut self.paths[at].timers.probe, now) {
                self.on_probe_timer(at, now);
            }
        }
    }

    fn on_t1(&mut self, env: &mut Env<'_, B>) {
        if !self.count_unanswered(env) {
            return;
        }
        let rto = &mut self.paths[0].rto;
        rto.back_off();
        self.timers.t1 = Some(env.now + rto.get());
        match self.state {
            State::CookieWait => self.pending.init = true,
            _ => {
                self.pending.cookie_echo = true;
                self.outbound.timed_out(0);
            }
        }
    }

    fn on_t2(&mut self, env: &mut Env<'_, B>) {
        let at = self.control_path();
        self.paths[at].rto.back_off();
        if self.count_error(at, true, env) {
            let next = self.path_again(Lost {
                path: at,
                timed_out: true,
            });
            self.heard_from = next;
            self.timers.t2 = Some(env.now + self.paths[next].rto.get());
            self.send_shutdown();
        }
    }

    fn on_t3(&mut self, at: usize, env: &mut Env<'_, B>) {
        self.burst = env.config.max_burst;
        if !self.outbound.is_outstanding() {
            // It waited for the window to open.
            self.window_probe = WindowProbe::Due;
            self.probes = self.probes.saturating_add(1);
            self.is_answered = false;
            return;
        }
        // A peer that answers probes of its closed window is no error (section 6.1, rule A).
        let is_probed = self.window_probe == WindowProbe::Sent && self.is_answered;
        self.is_answered = false;
        if is_probed {
            self.paths[at].mtu.answered();
            self.probes = self.probes.saturating_add(1);
        } else {
            if !self.count_error(at, true, env) {
                return;
            }
            self.doubt_mtu(at, env);
        }
        env.effects.counters.timeouts += 1;
        self.counters.timeouts += 1;
        let path = &mut self.paths[at];
        if !is_probed {
            // Neither cwnd nor the timeout follow from probes: these wait longer by their number.
            path.congestion.timed_out();
            path.rto.back_off();
        }
        path.fast = false;
        self.outbound.timed_out(at);
        self.probe_left_paths(env.now);
        self.arm_t3(env);
    }

    /// The peer did not answer on a path (sections 8.1, 8.2); `counts`: for the association too. `false`: for too long,
    /// and the association is gone.
    pub(super) fn count_error(&mut self, at: usize, counts: bool, env: &mut Env<'_, B>) -> bool {
        self.errors += u32::from(counts);
        if self.errors > env.config.association_max_retrans {
            self.fail(env, Failure::Unreachable);
            return false;
        }
        let path = &mut self.paths[at];
        path.errors = path.errors.saturating_add(1);
        if path.is_active && path.errors > env.config.path_max_retrans {
            path.is_active = false;
            let remote = path.remote;
            self.event(env, Event::PathDown { remote });
        }
        true
    }

    pub(super) fn peer_answers(&mut self, at: usize, env: &mut Env<'_, B>) {
        self.errors = 0;
        let path = &mut self.paths[at];
        let had_errors = std::mem::take(&mut path.errors) > 0;
        if !path.is_active {
            path.is_active = true;
            let remote = path.remote;
            self.event(env, Event::PathUp { remote });
        }
        if had_errors {
            self.probe_left_paths(env.now);
        }
    }

    /// Paths that are left for another one from now on are asked at once when they are back.
    fn probe_left_paths(&mut self, now: Instant) {
        for at in 0..self.paths.len() {
            let is_idle = self.outbound.flight_on(at) == 0;
            if is_idle && !self.paths[at].heartbeat.is_awaited && self.is_left(at) {
                self.paths[at].timers.heartbeat = Some(now);
            }
        }
    }
}
