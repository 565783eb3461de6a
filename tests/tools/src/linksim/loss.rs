//! Which packets are lost: each by itself, or in bursts (Gilbert-Elliott).

use super::random::{Dice, Purpose};
use super::settings::Settings;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lost {
    Alone,
    InBurst,
}

/// The state of the burst loss.
#[derive(Debug, Default)]
pub(super) struct Loss {
    bad: bool,
}

impl Loss {
    /// Decides on the packet with this number; call it once for each, in order.
    pub fn decide(&mut self, settings: &Settings, dice: Dice, number: u64) -> Option<Lost> {
        let burst = settings.burst_loss;
        let change = if self.bad { burst.leave } else { burst.enter };
        if change.hits(dice.roll(number, Purpose::BurstState)) {
            self.bad = !self.bad;
        }
        let share = if self.bad { burst.bad } else { burst.good };
        if share.hits(dice.roll(number, Purpose::BurstLoss)) {
            return Some(Lost::InBurst);
        }
        let alone = settings.loss.hits(dice.roll(number, Purpose::Loss));
        alone.then_some(Lost::Alone)
    }
}
