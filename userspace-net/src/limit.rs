//! How often something a peer provokes may be done: a token bucket.

#[cfg(test)]
mod tests;

use crate::Instant;

const NANOS: u64 = 1_000_000_000;

/// At most `per_second` permits a second, and at most a tenth of a second's worth at once where no burst is named.
#[derive(Debug)]
pub struct RateLimit {
    /// Nanoseconds between permits; `None`: no permit ever.
    interval: Option<u64>,
    burst: u64,
    /// When the bucket would be full again, in nanoseconds.
    full_at: u64,
}

impl RateLimit {
    /// With its burst whole.
    pub fn new(per_second: u32) -> Self {
        Self::with_burst(per_second, per_second / 10)
    }

    /// The same with so many permits at once, and one at least.
    pub fn with_burst(per_second: u32, burst: u32) -> Self {
        Self {
            interval: NANOS.checked_div(u64::from(per_second)),
            burst: u64::from(burst).max(1),
            full_at: 0,
        }
    }

    /// Whether it may be done `now`.
    pub fn permit(&mut self, now: Instant) -> bool {
        let Some(interval) = self.interval else {
            return false;
        };
        let full_at = self.full_at.max(now.as_nanos()).saturating_add(interval);
        if full_at - now.as_nanos() > interval.saturating_mul(self.burst) {
            return false;
        }
        self.full_at = full_at;
        true
    }
}
