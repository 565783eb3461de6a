//! What the tools are made of: the two measurements, the link simulator, and what they share.

#![forbid(unsafe_code)]

pub mod door;
pub mod endpoint;
pub mod linksim;
pub mod mpa;
pub mod pattern;
pub mod perf;
pub mod ping;
pub mod progress;
pub mod report;
pub mod size;
