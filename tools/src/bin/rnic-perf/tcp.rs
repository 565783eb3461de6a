//! `rnic-perf tcp`: a ping-pong over the kernel's TCP.

use std::time::Duration;

use clap::{Args, Subcommand};
use rnic_tools::address::{Connect, Listen};
use rnic_tools::endpoint::ToolError;
use rnic_tools::perf::tcp;
use rnic_tools::size;

use crate::print_json;

/// Both ends look again and again and never sleep.
#[derive(Debug, Args)]
pub(crate) struct Tcp {
    #[command(subcommand)]
    role: Role,
    /// Bytes of a message, the same at both ends.
    #[arg(long, global = true, default_value = "64", value_parser = message_bytes)]
    size: u32,
    /// How long nothing may happen.
    #[arg(long, global = true, value_name = "TIME", default_value = "30s", value_parser = size::duration)]
    timeout: Duration,
}

#[derive(Clone, Debug, Subcommand)]
enum Role {
    /// Sends a message and waits until it comes back, again and again; prints JSON.
    Ping {
        #[command(flatten)]
        to: Connect,
        /// How long to measure.
        #[arg(long, value_name = "TIME", default_value = "5s", value_parser = size::duration)]
        duration: Duration,
    },
    /// Takes one connection and sends each message back.
    Pong {
        #[command(flatten)]
        at: Listen,
    },
}

/// Bytes of a message whose arrival is waited for.
pub(crate) fn message_bytes(text: &str) -> Result<u32, String> {
    match size::message_bytes(text)? {
        0 => Err("a message that is waited for has at least 1 byte".to_owned()),
        bytes => Ok(bytes),
    }
}

pub(crate) fn run(options: &Tcp) -> Result<(), ToolError> {
    match &options.role {
        Role::Ping { to, duration } => {
            let (to, bytes) = (to.addresses(), options.size as usize);
            print_json(&tcp::ping(to, bytes, *duration, options.timeout)?)
        }
        Role::Pong { at } => {
            let told = |line: String| rnic_tools::outln!("{line}");
            tcp::pong(at.addresses(), options.size as usize, options.timeout, told)
        }
    }
}
