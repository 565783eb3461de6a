//! Delivery rate samples (draft-ietf-ccwg-bbr-06 section 4.1): how fast the network delivers, by what
//! was delivered between two ACKs a round trip apart, and what was lost meanwhile.
//!
//! Each segment bears the mark of the [`Era`] in which it went out, in five bytes. Eras are few and
//! as long as a sixteenth of what is in flight takes; a segment whose era is forgotten gives no
//! sample. Nothing here grows, and no number from the peer can exceed what was sent.

#[cfg(test)]
mod tests;

use userspace_net::Instant;

use crate::outbound::Delivered;
use crate::seq::Position;

/// Eras that are known: those of four windows, if nothing is lost.
const ERAS: usize = 64;

/// An era ends when this part of what is in flight was delivered in it.
const ERAS_IN_FLIGHT: u64 = 16;

/// BBR.LossThresh: the most that may be lost of what is in flight, in hundredths.
pub(crate) const LOSS_THRESH: u64 = 2;

/// When a segment went out, in terms of deliveries. Packed, because it fits into what the alignment
/// of a segment's other fields leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(Rust, packed)]
pub(crate) struct Stamp {
    /// P.tx_in_flight: bytes in flight with it; 0 without a sampler.
    inflight: u32,
    era: u8,
}

/// The snapshot that the segments of a short time have in common (section 4.1.2.1, per-packet
/// state).
#[derive(Debug, Clone, Copy, Default)]
struct Era {
    name: u8,
    /// P.is_app_limited
    app_limited: bool,
    /// P.delivered
    delivered: u64,
    /// P.lost
    lost: u64,
    /// P.delivered_time
    delivered_time: Instant,
    /// P.first_send_time
    first_send_time: Instant,
}

/// The per-connection state of section 4.1.2.1, in bytes.
#[derive(Debug)]
pub(crate) struct RateSampler {
    /// C.delivered
    delivered: u64,
    /// C.delivered_time
    delivered_time: Instant,
    /// C.first_send_time
    first_send_time: Instant,
    /// C.lost
    lost: u64,
    /// C.app_limited: until more than this is delivered samples are application-limited; 0: they
    /// are not.
    app_limited: u64,
    /// The peer reports losses one by one (C.has_selective_acks).
    selective: bool,
    eras: [Era; ERAS],
    /// The name of the latest.
    latest: u8,
    losses: Losses,
    /// One past the end of the segment lost last.
    lost_end: Position,
    /// Since when there was room to send, and nothing to send.
    pub(crate) starved_since: Option<Instant>,
}

/// RS, a rate sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RateSample {
    /// RS.newly_acked
    pub(crate) newly_acked: u64,
    /// C.delivered, this ACK included.
    pub(crate) total: u64,
    /// RS.prior_delivered
    pub(crate) prior_delivered: u64,
    /// RS.delivered
    pub(crate) delivered: u64,
    /// RS.delivery_rate in bytes a second; 0 when it can't be told.
    pub(crate) delivery_rate: u64,
    /// RS.is_app_limited
    pub(crate) app_limited: bool,
    /// RS.tx_in_flight
    pub(crate) tx_in_flight: u64,
    /// RS.lost
    pub(crate) lost: u64,
    /// RS.rtt in nanoseconds; `None` when only retransmissions were delivered.
    pub(crate) rtt: Option<u64>,
}

/// What was found lost since somebody asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Losses {
    pub(crate) segments: u32,
    /// Those that did not follow the one lost before: sequence ranges.
    pub(crate) ranges: u32,
    /// Where losses began to be too many.
    pub(crate) excess: Option<Excess>,
}

/// More than [`LOSS_THRESH`] of what was in flight is lost (section 5.5.10.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Excess {
    /// InflightAtLoss(): with so much in flight it was not yet more.
    pub(crate) inflight: u64,
    /// P.is_app_limited of the lost segment.
    pub(crate) app_limited: bool,
}

impl RateSampler {
    /// `delivered` bytes were delivered so far.
    pub(crate) fn new(delivered: u64, selective: bool) -> Self {
        Self {
            delivered,
            delivered_time: Instant::ZERO,
            first_send_time: Instant::ZERO,
            lost: 0,
            app_limited: 0,
            selective,
            eras: [Era::default(); ERAS],
            latest: 0,
            losses: Losses::default(),
            lost_end: 0,
            starved_since: None,
        }
    }

    /// OnPacketSent() of section 4.1.2.2: `len` bytes go out while `inflight` are in the network.
    pub(crate) fn sent(&mut self, now: Instant, len: u32, inflight: u64) -> Stamp {
        if inflight == 0 {
            self.first_send_time = now;
            self.delivered_time = now;
        }
        let latest = self.era(self.latest);
        let since = self.delivered.saturating_sub(latest.delivered);
        if inflight == 0
            || since > inflight / ERAS_IN_FLIGHT
            || latest.lost != self.lost
            || latest.app_limited != self.is_app_limited()
        {
            self.begin_era();
        }
        let inflight = inflight.saturating_add(u64::from(len));
        Stamp {
            inflight: u32::try_from(inflight).unwrap_or(u32::MAX),
            era: self.latest,
        }
    }

    fn begin_era(&mut self) {
        self.latest = self.latest.wrapping_add(1);
        self.eras[usize::from(self.latest) % ERAS] = Era {
            name: self.latest,
            app_limited: self.is_app_limited(),
            delivered: self.delivered,
            lost: self.lost,
            delivered_time: self.delivered_time,
            first_send_time: self.first_send_time,
        };
    }

