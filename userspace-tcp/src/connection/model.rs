//! What a congestion control that goes by a model of the path learns of the connection: delivery
//! rates, losses, and whether it was the application that had nothing to send
//! (draft-ietf-ccwg-bbr-06 sections 4.1 and 5.2). Without such a one nothing here does anything.

use userspace_net::Instant;

use crate::config::Config;
use crate::congestion::{ModelAck, Phase};
use crate::outbound::Delivered;

use super::Connection;
use super::recovery::QueueTotals;

/// This part of a round trip may pass until the layer above has used the room that an ACK made:
/// a poll gives ACKs in batches, and bytes after them.
const PATIENCE: u64 = 8;

impl<B> Connection<B> {
    /// The handshake is over.
    pub(super) fn begin_model(&mut self, now: Instant) {
        self.outbound.measure_rate(self.sack);
        let seed = self.outbound.iss().0;
        self.congestion.model_path(now, self.rtt.srtt_nanos(), seed);
    }

    /// What was delivered and lost since `before`; `delivered`: by an ACK.
    pub(super) fn update_model(
        &mut self,
        now: Instant,
        before: &QueueTotals,
        delivered: Option<&Delivered>,
    ) {
        let total = self.outbound.delivered();
        let inflight = self.outbound.pipe();
        let (una, next) = (self.outbound.una(), self.outbound.next());
        let min_rtt = self.rack.min_rtt();
        let Some(rate) = self.outbound.rate_mut() else {
            return;
        };
        let sample =
            delivered.and_then(|delivered| rate.acknowledged(now, delivered, total, min_rtt));
        let losses = rate.take_losses();
        self.congestion.lost(now, &losses, rate.delivered());
        let Some(sample) = sample else {
            return;
        };
        let app_limited = self.congestion.sampled(&ModelAck {
            now,
            sample: &sample,
            too_high: rate.is_inflight_too_high(&sample),
            inflight_before: next.saturating_sub(before.delivered + before.lost),
            inflight,
            una,
            next,
            selective: self.sack,
            fast_recovery: self.congestion.phase() == Phase::Recovery,
        });
        if app_limited {
            rate.mark_app_limited(inflight);
        }
    }

    /// Something goes out while nothing is in the network.
    pub(super) fn restart_model(&mut self, now: Instant) {
        if self
            .outbound
            .rate_mut()
            .is_some_and(|rate| rate.is_app_limited())
        {
            self.congestion.restarts_from_idle(now);
        }
    }

    /// CheckIfApplicationLimited() of section 4.1.2.4, before an ACK is taken: whether more could have
    /// been sent for a while than there was.
    pub(super) fn note_starved(&mut self, now: Instant, config: &Config) {
        let Some(since) = self.outbound.rate_mut().and_then(|rate| rate.starved_since) else {
            return;
        };
        let has_room = self.has_room(now, config);
        let inflight = self.outbound.pipe();
        let long = now.nanos_since(since) > self.rack.min_rtt() / PATIENCE;
        if let Some(rate) = self.outbound.rate_mut() {
            if !has_room {
                rate.starved_since = None;
            } else if long {
                rate.mark_app_limited(inflight);
            }
        }
    }

    /// The same before something is queued, after which there is something to send.
    pub(super) fn note_fed(&mut self, now: Instant, config: &Config) {
        self.note_starved(now, config);
        if let Some(rate) = self.outbound.rate_mut() {
            rate.starved_since = None;
        }
    }

    /// An ACK was taken: from now on there is room, or there is none.
    pub(super) fn note_room(&mut self, now: Instant, config: &Config) {
        if self.outbound.rate_mut().is_none() {
            return;
        }
        let has_room = self.has_room(now, config);
        if let Some(rate) = self.outbound.rate_mut() {
            rate.starved_since = has_room.then(|| rate.starved_since.unwrap_or(now));
        }
    }

    /// Whether more could be sent than is there: nothing waits, neither to be sent nor to be sent
    /// again, and windows, queue and pace have room.
    fn has_room(&self, now: Instant, config: &Config) -> bool {
        let smss = u64::from(self.emss);
        let calm = self.outbound.unsent_bytes() == 0 && self.outbound.lost_bytes() == 0;
        let queue = self.outbound.queued_segments() < config.send_queue_segments;
        let pace = self.pacer.closed_until().is_none_or(|until| until <= now);
        calm && queue && pace && self.outbound.room(self.congestion.cwnd(), false, 0) >= smss
    }
}
