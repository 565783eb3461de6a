//! The end (RFC 9260 section 9): in peace by SHUTDOWN, SHUTDOWN ACK and SHUTDOWN COMPLETE, or by ABORT.

use super::Association;
use super::timeout::{GUARD, Timers};
use crate::cause::{Cause, Causes};
use crate::chunk::Chunk;
use crate::effects::Env;
use crate::interface::{AbortCause, Event, Failure, State};
use crate::tsn::Tsn;

impl<B> Association<B> {
    /// The layer above has no more messages. What was posted is sent.
    pub(crate) fn close(&mut self, env: &mut Env<'_, B>) {
        match self.state {
            State::Established => {
                self.state = State::ShutdownPending;
                self.go_on_closing(env);
            }
            // There is nothing that could be shut down.
            State::CookieWait | State::CookieEchoed => self.abort(b"closed", env),
            _ => {}
        }
    }

    /// Ends at once, without an event.
    pub(crate) fn abort(&mut self, reason: &[u8], env: &mut Env<'_, B>) {
        self.abort_by(&Cause::UserInitiated(reason), env);
        self.end(env);
    }

    /// Sends an ABORT, when the peer's tag is known.
    pub(super) fn abort_by(&self, cause: &Cause<'_>, env: &mut Env<'_, B>) {
        if self.tags.remote != 0 {
            let tag = self.tags.remote;
            let route = self.paths[self.path_back()].route(self.ends);
            env.effects.abort(route, tag, false, cause);
        }
    }

    /// The peer has done what it must not.
    pub(super) fn violated(&mut self, what: &'static str, env: &mut Env<'_, B>) {
        self.violated_by(&Cause::ProtocolViolation(what.as_bytes()), what, env);
    }

    pub(super) fn violated_by(
        &mut self,
        cause: &Cause<'_>,
        what: &'static str,
        env: &mut Env<'_, B>,
    ) {
        self.abort_by(cause, env);
        self.fail(env, Failure::Violation(what));
    }

    pub(super) fn fail(&mut self, env: &mut Env<'_, B>, failure: Failure) {
        self.end_with(env, Event::Failed(failure));
    }

    fn end_with(&mut self, env: &mut Env<'_, B>, event: Event) {
        self.end(env);
        self.event(env, event);
    }

    /// Nothing is left but the name.
    fn end(&mut self, env: &mut Env<'_, B>) {
        self.state = State::Closed;
        self.timers = Timers::default();
        let released = &mut env.effects.released;
        self.outbound
            .clear(|message| released.push_back(message.buffer));
    }

    /// The network says that the peer's host has no SCTP (section 10, ICMP8): as an ABORT.
    pub(crate) fn has_no_protocol(&mut self, env: &mut Env<'_, B>) {
        self.fail(env, Failure::NoProtocol);
    }

    pub(super) fn on_abort(&mut self, causes: &Causes<'_>, env: &mut Env<'_, B>) {
        let first = causes.iter().next();
        let reason = match first {
            Some(Cause::UserInitiated(reason) | Cause::ProtocolViolation(reason)) => reason,
            _ => &[],
        };
        let code = first.and_then(|cause| cause.code());
        let cause = AbortCause::new(code, reason);
        self.end_with(env, Event::Aborted(cause));
    }

    /// The peer knows of no association. When it has answered all but our SHUTDOWN ACK, it had a SHUTDOWN ACK and is
    /// gone; something that was late has met nobody, and the answer has overtaken its SHUTDOWN COMPLETE.
    pub(super) fn on_reflected_abort(&mut self, causes: &Causes<'_>, env: &mut Env<'_, B>) {
        match self.state {
            State::ShutdownAckSent => self.end_with(env, Event::Closed),
            _ => self.on_abort(causes, env),
        }
    }

    /// The last chunk was acknowledged, perhaps: then SHUTDOWN or SHUTDOWN ACK goes.
    pub(super) fn go_on_closing(&mut self, env: &mut Env<'_, B>) {
        if !self.outbound.is_empty() {
            return;
        }
        match self.state {
            State::ShutdownPending => {
                self.timers.t5 = Some(env.now + env.config.rto.max * GUARD);
                self.enter_closing(State::ShutdownSent, env);
            }
            State::ShutdownReceived => self.enter_closing(State::ShutdownAckSent, env),
            _ => {}
        }
    }

    fn enter_closing(&mut self, state: State, env: &mut Env<'_, B>) {
        self.state = state;
        self.end_heartbeats();
        for path in &mut self.paths {
            path.timers.t3 = None;
        }
        let at = self.control_path();
        self.timers.t2 = Some(env.now + self.paths[at].rto.get());
        self.send_shutdown();
    }

    /// What the state sends until it is answered.
    pub(super) fn send_shutdown(&mut self) {
        self.pending.shutdown = self.state == State::ShutdownSent;
        self.pending.shutdown_ack = self.state == State::ShutdownAckSent;
    }

    /// While the peer still sends data the shutdown has time (section 9.2).
    pub(super) fn heard_in_shutdown(&mut self, env: &mut Env<'_, B>) {
        if self.state == State::ShutdownSent {
            self.peer_answers(self.heard_from, env);
            let at = self.control_path();
            self.timers.t2 = Some(env.now + self.paths[at].rto.get());
        }
    }

    pub(super) fn on_shutdown(&mut self, cumulative: Tsn, env: &mut Env<'_, B>) {
        match self.state {
            State::Established | State::ShutdownPending => {
                self.state = State::ShutdownReceived;
                self.event(env, Event::PeerClosed);
                self.on_cumulative(cumulative, env);
            }
            State::ShutdownReceived => self.on_cumulative(cumulative, env),
            // Both sides have closed.
            State::ShutdownSent => self.enter_closing(State::ShutdownAckSent, env),
            State::ShutdownAckSent => self.send_shutdown(),
            State::CookieWait | State::CookieEchoed | State::Closed => {}
        }
    }

    pub(super) fn on_shutdown_ack(&mut self, env: &mut Env<'_, B>) {
        if matches!(self.state, State::ShutdownSent | State::ShutdownAckSent) {
            let complete = Chunk::ShutdownComplete { reflected: false };
            env.effects
                .farewell(self.route(), self.tags.remote, &complete);
            self.end_with(env, Event::Closed);
        }
    }

    pub(super) fn on_shutdown_complete(&mut self, env: &mut Env<'_, B>) {
        if self.state == State::ShutdownAckSent {
            self.end_with(env, Event::Closed);
        }
    }
}
