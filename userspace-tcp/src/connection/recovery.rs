//! What is lost, and recovering from it: by RACK where the peer has SACK (RFC 8985), else by
//! duplicate ACKs (RFC 5681 section 3.2, RFC 6582).

use userspace_net::Instant;

use crate::congestion::{Delivery, Outstanding, Phase};
use crate::frto::Step;
use crate::options::Timestamps;
use crate::outbound::Delivered;
use crate::rack::DUP_THRESH;
use crate::resent::Cause;
use crate::tlp::{Answer, Verdict};

use super::Connection;

/// What the queue had counted before something happened.
pub(super) struct QueueTotals {
    /// All bytes that were delivered so far.
    pub(super) delivered: u64,
    pub(super) lost: u64,
}

/// What an acknowledgment brought.
pub(super) struct News<'a> {
    pub(super) delivered: &'a Delivered,
    /// SND.UNA has moved.
    pub(super) progress: bool,
    /// It is a duplicate ACK, and one without SACK blocks.
    pub(super) duplicate: bool,
    pub(super) plain: bool,
    /// It is like a duplicate ACK without SACK blocks, whether anything is outstanding or not.
    pub(super) repeats: bool,
    /// Its timestamps.
    pub(super) echo: Option<Timestamps>,
}

impl<B> Connection<B> {
    pub(super) fn queue_totals(&self) -> QueueTotals {
        QueueTotals {
            delivered: self.outbound.delivered(),
            lost: self.outbound.lost_bytes(),
        }
    }

    /// An acknowledgment was taken.
    pub(super) fn after_ack(&mut self, now: Instant, before: &QueueTotals, news: &News<'_>) {
        if self.sack {
            self.rack.delivered(now, news.delivered);
            self.judge_probe(before, news);
        }
        self.judge_recovery(news);
        if self.sack {
            self.detect_losses(now);
            if self.outbound.segs_sacked() > 0 {
                self.probe_at = None;
            }
        }
    }

    /// What an ACK says of a tail loss probe, and of what was sent again (RFC 8985 section 6.2,
    /// step 4, and section 7.4).
    fn judge_probe(&mut self, before: &QueueTotals, news: &News<'_>) {
        let duplicate = news.delivered.duplicate;
        let una = self.outbound.una();
        let verdict = self.tlp.acknowledged(&Answer {
            ack: una,
            duplicate_end: duplicate.map(|(_, right)| right),
            plain_duplicate: news.repeats,
        });
        if verdict == Verdict::Repaired && !self.in_recovery() {
            self.counters.fast_recoveries += 1;
            self.resent.probe_has_repaired();
            self.congestion
                .enter_recovery(&self.outstanding(before.delivered));
        }
        let Some((left, right)) = duplicate else {
            return;
        };
        // The ACK of a probe's segment was late; that is no reordering.
        if self.resent.came_twice(left, right) && verdict != Verdict::Needless {
            self.rack.needless_retransmission(una, self.outbound.next());
        }
    }

    /// Takes a recovery back that was needless: because the peer has got everything twice that was
    /// sent again, because originals have filled the holes, or by F-RTO.
    fn judge_recovery(&mut self, news: &News<'_>) {
        if news.plain && self.frto.holds_lost() && !self.sack {
            // A new segment has arrived that went out behind the timeout.
            self.outbound.one_left(u64::from(self.emss));
        }
        let spurious = self.congestion.phase() == Phase::Loss
            && self.frto.acknowledged(&Step {
                una: self.outbound.una(),
                progress: news.progress,
                duplicate: news.duplicate,
                sack: self.sack,
                lowest_original: news.delivered.lowest_original,
                highest: news.delivered.highest,
            });
        let late = self.originals_filled_the_holes(news);
        let needless = late || self.resent.all_came_twice();
        if spurious || (needless && self.resent.cause() != Cause::Probe) {
            if late && self.resent.cause() == Cause::Loss {
                // It says the same as a D-SACK, sooner.
                let (una, next) = (self.outbound.una(), self.outbound.next());
                self.rack.needless_retransmission(una, next);
            }
            self.undo();
        }
    }

