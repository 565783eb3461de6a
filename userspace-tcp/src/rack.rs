//! RACK (RFC 8985 section 6): a segment is lost when one that was sent later has arrived and the
//! reordering window has passed. This is what RACK knows of the connection; the segments are in
//! [`crate::outbound`].

#[cfg(test)]
mod tests;

use userspace_net::Instant;

use crate::min_rtt::MinRtt;
use crate::outbound::Delivered;
use crate::seq::Position;

/// DupThresh (RFC 6675 section 2).
pub(crate) const DUP_THRESH: u32 = 3;

/// For so many recoveries an inflated reordering window is kept.
const PERSIST: u8 = 16;

/// The per-connection variables of RFC 8985 section 5.3; times in nanoseconds.
#[derive(Debug)]
pub(crate) struct Rack {
    /// RACK.xmit_ts and RACK.end_seq.
    xmit_ts: Instant,
    end_seq: Position,
    /// RACK.rtt
    rtt: u64,
    min_rtt: MinRtt,
    /// RACK.fack
    fack: Position,
    /// RACK.reordering_seen
    reordering_seen: bool,
    /// RACK.dsack_round
    dsack_round: Option<Position>,
    /// RACK.reo_wnd_mult
    reo_wnd_mult: u32,
    /// RACK.reo_wnd_persist
    reo_wnd_persist: u8,
}

impl Rack {
    pub(crate) fn new() -> Self {
        Self {
            xmit_ts: Instant::ZERO,
            end_seq: 0,
            rtt: 0,
            min_rtt: MinRtt::new(),
            fack: 0,
            reordering_seen: false,
            dsack_round: None,
            reo_wnd_mult: 1,
            reo_wnd_persist: 0,
        }
    }

    /// RACK.min_RTT, zero before the first measurement.
    pub(crate) fn min_rtt(&self) -> u64 {
        self.min_rtt.get().unwrap_or_default()
    }

    /// The round trip of our SYN.
    pub(crate) fn opened(&mut self, now: Instant, rtt: u64) {
        self.rtt = rtt;
        self.min_rtt.measured(now, rtt);
    }

    /// Steps 1 to 3, for an ACK that brought news.
    pub(crate) fn delivered(&mut self, now: Instant, delivered: &Delivered) {
        if let Some(sent_at) = delivered.last_original() {
            self.min_rtt.measured(now, now.nanos_since(sent_at));
        }
        if let Some((sent_at, end)) = delivered.newest() {
            self.rtt = now.nanos_since(sent_at);
            if (sent_at, end) > (self.xmit_ts, self.end_seq) {
                (self.xmit_ts, self.end_seq) = (sent_at, end);
            }
        }
        if delivered.lowest_original < self.fack {
            self.reordering_seen = true;
        }
        self.fack = self.fack.max(delivered.highest);
    }

    /// What was taken for lost has come late.
    pub(crate) fn was_reordering(&mut self) {
        self.reordering_seen = true;
    }

    /// Step 4: an ACK reports that a retransmission was needless, while SND.UNA and SND.NXT are
    /// `una` and `next`.
    pub(crate) fn needless_retransmission(&mut self, una: Position, next: Position) {
        if self.dsack_round.is_none_or(|round| una >= round) {
            self.dsack_round = Some(next);
            self.reo_wnd_mult = self.reo_wnd_mult.saturating_add(1);
            self.reo_wnd_persist = PERSIST;
        }
    }

    /// Step 4: fast or RTO recovery is over.
    pub(crate) fn recovery_over(&mut self) {
        self.reo_wnd_persist = self.reo_wnd_persist.saturating_sub(1);
        if self.reo_wnd_persist == 0 {
            self.reo_wnd_mult = 1;
        }
    }

    /// Step 4: RACK.reo_wnd. `in_recovery` by fast retransmit or timeout.
    pub(crate) fn reo_wnd(&self, in_recovery: bool, segs_sacked: u32, srtt: Option<u64>) -> u64 {
        if !self.reordering_seen && (in_recovery || segs_sacked >= DUP_THRESH) {
            return 0;
        }
        let wanted = (self.min_rtt() / 4).saturating_mul(self.reo_wnd_mult.into());
        srtt.map_or(wanted, |srtt| wanted.min(srtt))
    }

    /// RACK_sent_after(): whether the latest segment known to have arrived was sent after another.
    pub(crate) fn sent_after(&self, sent_at: Instant, end: Position) -> bool {
        (self.xmit_ts, self.end_seq) > (sent_at, end)
    }

    /// How long a segment that was overtaken may have been out before it is lost.
    pub(crate) fn patience(&self, reo_wnd: u64) -> u64 {
        self.rtt.saturating_add(reo_wnd)
    }
}
