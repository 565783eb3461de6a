//! How often somebody may do something.
//!
//! Each time counts for its part of a second; a caller that is a whole second ahead waits. So a burst is
//! as large as the rate, and the state is one point in time (the generic cell rate algorithm).

use std::time::{Duration, Instant};

const BURST: Duration = Duration::from_secs(1);

/// How far somebody is ahead of the rate.
#[derive(Debug, Default)]
pub struct Pace {
    /// When all that was done would be paid for; none: nothing was done.
    due: Option<Instant>,
}

impl Pace {
    /// Does it once more at `now`, if `rate` a second allow it; says whether they do.
    pub fn take(&mut self, rate: u32, now: Instant) -> bool {
        let Some(interval) = BURST.checked_div(rate) else {
            return false;
        };
        let due = self.due.map_or(now, |due| due.max(now));
        let ahead = due.saturating_duration_since(now).saturating_add(interval);
        if ahead > BURST {
            return false;
        }
        self.due = due.checked_add(interval);
        true
    }

    /// Does it `times` more at `now` all the same; says how long the caller has to wait first, so that
    /// no more are done than `rate` a second. The least rate is 1.
    pub fn book(&mut self, times: u32, rate: u32, now: Instant) -> Duration {
        let interval = (BURST / rate.max(1)).saturating_mul(times);
        let due = self.due.map_or(now, |due| due.max(now));
        let due = due.checked_add(interval).unwrap_or(due);
        self.due = Some(due);
        due.saturating_duration_since(now).saturating_sub(BURST)
    }

    /// Something was done, perhaps long ago.
    pub(crate) fn was_used(&self) -> bool {
        self.due.is_some()
    }

    /// Nothing that was done matters any more.
    pub(crate) fn is_idle(&self, now: Instant) -> bool {
        self.due.is_none_or(|due| due <= now)
    }
}

#[cfg(test)]
mod tests;