    /// RFC 3522: SND.UNA has passed all that was sent again, by an ACK that answers nothing of it.
    fn originals_filled_the_holes(&self, news: &News<'_>) -> bool {
        let since = self.resent.since_if_covered(self.outbound.una());
        news.progress
            && since
                .zip(news.echo)
                .is_some_and(|(since, echo)| !self.clock.is_since(echo, Some(since)))
    }

    fn undo(&mut self) {
        let una = self.outbound.una();
        let timeout = self.resent.cause() == Cause::Timeout;
        if !timeout {
            self.rack.was_reordering();
        }
        self.outbound.forgive();
        self.resent.begin(una, Cause::Probe);
        self.frto.give_up();
        self.force_lost = false;
        // What was marked too is recovered from to its end, by partial ACKs.
        if self.congestion.undo(una) {
            self.recovery_by_duplicates = false;
            if timeout {
                self.counters.spurious_timeouts += 1;
            } else {
                self.counters.needless_recoveries += 1;
            }
        }
    }

    /// A retransmission timeout: RFC 5681 section 3.1, RFC 8985 section 6.3, step 1 of F-RTO.
    pub(super) fn enter_loss(&mut self, now: Instant) {
        self.counters.timeouts += 1;
        if !self.in_recovery() {
            self.resent.begin(self.outbound.una(), Cause::Timeout);
        }
        let (resent, recover) = (self.outbound.front_end(), self.outbound.next());
        self.frto.timed_out(resent, recover, self.in_recovery());
        let out = self.outstanding(self.outbound.delivered());
        self.congestion.timed_out(&out);
        let patience = self.patience();
        self.outbound.mark_timed_out(patience, now);
        self.tlp.forget();
        self.reorder_at = None;
        self.probe_at = None;
        self.tail_probe_due = false;
        self.duplicates = 0;
        self.recovery_by_duplicates = false;
        self.force_lost = true;
    }

    /// The reordering timer (RFC 8985 section 5.4) has come.
    pub(super) fn on_reordering_timeout(&mut self, now: Instant) {
        let before = self.queue_totals();
        self.detect_losses(now);
        self.respond(now, &before, false, false);
        self.update_model(now, &before, None);
    }

    /// RACK_detect_loss_and_arm_timer() of RFC 8985 section 6.2.
    fn detect_losses(&mut self, now: Instant) {
        let reo_wnd = self.reo_wnd(self.in_recovery());
        self.reorder_at = self.outbound.detect_losses(&self.rack, reo_wnd, now);
    }

    pub(super) fn in_recovery(&self) -> bool {
        matches!(self.congestion.phase(), Phase::Recovery | Phase::Loss)
    }

    fn reo_wnd(&self, in_recovery: bool) -> u64 {
        let sacked = self.outbound.segs_sacked();
        self.rack
            .reo_wnd(in_recovery, sacked, self.rtt.srtt_nanos())
    }

    /// How long a segment may have been out before a timeout takes it for lost (RFC 8985
    /// section 6.3).
    fn patience(&self) -> u64 {
        if self.sack {
            self.rack.patience(self.reo_wnd(true))
        } else {
            0
        }
    }

    /// What congestion control makes of what has happened since `before`: an ACK that moved SND.UNA
    /// or not, with ECE or not, or no ACK at all.
    pub(super) fn respond(
        &mut self,
        now: Instant,
        before: &QueueTotals,
        progress: bool,
        ece: bool,
    ) {
        self.excuse_probe(now);
        if ece && self.congestion.marked(&self.outstanding(before.delivered)) {
            self.counters.ecn_reductions += 1;
        }
        if !self.in_recovery() && self.outbound.any_lost() {
            self.counters.fast_recoveries += 1;
            self.congestion
                .enter_recovery(&self.outstanding(before.delivered));
            self.resent.begin(self.outbound.una(), Cause::Loss);
            self.tlp.forget();
            self.probe_at = None;
            self.tail_probe_due = false;
            self.force_lost = true;
        }
        self.congestion.delivered(&Delivery {
            bytes: self.outbound.delivered().saturating_sub(before.delivered),
            pipe: self.outbound.pipe(),
            safe: progress && self.outbound.lost_bytes() <= before.lost,
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
