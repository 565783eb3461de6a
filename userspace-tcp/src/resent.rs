//! What was sent again in the latest recovery, and what of it the peer has got twice: when all of
//! it was needless, so was the recovery (RFC 3708 section 3). An echo that is older than all of it
//! says the same (the Eifel detection of RFC 3522).

#[cfg(test)]
mod tests;

use userspace_net::Instant;

use crate::seq::Position;

/// Most separate ranges that are kept; with more, reports of duplicates prove nothing.
const RANGES_MAX: usize = 4;

/// What made segments go out again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Cause {
    /// A tail loss probe: congestion control has not responded.
    #[default]
    Probe,
    /// Fast recovery.
    Loss,
    Timeout,
}

/// Retransmissions since the latest recovery began.
#[derive(Debug, Default)]
pub(crate) struct Resent {
    ranges: Ranges,
    /// Those of the recovery before: reports of them come late.
    before: Ranges,
    /// Bytes sent again, less those that came twice.
    needed: u64,
    /// When the first went out.
    since: Option<Instant>,
    /// Behind the highest.
    end: Position,
    cause: Cause,
}

impl Resent {
    /// A recovery begins at SND.UNA.
    pub(crate) fn begin(&mut self, una: Position, cause: Cause) {
        *self = Self {
            ranges: Ranges {
                base: una,
                ..Ranges::default()
            },
            before: if self.since.is_some() {
                self.ranges
            } else {
                self.before
            },
            cause,
            ..Self::default()
        };
    }

    pub(crate) fn cause(&self) -> Cause {
        self.cause
    }

    /// What a probe sent again was lost.
    pub(crate) fn probe_has_repaired(&mut self) {
        self.cause = Cause::Loss;
    }

    /// A segment goes out again.
    pub(crate) fn sent(&mut self, start: Position, end: Position, now: Instant) {
        self.since.get_or_insert(now);
        self.end = self.end.max(end);
        self.needed = self.needed.saturating_add(end - start);
        self.ranges.add(start, end);
    }

    /// The peer has got these bytes twice. Returns whether a retransmission may be the cause, and
    /// not the network.
    pub(crate) fn came_twice(&mut self, left: Position, right: Position) -> bool {
        if self.ranges.contain(left, right) {
            self.needed = self.needed.saturating_sub(right - left);
            return true;
        }
        self.ranges.overflow || self.before.overflow || self.before.contain(left, right)
    }

    /// Whether the peer has got all of it twice.
    pub(crate) fn all_came_twice(&self) -> bool {
        self.since.is_some() && !self.ranges.overflow && self.needed == 0
    }

    /// When the first went out, once `una` is behind all of it: if the acknowledgment echoes an
    /// earlier time, originals have filled the holes.
    pub(crate) fn since_if_covered(&self, una: Position) -> Option<Instant> {
        self.since.filter(|_| una >= self.end)
    }
}

/// A few ranges of the stream, relative to `base`; a window is less than 4 GiB.
#[derive(Debug, Clone, Copy, Default)]
struct Ranges {
    base: Position,
    ranges: [(u32, u32); RANGES_MAX],
    count: u8,
    /// There were more than fit.
    overflow: bool,
}

impl Ranges {
    fn add(&mut self, start: Position, end: Position) {
        let Some((left, right)) = self.relative(start, end) else {
            self.overflow = true;
            return;
        };
        let count = usize::from(self.count);
        let known = &mut self.ranges[..count];
        if known.iter().any(|&(l, r)| l <= left && right <= r) {
            return;
        }
        if let Some((_, r)) = known.iter_mut().find(|(_, r)| *r == left) {
            *r = right;
        } else if let Some((l, _)) = known.iter_mut().find(|(l, _)| *l == right) {
            *l = left;
        } else if let Some(place) = self.ranges.get_mut(count) {
            *place = (left, right);
            self.count += 1;
        } else {
            self.overflow = true;
        }
    }

    fn contain(&self, start: Position, end: Position) -> bool {
        let known = &self.ranges[..usize::from(self.count)];
        self.relative(start, end)
            .is_some_and(|(left, right)| known.iter().any(|&(l, r)| l <= left && right <= r))
    }

    fn relative(&self, start: Position, end: Position) -> Option<(u32, u32)> {
        let relative = |position: Position| u32::try_from(position.checked_sub(self.base)?).ok();
        relative(start).zip(relative(end))
    }
}
