//! The figures that a run ends with, as a table line or as JSON. Times are microseconds, rates are
//! of payload bytes (goodput).

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

/// Percentiles of a latency, in microseconds.
#[derive(Clone, Debug, Serialize)]
pub struct Latency {
    /// Smallest.
    pub min: f64,
    /// Median.
    pub p50: f64,
    /// 90th percentile.
    pub p90: f64,
    /// 99th percentile.
    pub p99: f64,
    /// 99.9th percentile.
    pub p999: f64,
    /// Largest.
    pub max: f64,
    pub samples: u64,
}

/// Collects latencies of 1 ns to 100 s at three digits in fixed memory.
#[derive(Debug)]
pub struct Samples(Histogram<u64>);

impl Default for Samples {
    fn default() -> Self {
        Self(Histogram::new_with_bounds(1, 100_000_000_000, 3).expect("constant bounds are valid"))
    }
}

impl Samples {
    /// Adds one; anything above 100 s counts as 100 s.
    pub fn record(&mut self, latency: Duration) {
        self.0
            .saturating_record(u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX).max(1));
    }

    /// The percentiles, if there was any sample.
    pub fn latency(&self) -> Option<Latency> {
        if self.0.is_empty() {
            return None;
        }
        let us = |nanoseconds: u64| nanoseconds as f64 / 1e3;
        let at = |quantile| us(self.0.value_at_quantile(quantile));
        Some(Latency {
            min: us(self.0.min()),
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p999: at(0.999),
            max: us(self.0.max()),
            samples: self.0.len(),
        })
    }
}

impl std::fmt::Display for Latency {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "min {:.1}  p50 {:.1}  p90 {:.1}  p99 {:.1}  p99.9 {:.1}  max {:.1} us ({} samples)",
            self.min, self.p50, self.p90, self.p99, self.p999, self.max, self.samples
        )
    }
}

/// Payload bytes in a time.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Goodput {
    /// Payload bytes moved.
    pub bytes: u64,
    pub messages: u64,
    pub seconds: f64,
    /// 10^9 bits of payload a second.
    pub gbit_per_second: f64,
    pub messages_per_second: f64,
}

impl Goodput {
    pub fn new(bytes: u64, messages: u64, elapsed: Duration) -> Self {
        let seconds = elapsed.as_secs_f64().max(1e-9);
        Self {
            bytes,
            messages,
            seconds,
            gbit_per_second: bytes as f64 * 8e-9 / seconds,
            messages_per_second: messages as f64 / seconds,
        }
    }
}

impl std::fmt::Display for Goodput {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} in {} messages, {:.3} s: {:.2} Gbit/s, {:.0} messages/s",
            crate::size::show(self.bytes),
            self.messages,
            self.seconds,
            self.gbit_per_second,
            self.messages_per_second
        )
    }
}
