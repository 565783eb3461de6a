//! How often what happened: a simulation in which nothing bad happens shows nothing.

use std::fmt;

/// Every sort of thing that many seeds together have to bring about.
const SORTS: [&str; 24] = [
    "packets lost",
    "packets duplicated",
    "packets late",
    "segments split",
    "packets corrupted",
    "packets marked",
    "frames refused",
    "packets too large",
    "fragmented",
    "packets cut off",
    "forged errors",
    "retransmits",
    "timeouts",
    "fast recoveries",
    "tail probes",
    "needless recoveries",
    "spurious timeouts",
    "window probes",
    "keepalives",
    "ecn reductions",
    "cookies accepted",
    "reopened",
    "aborted",
    "timed out",
];

/// Allocates nothing: it outlives the run that it is about.
#[derive(Debug, Default, Clone, Copy)]
pub struct Tally([u64; SORTS.len()]);

impl Tally {
    pub fn add(&mut self, sort: &'static str, count: u64) {
        let place = SORTS.iter().position(|known| *known == sort);
        self.0[place.expect("a known sort")] += count;
    }

    pub fn join(&mut self, other: &Self) {
        for (sum, count) in self.0.iter_mut().zip(other.0) {
            *sum += count;
        }
    }

    pub fn assert_all(&self) {
        for (sort, count) in SORTS.iter().zip(self.0) {
            assert!(count > 0, "there were no {sort}");
        }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (sort, count) in SORTS.iter().zip(self.0) {
            writeln!(f, "{count:12} {sort}")?;
        }
        Ok(())
    }
}
