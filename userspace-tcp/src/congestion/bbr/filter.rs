//! The greatest of recent samples: of the delivery rate, and of what ACKs gather on their way.

use userspace_net::Instant;

use super::{Ack, Bbr};

/// BBR.ExtraAckedFilterLen is 10 rounds: two windows of five.
const EXTRA_ACKED_ROUNDS: u64 = 5;

/// The greatest value of the present window of time and of the one before.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Recent {
    before: u64,
    present: u64,
}

impl Recent {
    pub(super) fn get(self) -> u64 {
        self.before.max(self.present)
    }

    pub(super) fn update(&mut self, value: u64) {
        self.present = self.present.max(value);
    }

    /// The next window begins. One without any sample takes nothing away.
    pub(super) fn advance(&mut self) {
        if self.present > 0 {
            self.before = std::mem::take(&mut self.present);
        }
    }
}

/// BBR.extra_acked (section 5.5.9): how much more is acknowledged at a time than the model says.
#[derive(Debug)]
pub(super) struct Aggregation {
    /// BBR.extra_acked_interval_start
    start: Instant,
    /// BBR.extra_acked_delivered
    delivered: u64,
    extra: Recent,
    /// Rounds of the present window.
    rounds: u64,
}

impl Aggregation {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            start: now,
            delivered: 0,
            extra: Recent::default(),
            rounds: 0,
        }
    }

    pub(super) fn restart(&mut self, now: Instant) {
        self.start = now;
    }

    /// BBR.extra_acked
    pub(super) fn extra(&self) -> u64 {
        self.extra.get()
    }
}

impl Bbr {
    /// Section 5.5.5, UpdateMaxBw().
    pub(super) fn update_max_bw(&mut self, ack: &Ack<'_>) {
        self.update_round(ack);
        let rate = ack.sample.delivery_rate;
        if rate > 0 && (rate >= self.max_bw.get() || !ack.sample.app_limited) {
            self.max_bw.update(rate);
        }
    }

    /// Section 5.5.9, UpdateACKAggregation().
    pub(super) fn update_ack_aggregation(&mut self, ack: &Ack<'_>) {
        let own = &mut self.aggregation;
        if self.round.start {
            own.rounds += 1;
            let rounds = if self.full_pipe.reached {
                EXTRA_ACKED_ROUNDS
            } else {
                1
            };
            if own.rounds >= rounds {
                own.rounds = 0;
                own.extra = Recent {
                    before: own.extra.present,
                    present: 0,
                };
            }
        }
        let interval = ack.now.nanos_since(own.start);
        let mut expected = super::control::bytes_in(self.bw, interval);
        if own.delivered <= expected {
            own.delivered = 0;
            own.start = ack.now;
            expected = 0;
        }
        own.delivered = own.delivered.saturating_add(ack.sample.newly_acked);
        let extra = own.delivered.saturating_sub(expected).min(self.cwnd);
        own.extra.update(extra);
    }
}
