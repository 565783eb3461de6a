//! What the peer says of our data (RFC 9260 sections 6.2.1, 6.3.2, 7.2).

use super::{Association, WindowProbe};
use crate::chunk::Sack;
use crate::effects::Env;
use crate::interface::State;
use crate::outbound::{NotSent, Outcome};
use crate::tsn::Tsn;

impl<B> Association<B> {
    /// The states in which data is sent, and acknowledged (section 6).
    pub(super) const fn sends_data(&self) -> bool {
        matches!(
            self.state,
            State::Established | State::ShutdownPending | State::ShutdownReceived
        )
    }

    pub(super) fn on_sack(&mut self, sack: &Sack<'_>, env: &mut Env<'_, B>) {
        if !self.sends_data() {
            return;
        }
        self.is_answered = true;
        self.timers.user = None;
        let mut paths = self.paths.iter();
        let recovering = paths.any(|path| path.congestion.is_in_fast_recovery());
        let released = &mut env.effects.released;
        let outcome = self.outbound.sack(
            env.now,
            sack.cumulative,
            sack.window as usize,
            sack.blocks(),
            recovering,
            |message| released.push_back(message.buffer),
        );
        self.acknowledged(sack.cumulative, outcome, env);
    }

    /// The cumulative TSN of a SHUTDOWN.
    pub(super) fn on_cumulative(&mut self, cumulative: Tsn, env: &mut Env<'_, B>) {
        let released = &mut env.effects.released;
        let outcome = self.outbound.shutdown(env.now, cumulative, |message| {
            released.push_back(message.buffer);
        });
        self.acknowledged(cumulative, outcome, env);
    }

    fn acknowledged(
        &mut self,
        cumulative: Tsn,
        outcome: Result<Outcome, NotSent>,
        env: &mut Env<'_, B>,
    ) {
        let Ok(outcome) = outcome else {
            // Section 12.4.
            return self.violated("it acknowledges what was not sent", env);
        };
        self.burst = env.config.max_burst;
        let highest = self.outbound.highest();
        for at in 0..self.paths.len() {
            let path = &mut self.paths[at];
            let acknowledged = outcome.acknowledged[at];
            path.congestion.acknowledged(cumulative, acknowledged);
            let is_first_loss = outcome.lost[at] && path.congestion.lost(highest);
            path.fast = (path.fast || is_first_loss) && self.outbound.has_lost();
            if outcome.earliest[at] {
                path.timers.t3 = None;
            }
            if acknowledged.bytes > 0 {
                self.peer_answers(at, env);
            }
            if outcome.earliest[at] {
                self.window_probe = WindowProbe::None;
                self.ask_mtu(at, env);
            }
        }
        if let Some((at, rtt)) = outcome.rtt {
            self.paths[at].measured(env.now, rtt);
        }
        if self.window_probe == WindowProbe::Due && !self.outbound.needs_probe() {
            self.window_probe = WindowProbe::None;
        }
        self.arm_t3(env);
        self.go_on_closing(env);
    }
}
