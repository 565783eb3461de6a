//! Round trip time and retransmission timeout (RFC 6298).

#[cfg(test)]
mod tests;

use std::time::Duration;

use crate::config::Config;

/// Section 2.3: RTO = SRTT + max(G, 4 * RTTVAR), with the clock granularity G.
const GRANULARITY: Duration = Duration::from_millis(1);

/// Section 5.7: the timeout for data when the SYN had to be sent again.
const RTO_AFTER_SYN_LOSS: Duration = Duration::from_secs(3);

/// SRTT, RTTVAR, RTO and its back-off.
#[derive(Debug)]
pub(crate) struct Rtt {
    srtt: Option<Duration>,
    rttvar: Duration,
    base: Duration,
    /// Doublings of `base` since the last measurement.
    backoff: u32,
}

impl Rtt {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            srtt: None,
            rttvar: Duration::ZERO,
            base: config.initial_rto,
            backoff: 0,
        }
    }

    /// Takes a measurement. It must not come from an ambiguous acknowledgment (section 3).
    pub(crate) fn measured(&mut self, rtt: Duration, config: &Config) {
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
        let rto = srtt.saturating_add(GRANULARITY.max(self.rttvar.saturating_mul(4)));
        self.base = rto.max(config.min_rto).min(config.max_rto);
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
            self.base = RTO_AFTER_SYN_LOSS
                .max(config.initial_rto)
                .min(config.max_rto);
        }
    }

    /// The timeout, back-off included.
    pub(crate) fn rto(&self, config: &Config) -> Duration {
        self.backed_off(self.backoff, config)
    }

    /// The timeout without this connection's back-off, doubled `times` times.
    pub(crate) fn backed_off(&self, times: u32, config: &Config) -> Duration {
        let rto = self
            .base
            .saturating_mul(1 << times.min(16))
            .min(config.max_rto);
        // Whatever is configured, a timeout takes time.
        rto.max(GRANULARITY)
    }

    pub(crate) fn srtt(&self) -> Option<Duration> {
        self.srtt
    }

    pub(crate) fn rttvar(&self) -> Duration {
        self.rttvar
    }
}
