//! NewReno congestion control (RFC 5681, RFC 6582) with an initial window of ten segments
//! (RFC 6928). Which octets are lost or in the network is the send queue's business; this decides
//! only how many may be.

#[cfg(test)]
mod tests;

use crate::seq::Position;

/// What the sender is recovering from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Nothing.
    Open,
    /// Fast recovery (RFC 6582, RFC 6675 section 5).
    Recovery,
    /// A retransmission timeout.
    Loss,
}

/// cwnd, ssthresh and the recovery point. All sizes in octets.
#[derive(Debug)]
pub(crate) struct Congestion {
    cwnd: u64,
    ssthresh: u64,
    smss: u64,
    limit: u64,
    /// Octets acknowledged since cwnd last grew in congestion avoidance (RFC 3465).
    acked: u64,
    phase: Phase,
    /// The highest position sent when recovery began.
    recover: Position,
}

impl Congestion {
    /// `limit` is what the send queue could hold: a greater window would mean nothing.
    pub(crate) fn new(smss: u64, limit: u64) -> Self {
        let limit = limit.max(smss);
        let cwnd = initial_window(smss).min(limit);
        let phase = Phase::Open;
        Self {
            cwnd,
            ssthresh: u64::MAX,
            smss,
            limit,
            acked: 0,
            phase,
            recover: 0,
        }
    }

    pub(crate) fn cwnd(&self) -> u64 {
        self.cwnd
    }

    pub(crate) fn ssthresh(&self) -> u64 {
        self.ssthresh
    }

    pub(crate) fn phase(&self) -> Phase {
        self.phase
    }

    /// The highest position sent when the last recovery began.
    pub(crate) fn recover(&self) -> Position {
        self.recover
    }

    /// RFC 6928 section 2: after more than one lost SYN the window begins with one segment.
    pub(crate) fn handshake_was_lossy(&mut self) {
        self.cwnd = self.smss;
    }

    /// RFC 5681 section 4.1: nothing was sent for longer than one RTO.
    pub(crate) fn restart_after_idle(&mut self) {
        self.cwnd = self.cwnd.min(initial_window(self.smss));
    }

    /// `octets` were newly acknowledged, up to `una`. `flight` octets had been in the network
    /// before: a window that was not used does not grow (RFC 9293 section 3.8.2, RFC 2861).
    pub(crate) fn acknowledged(&mut self, octets: u64, una: Position, flight: u64) {
        if self.phase != Phase::Open && una >= self.recover {
            if self.phase == Phase::Recovery {
                self.cwnd = self.ssthresh.min(self.limit);
            }
            self.phase = Phase::Open;
            self.acked = 0;
            return;
        }
        match self.phase {
            Phase::Recovery => {}
            Phase::Open | Phase::Loss if self.cwnd < self.ssthresh => {
                if flight.saturating_mul(2) >= self.cwnd {
                    // RFC 3465 section 2.2 with L = 2: the receiver acknowledges every second one.
                    self.grow(octets.min(2 * self.smss));
                }
            }
            Phase::Open | Phase::Loss => {
                if flight + self.smss >= self.cwnd {
                    self.acked += octets;
                    if self.acked >= self.cwnd {
                        self.acked -= self.cwnd;
                        self.grow(self.smss);
                    }
                }
            }
        }
    }

    /// Fast retransmit (RFC 5681 section 3.2): `flight` octets are outstanding, up to `next`.
    pub(crate) fn enter_recovery(&mut self, flight: u64, next: Position) {
        self.reduce(flight);
        self.cwnd = self.ssthresh.min(self.limit);
        self.phase = Phase::Recovery;
        self.recover = next;
    }

    /// A retransmission timeout (RFC 5681 section 3.1). When the same segment times out again
    /// ssthresh stays.
    pub(crate) fn timed_out(&mut self, flight: u64, next: Position) {
        if self.phase != Phase::Loss {
            self.reduce(flight);
        }
        self.cwnd = self.smss;
        self.phase = Phase::Loss;
        self.recover = next;
    }

    fn reduce(&mut self, flight: u64) {
        self.ssthresh = (flight / 2).max(2 * self.smss);
        self.acked = 0;
    }

    fn grow(&mut self, octets: u64) {
        self.cwnd = (self.cwnd + octets).min(self.limit);
    }
}

/// RFC 6928 section 2.
fn initial_window(smss: u64) -> u64 {
    (10 * smss).min((2 * smss).max(14_600))
}
