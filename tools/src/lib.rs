//! What the tools are made of: the two measurements, the operator's tool, programs run with an RNIC, and what
//! they share.

#![forbid(unsafe_code)]
// They panic when nobody reads: see `out`.
#![warn(clippy::print_stdout, clippy::print_stderr)]

pub mod address;
#[cfg(feature = "embedded")]
pub mod ctl;
pub mod endpoint;
pub mod mpa;
pub mod out;
pub mod pattern;
pub mod perf;
pub mod ping;
pub mod progress;
pub mod report;
pub mod run;
#[cfg(feature = "embedded")]
pub mod screen;
pub mod size;
pub mod source;
pub mod svg;
#[cfg(feature = "embedded")]
pub mod xdp;
