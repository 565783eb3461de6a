//! How many frames the kernel is given to receive into.
//!
//! The fill ring is first in, first out: a frame in it is written to when all before it have been. So
//! as many frames as the kernel has go round, and what comes one by one would find each of hundreds in
//! no near cache any more when its turn comes. While packets come in small numbers, the kernel has few
//! frames; it has all again once they come in larger ones, or the receiver sleeps and is late.
//!
//! A driver that receives without copying takes frames from the fill ring ahead, as many as its own ring
//! has places, and wants to be woken when there are fewer: it always has all.

/// Frames that the kernel has while packets come in small numbers: several times what it is written to
/// until a look at the ring shows that it is more.
const FEW: usize = 64;

/// Chunks with packets found by one look that are no small number any more.
const MANY_AT_ONCE: usize = 8;

/// So many chunks in a row come in small numbers before the kernel has few frames.
const ROW: usize = 1024;

/// How many frames the kernel is to have.
#[derive(Debug)]
pub(super) struct AdaptiveFill {
    /// All that its ring takes.
    all: usize,
    /// How many it has while packets come in small numbers.
    few: usize,
    /// Chunks that came in small numbers since the last time that others did.
    row: usize,
}

impl AdaptiveFill {
    /// For a fill ring of so many entries.
    pub(super) fn new(all: usize) -> Self {
        let few = all.min(FEW);
        Self { all, few, row: 0 }
    }

    /// The kernel takes frames out of the ring before packets come.
    pub(super) fn keep_all(&mut self) {
        self.few = self.all;
    }

    #[inline]
    pub(super) fn frames(&self) -> usize {
        match self.row < ROW {
            true => self.all,
            false => self.few,
        }
    }

    /// A look found packets in so many chunks.
    #[inline]
    pub(super) fn found(&mut self, chunks: usize) {
        self.row = match chunks <= MANY_AT_ONCE {
            true => (self.row + chunks).min(ROW),
            false => 0,
        };
    }

    /// Looks will be rare: any number may come until the next.
    pub(super) fn expect_many(&mut self) {
        self.row = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_frames_are_out_while_packets_come_one_by_one_and_all_at_once_when_they_do_not() {
        let mut level = AdaptiveFill::new(512);
        for _ in 0..ROW - 1 {
            level.found(1);
            level.found(0);
            assert_eq!(level.frames(), 512);
        }
        level.found(MANY_AT_ONCE);
        assert_eq!(level.frames(), FEW);
        for _ in 0..3 * ROW {
            level.found(1);
        }
        assert_eq!(level.frames(), FEW);
        level.found(MANY_AT_ONCE + 1);
        assert_eq!(level.frames(), 512);
    }

    #[test]
    fn who_will_be_late_has_all_frames_out() {
        let mut level = AdaptiveFill::new(256);
        (0..ROW).for_each(|_| level.found(1));
        assert_eq!(level.frames(), FEW);
        level.expect_many();
        assert_eq!(level.frames(), 256);
    }

    #[test]
    fn a_driver_that_takes_frames_ahead_has_all_of_them() {
        let mut level = AdaptiveFill::new(512);
        level.keep_all();
        (0..ROW).for_each(|_| level.found(1));
        assert_eq!(level.frames(), 512);
    }

    #[test]
    fn a_short_ring_is_not_given_more_than_it_takes() {
        let mut level = AdaptiveFill::new(32);
        (0..ROW).for_each(|_| level.found(1));
        assert_eq!(level.frames(), 32);
    }
}
