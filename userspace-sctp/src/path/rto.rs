//! The retransmission timeout (RFC 9260 section 6.3.1).

#[cfg(test)]
mod tests;

use std::time::Duration;

/// Bounds of the timeout, with the values of RFC 9260 section 16.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Before the first measurement.
    pub initial: Duration,
    /// The least (`RTO.Min`).
    pub min: Duration,
    /// The most (`RTO.Max`).
    pub max: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            initial: Duration::from_secs(1),
            min: Duration::from_secs(1),
            max: Duration::from_secs(60),
        }
    }
}

/// The granularity G of rule G1.
const GRANULARITY: Duration = Duration::from_micros(1);

/// The timeout of one path.
#[derive(Debug, Clone)]
pub struct Rto {
    bounds: Bounds,
    /// SRTT and RTTVAR, since the first measurement.
    smoothed: Option<(Duration, Duration)>,
    rto: Duration,
}

impl Rto {
    /// Before the first measurement (rule C1).
    pub const fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            smoothed: None,
            rto: bounds.initial,
        }
    }

    pub const fn get(&self) -> Duration {
        self.rto
    }

    /// The smoothed round trip time, once there is one.
    pub fn srtt(&self) -> Option<Duration> {
        self.smoothed.map(|(srtt, _)| srtt)
    }

    /// Its mean deviation (RTTVAR); 0 before the first measurement.
    pub fn rttvar(&self) -> Duration {
        self.smoothed.map_or(Duration::ZERO, |(_, rttvar)| rttvar)
    }

    /// Takes the round trip time of a chunk that was sent once (rules C2, C3, C5). No more than one a round trip.
    pub fn measured(&mut self, rtt: Duration) {
        let (srtt, rttvar) = match self.smoothed {
            None => (rtt, rtt / 2),
            Some((srtt, rttvar)) => (
                srtt * 7 / 8 + rtt / 8,
                rttvar * 3 / 4 + srtt.abs_diff(rtt) / 4,
            ),
        };
        let rttvar = rttvar.max(GRANULARITY);
        self.smoothed = Some((srtt, rttvar));
        self.rto = (srtt + rttvar * 4).clamp(self.bounds.min, self.bounds.max);
    }

    /// The timer expired (rule E2 of section 6.3.3).
    pub fn back_off(&mut self) {
        self.rto = (self.rto * 2).min(self.bounds.max);
    }
}
