//! Pacing: what the congestion window lets out is spread over the round trip, so that a window that
//! opens at once does not overflow a queue on the path (RFC 9406 section 4.2, RFC 6928 section 5).
//!
//! Octets go in quanta, and each quantum has to wait for the time that the one before was worth. It
//! never decides how much may be sent, and never keeps anything waiting longer than a round trip.

#[cfg(test)]
mod tests;

use std::time::Duration;

use crate::time::Instant;

/// A quantum is what goes in this time, but at least [`QUANTUM_SEGMENTS`].
const QUANTUM_TIME: Duration = Duration::from_millis(1);

/// Least segments of a quantum: the initial window goes at once.
const QUANTUM_SEGMENTS: u64 = 10;

/// The speed of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pace {
    /// So many octets, never 0,
    pub(crate) octets: u64,
    /// in this time.
    pub(crate) per: Duration,
    /// Octets of a full segment.
    pub(crate) smss: u64,
}

/// When the next segment may go.
#[derive(Debug, Default)]
pub(crate) struct Pacer {
    /// When everything that was sent has taken its time.
    next: Instant,
    /// Octets left of the present quantum.
    left: u64,
    closed: bool,
}

impl Pacer {
    /// `Some`: nothing may be sent before.
    pub(crate) fn closed_until(&self) -> Option<Instant> {
        self.closed.then_some(self.next)
    }

    /// Time has come to `now`.
    pub(crate) fn advance(&mut self, now: Instant) {
        self.closed &= now < self.next;
    }

    /// So many octets were sent at `now`; without `pace` as fast as they can.
    pub(crate) fn sent(&mut self, now: Instant, octets: u64, pace: Option<&Pace>) {
        let Some(pace) = pace else {
            *self = Self::default();
            return;
        };
        let quantum = pace.quantum();
        if self.left == 0 {
            self.left = quantum;
        }
        // A timer that comes late must not make it slower; but what was not sent for want of octets
        // is not sent in a burst later.
        let late = now.saturating_duration_since(self.next);
        self.next += late.saturating_sub(pace.time_of(quantum) / 2);
        self.left = self.left.saturating_sub(octets);
        self.next += pace.time_of(octets);
        self.closed = self.left == 0 && now < self.next;
    }
}

impl Pace {
    fn quantum(&self) -> u64 {
        let per = nanos(self.per).max(1);
        let in_time = self.octets.saturating_mul(nanos(QUANTUM_TIME)) / per;
        in_time.max(QUANTUM_SEGMENTS * self.smss)
    }

    fn time_of(&self, octets: u64) -> Duration {
        let time = nanos(self.per).saturating_mul(octets) / self.octets.max(1);
        Duration::from_nanos(time)
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
