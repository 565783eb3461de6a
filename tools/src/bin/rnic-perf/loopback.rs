//! `rnic-perf loopback`: a ping-pong within one process.

use std::time::Duration;

use clap::Args;
use rnic_tools::endpoint::ToolError;
use rnic_tools::perf::loopback;
use rnic_tools::size;

use crate::print_json;
use crate::tcp::message_bytes;

/// Two ends in one thread, which polls their RNIC and never sleeps; prints JSON.
#[derive(Debug, Args)]
pub(crate) struct Loopback {
    /// Bytes of a message.
    #[arg(long, default_value = "64", value_parser = message_bytes)]
    size: u32,
    /// How long to measure.
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = size::duration)]
    duration: Duration,
    /// How long nothing may happen.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = size::duration)]
    timeout: Duration,
}

pub(crate) fn run(options: &Loopback) -> Result<(), ToolError> {
    let Loopback {
        size,
        duration,
        timeout,
    } = *options;
    print_json(&loopback::ping(size, duration, timeout)?)
}
