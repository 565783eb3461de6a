//! DCTCP (RFC 8257): the window shrinks with the share of bytes that met congestion, not by half.
//! It grows, and answers loss, as NewReno.

#[cfg(test)]
mod tests;

use crate::seq::Position;

use super::newreno::NewReno;

/// g (section 4.2): how much one observation window counts in DCTCP.Alpha.
const GAIN: f64 = 1.0 / 16.0;

/// DCTCP.Alpha and the present observation window.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Dctcp {
    pub(crate) reno: NewReno,
    /// DCTCP.Alpha, 0 to 1.
    alpha: f64,
    /// DCTCP.WindowEnd.
    window_end: Position,
    /// DCTCP.BytesAcked and DCTCP.BytesMarked.
    acked: u64,
    marked: u64,
}

impl Dctcp {
    pub(crate) fn new() -> Self {
        Self {
            reno: NewReno::default(),
            alpha: 1.0,
            window_end: 0,
            acked: 0,
            marked: 0,
        }
    }

    /// Section 3.3: `bytes` were acknowledged, up to `una`, with ECE or without; `next` is the
    /// highest position sent.
    pub(crate) fn observe(&mut self, bytes: u64, ece: bool, una: Position, next: Position) {
        self.acked = self.acked.saturating_add(bytes);
        if ece {
            self.marked = self.marked.saturating_add(bytes);
        }
        if una <= self.window_end {
            return;
        }
        let share = self.marked as f64 / self.acked.max(1) as f64;
        self.alpha += GAIN * (share - self.alpha);
        self.window_end = next;
        self.acked = 0;
        self.marked = 0;
    }

    /// Section 3.3, step 9: ssthresh after congestion that was marked.
    pub(crate) fn marked(&self, cwnd: u64) -> u64 {
        (cwnd as f64 * (1.0 - self.alpha / 2.0)) as u64
    }
}
