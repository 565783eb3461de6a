//! What is lost, and recovering from it: by RACK where the peer has SACK (RFC 8985), else by
//! duplicate ACKs (RFC 5681 section 3.2, RFC 6582).

use crate::congestion::{Delivery, Outstanding, Phase};
use crate::outbound::Delivered;
use crate::rack::DUP_THRESH;
use crate::time::Instant;

use super::Connection;

/// What the books of the queue said before something happened.
pub(super) struct Books {
    /// All octets that were delivered so far.
    delivered: u64,
    pub(super) lost: u64,
}

impl<B> Connection<B> {
    pub(super) fn books(&self) -> Books {
        Books {
            delivered: self.outbound.delivered(),
            lost: self.outbound.lost_octets(),
        }
    }

    /// An acknowledgment was taken, on a connection with SACK.
    pub(super) fn after_ack(&mut self, now: Instant, delivered: &Delivered) {
        self.rack.delivered(now, delivered);
        if delivered.duplicate.is_some() {
            let (una, next) = (self.outbound.una(), self.outbound.next());
            self.rack.needless_retransmission(una, next);
        }
        self.detect_losses(now);
    }

    /// The reordering timer (RFC 8985 section 5.4) has come.
    pub(super) fn on_reordering_timeout(&mut self, now: Instant) {
        let before = self.books();
        self.detect_losses(now);
        self.respond(&before, false, false);
    }

    /// RACK_detect_loss_and_arm_timer() of RFC 8985 section 6.2.
    fn detect_losses(&mut self, now: Instant) {
        let reo_wnd = self.reo_wnd(self.in_recovery());
        self.reorder_at = self.outbound.detect_losses(&self.rack, reo_wnd, now);
    }

    fn in_recovery(&self) -> bool {
        matches!(self.congestion.phase(), Phase::Recovery | Phase::Loss)
    }

    fn reo_wnd(&self, in_recovery: bool) -> u64 {
        let sacked = self.outbound.segs_sacked();
        self.rack
            .reo_wnd(in_recovery, sacked, self.rtt.srtt_nanos())
    }

    /// How long a segment may have been out before a timeout takes it for lost (RFC 8985
    /// section 6.3).
    pub(super) fn patience(&self) -> u64 {
        if self.sack {
            self.rack.patience(self.reo_wnd(true))
        } else {
            0
        }
    }

    /// What congestion control makes of what has happened since `before`: an ACK that moved SND.UNA
    /// or not, with ECE or not, or no ACK at all.
    pub(super) fn respond(&mut self, before: &Books, progress: bool, ece: bool) {
        if ece && self.congestion.marked(&self.outstanding(before.delivered)) {
            self.counters.ecn_reductions += 1;
        }
        if !self.in_recovery() && self.outbound.any_lost() {
            self.counters.fast_recoveries += 1;
            self.congestion
                .enter_recovery(&self.outstanding(before.delivered));
            self.force_lost = true;
        }
        self.congestion.delivered(&Delivery {
            octets: self.outbound.delivered().saturating_sub(before.delivered),
            pipe: self.outbound.pipe(),
            safe: progress && self.outbound.lost_octets() <= before.lost,
        });
    }

    /// What is out, when so much had been delivered before.
    pub(super) fn outstanding(&self, delivered: u64) -> Outstanding {
        Outstanding {
            flight: self.outbound.flight(),
            undelivered: self.outbound.next().saturating_sub(delivered),
            next: self.outbound.next(),
        }
    }

    /// A duplicate ACK without SACK blocks.
    pub(super) fn on_duplicate(&mut self) {
        self.duplicates = self.duplicates.saturating_add(1);
        if self.congestion.phase() == Phase::Loss {
            return;
        }
        self.outbound.one_left(u64::from(self.emss));
        // RFC 6582 section 3.2 (1): not for what the last recovery has sent twice.
        let fresh = match self.congestion.phase() {
            Phase::Open => self.outbound.una() > self.congestion.recover(),
            Phase::Cwr => true,
            Phase::Recovery | Phase::Loss => false,
        };
        if self.duplicates == DUP_THRESH && fresh {
            self.outbound.mark_front_lost();
            self.recovery_by_duplicates = self.outbound.front_lost();
        }
    }
}
