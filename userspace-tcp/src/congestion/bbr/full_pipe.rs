//! When the pipe is full: the rate grows no more, or losses are many (section 5.3.1).

use super::{Ack, Bbr, State};

/// Rounds without growth after which the pipe is full.
const ROUNDS: u8 = 3;

/// BBRStartupFullLossCnt
const STARTUP_FULL_LOSS_CNT: u32 = 6;

/// The estimator of section 5.3.1.2.
#[derive(Debug, Default)]
pub(super) struct FullPipe {
    /// BBR.full_bw_reached
    pub(super) reached: bool,
    /// BBR.full_bw_now
    pub(super) now: bool,
    /// BBR.full_bw
    pub(super) bw: u64,
    /// BBR.full_bw_count
    count: u8,
}

impl FullPipe {
    /// ResetFullBW(), with `bw` for what the next round is measured by.
    pub(super) fn reset(&mut self, bw: u64) {
        *self = Self {
            reached: self.reached,
            bw,
            ..Self::default()
        };
    }
}

impl Bbr {
    /// Section 5.3.1.2, CheckFullBWReached().
    pub(super) fn check_full_bw_reached(&mut self, ack: &Ack<'_>) {
        if self.full_pipe.now || !self.round.start || ack.sample.app_limited {
            return;
        }
        let rate = ack.sample.delivery_rate;
        if u128::from(rate) * 4 >= u128::from(self.full_pipe.bw) * 5 {
            self.full_pipe.reset(rate);
            return;
        }
        self.full_pipe.count += 1;
        self.full_pipe.now = self.full_pipe.count >= ROUNDS;
        self.full_pipe.reached |= self.full_pipe.now;
    }

    /// Section 5.3.1.3, CheckStartupHighLoss().
    pub(super) fn check_startup_high_loss(&mut self, ack: &Ack<'_>) {
        let round_is_over = self.latest.round_start;
        let ranges = self.latest.ranges_of_round;
        if round_is_over {
            self.latest.ranges_of_round = 0;
        }
        if self.state != State::Startup || self.full_pipe.reached || !ack.fast_recovery {
            return;
        }
        let many = if ack.selective {
            // A whole round of recovery: one that began with a loss is the round of that loss.
            round_is_over && ranges >= STARTUP_FULL_LOSS_CNT && ack.too_high
        } else {
            ranges > 0
        };
        if many {
            self.undo.state = Some(State::Startup);
            self.full_pipe.reached = true;
            let bdp = self.bdp(self.max_bw.get(), 100);
            self.inflight_longterm = bdp.max(self.latest.inflight);
        }
    }
}
