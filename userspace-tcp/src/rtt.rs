//! Round trip time and retransmission timeout (RFC 6298).
//!
//! Each acknowledgment of new bytes measures, so SRTT follows the path within a fraction of a
//! round trip, and RTTVAR falls as fast: on a calm path to nothing. So that the first jitter after
//! that is no timeout, it counts as an eighth of SRTT at least.

#[cfg(test)]
mod tests;

use std::time::Duration;

use crate::config::Config;

/// The clock granularity G of section 2. Whatever is configured, a timeout takes so long.
const GRANULARITY: u64 = 1_000_000;

/// Section 5.7: the timeout for data when the SYN had to be sent again.
const RTO_AFTER_SYN_LOSS: Duration = Duration::from_secs(3);

/// SRTT, RTTVAR, RTO and its back-off; times in nanoseconds.
#[derive(Debug)]
pub(crate) struct Rtt {
    srtt: Option<u64>,
    rttvar: u64,
    base: u64,
    /// Doublings of `base` since the last measurement.
    backoff: u32,
}

impl Rtt {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            srtt: None,
            rttvar: 0,
            base: nanos(config.initial_rto),
            backoff: 0,
        }
    }

    /// Takes a measurement in nanoseconds. It must not come from an ambiguous acknowledgment (section 3).
    pub(crate) fn measured(&mut self, rtt: u64, config: &Config) {
        // More would overflow below, and is no round trip.
        let rtt = rtt.min(u64::MAX >> 4);
        let srtt = match self.srtt {
            None => {
                self.rttvar = rtt / 2;
                rtt
            }
            Some(srtt) => {
                self.rttvar = (self.rttvar * 3 + srtt.abs_diff(rtt)) / 4;
                (srtt * 7 + rtt) / 8
            }
        };
        self.srtt = Some(srtt);
        // Section 2.3: RTO = SRTT + max(G, K * RTTVAR).
        let rttvar = self.rttvar.max(srtt / 8);
        let rto = srtt.saturating_add(GRANULARITY.max(rttvar.saturating_mul(4)));
        self.base = rto.max(nanos(config.min_rto)).min(nanos(config.max_rto));
        self.backoff = 0;
    }

    /// Section 5.5.
    pub(crate) fn back_off(&mut self) {
        self.backoff = self.backoff.saturating_add(1);
    }

    /// Section 5.7: the handshake is over; `lost` says that its SYN timed out.
    pub(crate) fn handshake_over(&mut self, lost: bool, config: &Config) {
        self.backoff = 0;
        if lost && self.srtt.is_none() {
            let rto = RTO_AFTER_SYN_LOSS.max(config.initial_rto);
            self.base = nanos(rto.min(config.max_rto));
        }
    }

    /// The timeout, back-off included.
    pub(crate) fn rto(&self, config: &Config) -> Duration {
        self.backed_off(self.backoff, config)
    }

    /// The timeout without this connection's back-off, doubled `times` times.
    pub(crate) fn backed_off(&self, times: u32, config: &Config) -> Duration {
        let rto = self.base.saturating_mul(1 << times.min(16));
        Duration::from_nanos(rto.min(nanos(config.max_rto)).max(GRANULARITY))
    }

    pub(crate) fn srtt(&self) -> Option<Duration> {
        self.srtt.map(Duration::from_nanos)
    }

    /// SRTT in nanoseconds.
    pub(crate) fn srtt_nanos(&self) -> Option<u64> {
        self.srtt
    }

    pub(crate) fn rttvar(&self) -> Duration {
        Duration::from_nanos(self.rttvar)
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
