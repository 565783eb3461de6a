//! How often strangers are answered: a token bucket.

use std::time::Duration;

/// At most so many permits a second, and at most a tenth of a second's worth at once.
#[derive(Debug)]
pub(super) struct RateLimit {
    /// Between permits; `None`: no permit ever.
    interval: Option<Duration>,
    burst: u32,
    /// When the bucket would be full again.
    full_at: Duration,
}

impl RateLimit {
    pub(super) fn new(per_second: u32) -> Self {
        Self {
            interval: Duration::from_secs(1).checked_div(per_second),
            burst: (per_second / 10).max(1),
            full_at: Duration::ZERO,
        }
    }

    pub(super) fn permit(&mut self, now: Duration) -> bool {
        let Some(interval) = self.interval else {
            return false;
        };
        let full_at = self.full_at.max(now) + interval;
        let is_permitted = full_at - now <= interval * self.burst;
        if is_permitted {
            self.full_at = full_at;
        }
        is_permitted
    }
}
