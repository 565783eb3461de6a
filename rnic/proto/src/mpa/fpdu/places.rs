//! Bytes with Markers among them, by two counts: a plain place counts the bytes that are no Marker's,
//! a real one all of them.

use super::super::marker::{MARKER_INTERVAL, MARKER_LEN, MARKER_SPACING, Markers};

/// Where the Markers are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Places {
    /// Bytes before the first one.
    first: usize,
}

impl Places {
    /// Of bytes at `at` of their direction's stream, counted from the first byte behind the start-up.
    #[inline]
    pub(super) const fn new(markers: Markers, at: u64) -> Self {
        let first = match markers.next(at) {
            Some(first) => first,
            None => usize::MAX,
        };
        Self { first }
    }

    /// Where the first Marker begins, if the bytes go on for so long.
    #[inline]
    pub(super) const fn first(self) -> usize {
        self.first
    }

    /// The same Markers, counted from the byte at this plain place on, which becomes the first.
    #[inline]
    pub(super) const fn from(self, plain: usize) -> Self {
        Self {
            first: self.next(plain) - plain,
        }
    }

    /// The plain place, behind `plain`, before which the next Marker stands.
    #[inline]
    pub(super) const fn next(self, plain: usize) -> usize {
        self.first
            .saturating_add(MARKER_SPACING * self.up_to(plain))
    }

    /// Where the byte at this plain place really is.
    #[inline]
    pub(super) const fn real(self, plain: usize) -> usize {
        plain + MARKER_LEN * self.up_to(plain)
    }

    /// Markers before the byte at this plain place.
    #[inline]
    const fn up_to(self, plain: usize) -> usize {
        if plain >= self.first {
            (plain - self.first) / MARKER_SPACING + 1
        } else {
            0
        }
    }

    /// The runs of real places between Markers, of bytes of which the first is no Marker's and which
    /// end at `end`.
    #[inline]
    pub(super) fn runs(self, end: usize) -> impl Iterator<Item = std::ops::Range<usize>> {
        let (mut at, mut next) = (0, self.first);
        std::iter::from_fn(move || {
            let run = at..next.min(end);
            at = run.end + MARKER_LEN;
            next = next.saturating_add(MARKER_INTERVAL);
            (run.start < run.end).then_some(run)
        })
    }
}
