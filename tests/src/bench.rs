//! The benchmark: raw AF_XDP, the RNIC and the kernel's TCP over the same cables, interleaved.
//!
//! A [`Case`] is a value: what runs where. A run of one gives [`Figures`]. `scripts/bench` runs
//! all of them, round after round, so that a neighbour who takes the machine's time hits all alike;
//! what is compared is compared within a round ([`stats`]), and ping-pongs within milliseconds
//! ([`turns`]). From the figures of all rounds come
//! tables, plots, JSON, and whether the [`goals`] are met.
//!
//! A case that fails is part of the result and not the end of the benchmark, so nothing here
//! panics for what a program did.

pub mod case;
pub mod goals;
pub mod interrupt;
pub mod kernel;
pub mod machine;
pub mod many;
pub mod matrix;
pub mod memory;
pub mod noise_guard;
pub mod perftest;
pub mod place;
pub mod plots;
pub mod raw;
pub mod report;
pub mod results;
pub mod rnic;
pub mod running;
pub mod stats;
pub mod testbed;
pub mod turns;

use std::collections::BTreeMap;

pub use case::{Case, Work};
pub use place::{Napi, Place};
pub use results::Results;
pub use testbed::Testbed;

/// 10^9 bits of payload a second.
pub const GBIT: &str = "gbit_per_second";
/// The same of one queue pair alone, interleaved with all of those whose [`GBIT`] it stands beside.
pub const GBIT_ALONE: &str = "gbit_per_second_alone";
/// Messages, or raw frames, a second.
pub const MESSAGES: &str = "messages_per_second";
/// Microseconds of a round trip: the median.
pub const P50: &str = "p50_us";
/// The 90th percentile of the same.
pub const P90: &str = "p90_us";
/// The 99th.
pub const P99: &str = "p99_us";
/// The 99.9th.
pub const P999: &str = "p999_us";
/// Hundredths of one core.
pub const CPU: &str = "cpu_percent";

/// What a run gave, by name.
pub type Figures = BTreeMap<&'static str, f64>;
