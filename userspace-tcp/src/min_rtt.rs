//! The least of the recent round trips (RFC 8985 section 6.2, step 1): of the last
//! [`WINDOW`] to twice that, so that a longer path is believed in after a while.

#[cfg(test)]
mod tests;

use userspace_net::Instant;

/// How long a round trip counts at least, in nanoseconds.
const WINDOW: u64 = 150_000_000_000;

/// The least of the present window and of the one before, in nanoseconds.
#[derive(Debug)]
pub(crate) struct MinRtt {
    /// [`u64::MAX`]: none.
    present: u64,
    before: u64,
    since: Instant,
}

impl MinRtt {
    pub(crate) fn new() -> Self {
        Self {
            present: u64::MAX,
            before: u64::MAX,
            since: Instant::ZERO,
        }
    }

    /// Takes a round trip.
    pub(crate) fn measured(&mut self, now: Instant, rtt: u64) {
        let age = now.nanos_since(self.since);
        if age >= WINDOW {
            self.before = if age < 2 * WINDOW {
                self.present
            } else {
                u64::MAX
            };
            self.present = u64::MAX;
            self.since = now;
        }
        self.present = self.present.min(rtt);
    }

    /// RACK.min_RTT; `None` before the first measurement.
    pub(crate) fn get(&self) -> Option<u64> {
        Some(self.present.min(self.before)).filter(|least| *least < u64::MAX)
    }
}
