//! Programs to test a network stack with, below RDMA: the link simulator, and netcat over our TCP.

#![forbid(unsafe_code)]
// They panic when nobody reads: see `rnic_tools::out`.
#![warn(clippy::print_stdout, clippy::print_stderr)]

pub mod linksim;
pub mod pipe;
