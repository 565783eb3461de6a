//! What `rnic-perf` measures, and how its two ends agree on it.
//!
//! The client's [`plan::Plan`] travels in the MPA request's private data, the server's memory in
//! the reply's. Then the messages flow; everything that is said beside them ([`control::Note`]) is
//! a Send with a solicited event, which no measured message is.
//!
//! Beside these: what the machine gives without an RNIC, by bare frames ([`raw`]) and by the kernel's
//! TCP ([`tcp`]); and both ends in one thread, over an RNIC of its own ([`loopback`]). [`sweep`] is the table and the
//! plot of several sizes.

pub mod bandwidth;
pub mod client;
pub mod control;
pub mod latency;
#[cfg(feature = "embedded")]
pub mod loopback;
pub mod many;
pub mod plan;
#[cfg(feature = "embedded")]
pub mod raw;
pub mod server;
pub mod sweep;
pub mod tcp;
pub mod turns;
