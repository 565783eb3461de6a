//! The timestamps option of one connection (RFC 7323): our clock, and PAWS over the peer's.

use std::time::Duration;

use userspace_net::Instant;

use crate::options::Timestamps;

/// RFC 7323 section 5.5: after so long an idle time the peer's clock may have wrapped.
const RECENT_VALID: Duration = Duration::from_secs(24 * 24 * 3600);

/// Our offset and the peer's latest timestamp.
#[derive(Debug)]
pub(super) struct Clock {
    offset: u32,
    /// TS.Recent and when it was taken; `None`: not negotiated.
    recent: Option<(u32, Instant)>,
}

impl Clock {
    pub(super) fn new(offset: u32) -> Self {
        Self {
            offset,
            recent: None,
        }
    }

    pub(super) fn in_use(&self) -> bool {
        self.recent.is_some()
    }

    /// Both sides use timestamps from now on.
    pub(super) fn start(&mut self, now: Instant, peer: Timestamps) {
        self.recent = Some((peer.value, now));
    }

    /// TSval: a tick each millisecond (section 5.4).
    pub(super) fn value(&self, now: Instant) -> u32 {
        // Truncated on purpose: the clock wraps.
        (now.as_millis() as u32).wrapping_add(self.offset)
    }

    /// The option for a segment behind the SYN.
    pub(super) fn option(&self, now: Instant) -> Option<Timestamps> {
        self.recent.map(|(echo, _)| Timestamps {
            value: self.value(now),
            echo,
        })
    }

    /// Section 5.3, R1: whether the segment is older than one that was taken.
    pub(super) fn is_old(&self, now: Instant, peer: Timestamps) -> bool {
        self.recent.is_some_and(|(recent, at)| {
            precedes(peer.value, recent) && now.saturating_duration_since(at) < RECENT_VALID
        })
    }

    /// Whether a new SYN is later than all that this connection saw (RFC 6191).
    pub(super) fn is_newer(&self, peer: Option<Timestamps>) -> bool {
        match (self.recent, peer) {
            (Some((recent, _)), Some(peer)) => precedes(recent, peer.value),
            _ => false,
        }
    }

    /// Section 4.3 (2): the caller has checked SEG.SEQ <= Last.ACK.sent.
    pub(super) fn take(&mut self, now: Instant, peer: Timestamps) {
        if let Some((recent, at)) = &mut self.recent
            && (!precedes(peer.value, *recent)
                || now.saturating_duration_since(*at) >= RECENT_VALID)
        {
            (*recent, *at) = (peer.value, now);
        }
    }

    /// Whether the peer echoes what was sent at `at` or later; `None`: at any time.
    pub(super) fn is_since(&self, peer: Timestamps, at: Option<Instant>) -> bool {
        at.is_none_or(|at| !precedes(peer.echo, self.value(at)))
    }

    /// The round trip that an echo of our clock shows, rounded up to a tick.
    pub(super) fn round_trip(&self, now: Instant, peer: Timestamps) -> Option<Duration> {
        let ticks = self.value(now).wrapping_sub(peer.echo);
        // More than this was never ours.
        (peer.echo != 0 && ticks < 1 << 20).then(|| Duration::from_millis(u64::from(ticks) + 1))
    }
}

/// What a clock says `now` that said `value` when it was `read`.
pub(crate) fn later(value: u32, read: Instant, now: Instant) -> u32 {
    // Truncated on purpose, both: the clock wraps.
    value.wrapping_add(now.as_millis().wrapping_sub(read.as_millis()) as u32)
}

fn precedes(a: u32, b: u32) -> bool {
    a.wrapping_sub(b).cast_signed() < 0
}
