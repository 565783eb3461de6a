//! How many segments all connections to one peer may have in flight together: congestion control of a
//! macroflow as if it were one flow (RFC 3124 section 2). It counts segments, because many connections
//! overrun the frames of the peer's receive ring.
//!
//! It has no clock: it is told what was posted, acknowledged and found lost, and when.

use std::time::Duration;

use userspace_net::Instant;

/// What a macroflow begins with: receive rings have as many places.
pub(super) const INITIAL: usize = 512;
/// It never becomes less: a few connections' initial windows (RFC 6928).
pub(super) const LEAST: usize = 128;
/// One in so many segments of a round may be lost without an answer: a path that loses some by itself
/// is each connection's own affair.
const TOLERANCE: usize = 50;
/// And so many in any case.
const TOLERATED: usize = 4;
/// A full round lets the window grow by this fraction of its distance from the size at which there was loss,
/// or at which it began. So it grows little where loss is likely, and faster beyond (as in BIC, the
/// forerunner of CUBIC). Losses of many connections are found late, often by timeouts.
const GROWTH: usize = 8;
/// For so long a shortest round is believed: then the path may be another, and is measured anew (as by
/// BBR, draft-ietf-ccwg-bbr section 2.13.2).
const BELIEVED: Duration = Duration::from_secs(10);
/// While it is measured, one in so many of the window's segments may be under way. Rounds are at most
/// half as long again as the shortest when the window stops growing, so that nothing waits then.
const MEASURED_WITH: usize = 2;

/// The window and what is under way.
#[derive(Debug)]
pub(super) struct Window {
    size: usize,
    /// What it never exceeds.
    limit: usize,
    in_flight: usize,
    /// Segments to be acknowledged until this round is over.
    left: usize,
    lost: usize,
    /// It was used up in this round.
    full: bool,
    /// When this round began.
    began: Instant,
    /// The shortest round of late, and when it was over.
    shortest: Option<(Duration, Instant)>,
    /// Whether the path is being measured anew.
    measuring: Measuring,
    /// The size when a loss was answered the last time.
    suspect: usize,
    reduced_at: Option<Instant>,
}

/// A shortest round that has expired is measured again with fewer segments. Otherwise queueing delay would be
/// taken for the path's own, and would be allowed to grow each time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Measuring {
    No,
    /// More than that are still under way, in this round.
    Draining,
    /// The present round is the measure.
    Now,
}

impl Window {
    /// Nothing is under way. `limit` is how many frames there are.
    pub(super) fn new(limit: usize) -> Self {
        Self {
            size: INITIAL.min(limit),
            limit,
            in_flight: 0,
            left: 0,
            lost: 0,
            full: false,
            began: Instant::ZERO,
            shortest: None,
            measuring: Measuring::No,
            suspect: INITIAL,
            reduced_at: None,
        }
    }

    /// The most that may be under way.
    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// Segments under way.
    #[cfg(test)]
    pub(super) fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Segments that may be posted now.
    pub(super) fn room(&self) -> usize {
        let most = match self.measuring {
            Measuring::No => self.size,
            Measuring::Draining | Measuring::Now => self.size / MEASURED_WITH,
        };
        most.saturating_sub(self.in_flight)
    }

    /// So many segments were posted.
    pub(super) fn posted(&mut self, segments: usize, now: Instant) {
        self.in_flight += segments;
        self.full |= self.in_flight >= self.size;
        if self.left == 0 {
            self.begin_round(now);
        }
    }

    /// So many are acknowledged, or nobody waits for their acknowledgment any more.
    pub(super) fn acknowledged(&mut self, segments: usize, now: Instant) {
        self.in_flight = self.in_flight.saturating_sub(segments);
        self.left = self.left.saturating_sub(segments);
        if self.left == 0 {
            let waited = self.has_waited(now);
            if self.full && !waited {
                self.grow();
            }
            self.begin_round(now);
        }
    }

    /// Whether this round, which is over, took so much longer than the shortest that its segments or
    /// their ACKs have waited somewhere. A larger window would only have more of them wait, where
    /// that is a receive ring until it overruns.
    fn has_waited(&mut self, now: Instant) -> bool {
        let took = now.saturating_duration_since(self.began);
        let measured = self.measuring == Measuring::Now;
        let (shortest, at) = self
            .shortest
            .filter(|(shortest, _)| *shortest < took && !measured)
            .unwrap_or((took, now));
        self.shortest = Some((shortest, at));
        self.measuring = match self.measuring {
            Measuring::Draining => Measuring::Now,
            Measuring::No if now >= at + BELIEVED => Measuring::Draining,
            Measuring::No | Measuring::Now => Measuring::No,
        };
        took > shortest.saturating_add(shortest / 2)
    }

    /// Few connections have something under way, each as much as its own window takes: what they have
    /// the path takes.
    pub(super) fn follow(&mut self) {
        self.size = self.size.max(self.in_flight).min(self.limit);
    }

    /// A segment that went out at `sent` is lost. Returns whether that makes the window smaller: once
    /// for all that was under way together.
    pub(super) fn lost(&mut self, sent: Instant, now: Instant) -> bool {
        if self.reduced_at.is_some_and(|at| sent <= at) {
            return false;
        }
        self.lost += 1;
        if self.lost <= TOLERATED + self.size / TOLERANCE {
            return false;
        }
        self.reduced_at = Some(now);
        self.suspect = self.size;
        self.size = (self.size / 10 * 7).max(LEAST).min(self.limit);
        self.begin_round(now);
        true
    }

    fn grow(&mut self) {
        let by = self.size.abs_diff(self.suspect) / GROWTH + 1;
        self.size = (self.size + by).min(self.limit);
    }

    fn begin_round(&mut self, now: Instant) {
        self.began = now;
        self.left = self.in_flight;
        self.lost = 0;
        self.full = self.in_flight >= self.size;
    }
}

#[cfg(test)]
mod tests;
