//! `rnic-perf tcp`: a ping-pong over the kernel's TCP.

use std::net::SocketAddr;
use std::time::Duration;

use clap::{Args, Subcommand};
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
    size: usize,
    /// How long to measure.
    #[arg(long, global = true, value_name = "TIME", default_value = "5s", value_parser = size::duration)]
    duration: Duration,
    /// How long nothing may happen.
    #[arg(long, global = true, value_name = "TIME", default_value = "30s", value_parser = size::duration)]
    timeout: Duration,
}

#[derive(Clone, Copy, Debug, Subcommand)]
enum Role {
    /// Sends a message and waits until it comes back, again and again; prints JSON.
    Ping {
        /// The other end's address and port.
        #[arg(long, value_name = "ADDRESS:PORT")]
        connect: SocketAddr,
    },
    /// Takes one connection and sends each message back.
    Pong {
        /// Address and port to listen on.
        #[arg(long, value_name = "ADDRESS:PORT")]
        listen: SocketAddr,
    },
}

fn message_bytes(text: &str) -> Result<usize, String> {
    match size::message_bytes(text)? {
        0 => Err("a message that is waited for has at least 1 byte".to_owned()),
        bytes => Ok(bytes as usize),
    }
}

pub(crate) fn run(options: &Tcp) -> Result<(), ToolError> {
    match options.role {
        Role::Ping { connect } => {
            let latency = tcp::ping(connect, options.size, options.duration, options.timeout)?;
            print_json(&latency)
        }
        Role::Pong { listen } => {
            let told = |line: String| rnic_tools::outln!("{line}");
            tcp::pong(listen, options.size, options.timeout, told)
        }
    }
}
