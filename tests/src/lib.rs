//! The lab and what the tests of the whole have in common.
//!
//! A [`lab::Lab`] is a set of network namespaces joined by veth pairs, in which daemons and tools
//! run as on hosts of their own. Everything here is for tests: what does not work panics with a
//! message that says what was run and how it ended, and every wait has an end. Only addresses
//! of 198.18.0.0/15 (RFC 2544) and 2001:db8::/32 (RFC 3849) are used, and only processes that the
//! lab started are killed.

#![forbid(unsafe_code)]

pub mod bench;
pub mod binary;
pub mod cases;
pub mod cgroup;
pub mod daemon;
pub mod footprint;
pub mod huge_pages;
pub mod interop;
pub mod kernel_comparison;
pub mod kernels;
pub mod kills;
pub mod lab;
pub mod linksim;
pub mod pair;
pub mod pattern;
pub mod peer;
pub mod programs;
pub mod sctp_messages;
pub mod snmp;
pub mod stream;
pub mod tool;
pub mod tshark;
pub mod user;
pub mod usrsctp;
pub mod verbs;
pub mod wait;

/// The README's Rust is compiled as a documentation test.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
