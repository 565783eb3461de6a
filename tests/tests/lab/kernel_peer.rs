//! An RNIC against an independent peer: Linux's TCP, and MPA, DDP and RDMAP written a second time.
//!
//! The peer is a thread of the test with an ordinary TCP socket in the other host's namespace. What
//! passes here is userspace TCP that Linux's TCP understands, and framing that a second reading of
//! the RFCs agrees with.

#![allow(clippy::unwrap_used)]

mod bench;
mod endings;
mod exchange;
mod fragments;
mod markers;
mod peer;
mod startup;
mod transfer;
pub mod wire;