    fn era(&self, name: u8) -> Era {
        self.eras[usize::from(name) % ERAS]
    }

    /// The era of a segment that is not forgotten.
    fn era_of(&self, stamp: Stamp) -> Option<Era> {
        Some(self.era(stamp.era)).filter(|era| era.name == stamp.era && stamp.inflight > 0)
    }

    /// MarkConnectionAppLimited() of section 4.1.2.4, with so many bytes in the network.
    pub(crate) fn mark_app_limited(&mut self, inflight: u64) {
        self.app_limited = self.delivered.saturating_add(inflight).max(1);
    }

    pub(crate) fn is_app_limited(&self) -> bool {
        self.app_limited != 0
    }

    /// A segment up to `end` is lost. The loss is judged by what was in flight when it went out, and
    /// not by what is in flight when it is noticed (HandleLostPacket() of section 5.5.10.2).
    pub(crate) fn lost(&mut self, stamp: Stamp, len: u32, end: Position) {
        let len = u64::from(len);
        self.lost = self.lost.saturating_add(len);
        self.losses.segments = self.losses.segments.saturating_add(1);
        if end.saturating_sub(len) != self.lost_end {
            self.losses.ranges = self.losses.ranges.saturating_add(1);
        }
        self.lost_end = end;
        let Some(era) = self.era_of(stamp) else {
            return;
        };
        let inflight = u64::from(stamp.inflight);
        let lost = self.lost.saturating_sub(era.lost);
        if self.losses.excess.is_none() && is_too_high(lost, inflight, self.selective) {
            self.losses.excess = Some(Excess {
                inflight: inflight_at_loss(inflight, lost, len),
                app_limited: era.app_limited,
            });
        }
    }

    /// The last segment that was lost was so because of its size.
    pub(crate) fn excused(&mut self, len: u32) {
        self.lost = self.lost.saturating_sub(u64::from(len));
        self.losses.segments = self.losses.segments.saturating_sub(1);
        if self.losses.segments == 0 {
            self.losses = Losses::default();
        }
    }

    /// What was lost since this was asked the last time.
    pub(crate) fn take_losses(&mut self) -> Losses {
        std::mem::take(&mut self.losses)
    }

    /// C.delivered
    pub(crate) fn delivered(&self) -> u64 {
        self.delivered
    }

    /// An ACK, after which `total` bytes are delivered (sections 4.1.2.3, UpdateRateSample() and
    /// GenerateRateSample()). `None`: nothing was delivered of which it is known when it went out.
    pub(crate) fn acknowledged(
        &mut self,
        now: Instant,
        delivered: &Delivered,
        total: u64,
        min_rtt: u64,
    ) -> Option<RateSample> {
        // A peer may take back what it said; what it says again is no delivery.
        let newly_acked = total.saturating_sub(self.delivered);
        if newly_acked > 0 {
            self.delivered = total;
            self.delivered_time = now;
        }
        if self.delivered > self.app_limited {
            self.app_limited = 0;
        }
        let (send_time, stamp) = delivered.newest_stamp()?;
        let era = self.era_of(stamp)?;
        self.first_send_time = send_time;
        let send_elapsed = send_time.nanos_since(era.first_send_time);
        let ack_elapsed = self.delivered_time.nanos_since(era.delivered_time);
        let interval = send_elapsed.max(ack_elapsed);
        let delivered_since = self.delivered - era.delivered;
        let reliable = interval > 0 && interval >= min_rtt;
        Some(RateSample {
            newly_acked,
            total: self.delivered,
            prior_delivered: era.delivered,
            delivered: delivered_since,
            delivery_rate: if reliable {
                rate(delivered_since, interval)
            } else {
                0
            },
            app_limited: era.app_limited,
            tx_in_flight: u64::from(stamp.inflight),
            lost: self.lost.saturating_sub(era.lost),
            rtt: delivered
                .last_original()
                .map(|sent_at| now.nanos_since(sent_at)),
        })
    }

    /// Whether `sample` shows more loss than is well (IsInflightTooHigh() of section 5.5.10.2).
    pub(crate) fn is_inflight_too_high(&self, sample: &RateSample) -> bool {
        is_too_high(sample.lost, sample.tx_in_flight, self.selective)
    }
}

fn is_too_high(lost: u64, inflight: u64, selective: bool) -> bool {
    let tolerated = if selective {
        inflight.saturating_mul(LOSS_THRESH)
    } else {
        0
    };
    lost.saturating_mul(100) > tolerated
}

/// With how much of a segment of `len` bytes the losses became too many, when `lost` were lost,
/// the segment included, of `inflight`.
fn inflight_at_loss(inflight: u64, lost: u64, len: u64) -> u64 {
    let before = inflight.saturating_sub(len);
    let lost_before = lost.saturating_sub(len);
    let tolerated = before.saturating_mul(LOSS_THRESH);
    let prefix = tolerated.saturating_sub(lost_before.saturating_mul(100)) / (100 - LOSS_THRESH);
    before.saturating_add(prefix.min(len))
}

/// Bytes a second.
fn rate(bytes: u64, nanos: u64) -> u64 {
    let rate = u128::from(bytes) * 1_000_000_000 / u128::from(nanos.max(1));
    u64::try_from(rate).unwrap_or(u64::MAX)
}
