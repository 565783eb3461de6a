//! How long things took, in fixed classes of powers of two: no allocation, no lock, no clock.

use std::time::Duration;

/// Classes: at most 1 us, 2 us, 4 us ... 2^24 us (16.8 s), and longer.
pub const CLASSES: usize = 26;

/// How many things took how long.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    classes: [u64; CLASSES],
    /// All of it together, in nanoseconds.
    sum: u64,
}

impl Histogram {
    /// Something took so long.
    pub fn record(&mut self, took: Duration) {
        // 2^64 ns are 584 years.
        let nanos = took.as_nanos() as u64;
        let micros = nanos.div_ceil(1000);
        let class = match micros {
            0 | 1 => 0,
            more => (u64::BITS - (more - 1).leading_zeros()) as usize,
        };
        self.classes[class.min(CLASSES - 1)] += 1;
        self.sum = self.sum.saturating_add(nanos);
    }

    /// For each class but the last, the longest time in it and how many took no longer.
    pub fn cumulative(&self) -> impl Iterator<Item = (Duration, u64)> {
        let mut count = 0;
        (0..CLASSES - 1)
            .zip(self.classes)
            .map(move |(class, found)| {
                count += found;
                (Duration::from_micros(1 << class), count)
            })
    }

    pub fn count(&self) -> u64 {
        self.classes.iter().sum()
    }

    /// How long all of them together took.
    pub fn sum(&self) -> Duration {
        Duration::from_nanos(self.sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class_of(nanos: u64) -> Option<Duration> {
        let mut histogram = Histogram::default();
        histogram.record(Duration::from_nanos(nanos));
        assert_eq!(histogram.count(), 1);
        let found = histogram.cumulative().find(|(_, count)| *count == 1);
        found.map(|(longest, _)| longest)
    }

    #[test]
    fn a_class_holds_what_took_no_longer_than_its_bound() {
        let micros = Duration::from_micros;
        assert_eq!(class_of(0), Some(micros(1)));
        assert_eq!(class_of(1000), Some(micros(1)));
        assert_eq!(class_of(1001), Some(micros(2)));
        assert_eq!(class_of(2001), Some(micros(4)));
        assert_eq!(class_of((1 << 24) * 1000), Some(micros(1 << 24)));
        assert_eq!(class_of((1 << 24) * 1000 + 1), None);
        assert_eq!(class_of(u64::MAX), None);
    }

    #[test]
    fn the_sum_is_that_of_all_times() {
        let mut histogram = Histogram::default();
        histogram.record(Duration::from_nanos(1500));
        histogram.record(Duration::from_micros(2));
        assert_eq!(histogram.sum(), Duration::from_nanos(3500));
    }
}
