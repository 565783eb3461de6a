//! Pacing: what the congestion window lets out is spread over the round trip. So a window that opens at once does
//! not overflow a queue on the path (RFC 9406 section 4.2, RFC 6928 section 5).
//!
//! Bytes go in quanta, and each quantum has to wait for the time that the one before was worth. It
//! never decides how much may be sent. What paces a window never keeps anything waiting longer than a
//! round trip.

#[cfg(test)]
mod tests;

use std::time::Duration;

use userspace_net::Instant;

/// Where a window is paced, a quantum is what goes in this time, but at least [`QUANTUM_SEGMENTS`].
const QUANTUM_TIME: Duration = Duration::from_millis(1);

/// Least segments of a quantum: the initial window goes at once.
const QUANTUM_SEGMENTS: u64 = 10;

/// Of the time that a timer comes late, so much is made good at most.
const LATE_MAX: Duration = Duration::from_millis(10);

/// Where a rate is asked for, a quantum is what goes in so many nanoseconds. It is two segments at least and
/// [`RATE_QUANTUM_MAX`] bytes at most. (draft-ietf-ccwg-bbr-06 section 5.6.3 has a millisecond, and recommends less
/// where possible.)
const RATE_QUANTUM_NANOS: u64 = 250_000;

/// 64 KiB
const RATE_QUANTUM_MAX: u64 = 1 << 16;

/// The speed of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pace {
    /// So many bytes, never 0,
    pub(crate) bytes: u64,
    /// in this time.
    pub(crate) per: Duration,
    /// Bytes that go at once.
    quantum: u64,
}

/// When the next segment may go.
#[derive(Debug, Default)]
pub(crate) struct Pacer {
    /// When everything that was sent has taken its time.
    next: Instant,
    /// Bytes left of the present quantum.
    left: u32,
    closed: bool,
    /// While it is closed: something waits for nothing but the pace.
    held: bool,
    /// How late it was opened then, in microseconds, until that is made good.
    late: u16,
}

impl Pacer {
    /// `Some`: nothing may be sent before.
    pub(crate) fn closed_until(&self) -> Option<Instant> {
        self.closed.then_some(self.next)
    }

    /// Time has come to `now`.
    pub(crate) fn advance(&mut self, now: Instant) {
        if self.closed && now >= self.next {
            self.closed = false;
            let late = now.saturating_duration_since(self.next).min(LATE_MAX);
            self.late = if self.held {
                late.as_micros() as u16
            } else {
                0
            };
        }
    }

    /// Whether something waits for nothing but the pace, where that is closed.
    pub(crate) fn holds(&mut self, held: bool) {
        self.held = held;
    }

    /// So many bytes were sent at `now`; without `pace` as fast as they can.
    pub(crate) fn sent(&mut self, now: Instant, bytes: u64, pace: Option<&Pace>) {
        let Some(pace) = pace else {
            *self = Self::default();
            return;
        };
        if self.closed {
            // It went in spite of the pace, and gives nothing else leave to go.
            self.next += pace.time_of(bytes);
            return;
        }
        let quantum = pace.quantum;
        if self.left == 0 {
            self.left = u32::try_from(quantum).unwrap_or(u32::MAX);
        }
        // A timer that comes late must not make it slower; but what was not sent for want of bytes
        // is not sent in a burst later.
        let late = now.saturating_duration_since(self.next);
        let made_good = pace.time_of(quantum) / 2;
        let made_good = made_good.max(Duration::from_micros(self.late.into()));
        self.next += late.saturating_sub(made_good);
        let bytes_now = u32::try_from(bytes).unwrap_or(u32::MAX);
        self.left = self.left.saturating_sub(bytes_now);
        self.next += pace.time_of(bytes);
        if now < self.next {
            self.closed = self.left == 0;
            self.late = 0;
        }
    }
}

impl Pace {
    /// So many bytes, never 0, in this time; a full segment has `smss`.
    pub(crate) fn of_window(bytes: u64, per: Duration, smss: u64) -> Self {
        let in_time = bytes.saturating_mul(nanos(QUANTUM_TIME)) / nanos(per).max(1);
        Self {
            bytes,
            per,
            quantum: in_time.max(QUANTUM_SEGMENTS * smss),
        }
    }

    /// So many bytes a second, never 0.
    pub(crate) fn of_rate(bytes: u64, smss: u64) -> Self {
        let in_time = bytes / (1_000_000_000 / RATE_QUANTUM_NANOS);
        Self {
            bytes,
            per: Duration::from_secs(1),
            quantum: in_time.min(RATE_QUANTUM_MAX).max(2 * smss),
        }
    }

    /// The send quantum, in bytes.
    pub(crate) fn quantum(&self) -> u64 {
        self.quantum
    }

    fn time_of(&self, bytes: u64) -> Duration {
        let time = nanos(self.per).saturating_mul(bytes) / self.bytes.max(1);
        Duration::from_nanos(time)
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
