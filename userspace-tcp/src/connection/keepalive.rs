//! Keep-alive (RFC 9293 section 3.8.4): off unless asked for. An idle peer is asked now and then
//! whether it is still there.
//!
//! It runs only while nothing else is awaited, on the connection's one timer: whatever comes from
//! the peer just moves the moment that the timer, when it comes up, finds to be later.

use std::time::Duration;

use userspace_net::Instant;

use crate::config::KeepAlive;
use crate::effects::Env;
use crate::interface::{Event, State};

use super::Connection;
use super::timeout::Timer;

/// No probes faster than this, whatever is set.
const INTERVAL_MIN: Duration = Duration::from_secs(1);

/// What is wanted, and how long the peer has been silent.
#[derive(Debug)]
pub(super) struct Keepalive {
    wanted: Option<KeepAlive>,
    /// When something acceptable came last.
    heard_at: Instant,
    /// Probes since the peer was heard.
    probes: u32,
    /// A probe is to be sent.
    pub(super) due: bool,
}

impl Keepalive {
    pub(super) fn new(wanted: Option<KeepAlive>, now: Instant) -> Self {
        Self {
            wanted,
            heard_at: now,
            probes: 0,
            due: false,
        }
    }

    /// The peer is there.
    pub(super) fn heard(&mut self, now: Instant) {
        self.heard_at = now;
        self.probes = 0;
        self.due = false;
    }

    /// When the peer was heard of last.
    pub(super) fn heard_at(&self) -> Instant {
        self.heard_at
    }

    /// When to look again.
    fn at(&self) -> Option<Instant> {
        let wanted = self.wanted?;
        let asked_for = wanted.interval.max(INTERVAL_MIN) * self.probes;
        Some(self.heard_at + wanted.idle.max(INTERVAL_MIN) + asked_for)
    }
}

impl<B> Connection<B> {
    /// See [`crate::Stack::set_keepalive`].
    pub(crate) fn set_keepalive(&mut self, env: &mut Env<'_, B>, wanted: Option<KeepAlive>) {
        self.keepalive = Keepalive::new(wanted, env.now);
        self.refresh_timer(env.now, env.config);
    }

    /// The timer of a connection that awaits nothing.
    pub(super) fn idle_timer(&self) -> Timer {
        let open = matches!(
            self.state,
            State::Established | State::CloseWait | State::FinWait2
        );
        match self.keepalive.at().filter(|_| open) {
            Some(at) => Timer::KeepAlive(at),
            None => Timer::Idle,
        }
    }

    /// One unanswered probe proves nothing: they are as easily lost as any ACK.
    pub(super) fn on_keepalive_timeout(&mut self, env: &mut Env<'_, B>) {
        let keepalive = &mut self.keepalive;
        let most = keepalive.wanted.map_or(0, |wanted| wanted.probes);
        if keepalive.probes >= most {
            self.die(env, Some(Event::TimedOut));
            return;
        }
        keepalive.probes += 1;
        keepalive.due = true;
        self.counters.keepalives += 1;
        self.timer = self.idle_timer();
    }
}
