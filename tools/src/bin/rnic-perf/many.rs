//! `rnic-perf many`: Writes over many queue pairs of one program.

use std::time::Duration;

use clap::{Args, Subcommand};
use rnic::ListenOptions;
use rnic_tools::address::{self, Connect, Listen};
use rnic_tools::endpoint::ToolError;
use rnic_tools::mpa;
use rnic_tools::perf::many::{self, Load};
use rnic_tools::perf::plan::DEPTH_MAX;
use rnic_tools::size;
use rnic_tools::source::RnicSource;

use crate::print_json;

/// How many requests may wait to be answered.
const BACKLOG: u32 = 128;

/// Both ends are told how many there are. The connections of all but the first are reset when the
/// client is done.
#[derive(Debug, Args)]
pub(crate) struct Many {
    #[command(subcommand)]
    role: Role,
    #[command(flatten)]
    rnic_source: RnicSource,
    /// DDP over SCTP instead of TCP: both ends say so.
    #[arg(long, global = true)]
    sctp: bool,
    /// How many queue pairs.
    #[arg(long, global = true, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    queue_pairs: u32,
    /// How long nothing may happen. The server hears nothing while the client measures.
    #[arg(long, global = true, value_name = "TIME", default_value = "30s", value_parser = size::duration)]
    timeout: Duration,
}

#[derive(Clone, Debug, Subcommand)]
enum Role {
    /// Takes one client's connections.
    Server {
        #[command(flatten)]
        at: Listen,
    },
    /// Connects, writes over all connections, prints JSON.
    Client {
        #[command(flatten)]
        to: Connect,
        /// Bytes of a message.
        #[arg(long, default_value = "64k", value_parser = size::message_bytes)]
        size: u32,
        /// Messages outstanding on each queue pair; with 0 the connections only are there.
        #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(0..=i64::from(DEPTH_MAX)))]
        depth: u32,
        /// Alternating with all queue pairs, the first one writes alone, with so many messages outstanding.
        /// Both results are printed, measured on the same machine at the same time.
        #[arg(long, value_name = "MESSAGES", value_parser = clap::value_parser!(u32).range(1..=i64::from(DEPTH_MAX)))]
        alone: Option<u32>,
        /// How long to measure all of them; one alone comes on top, and the beginnings, until the first
        /// messages have completed. Where that takes longer than a turn, all of them have as long a turn.
        #[arg(long, value_name = "TIME", default_value = "5s", value_parser = size::duration)]
        duration: Duration,
    },
}

pub(crate) fn run(options: &Many) -> Result<(), ToolError> {
    let told = |line: String| rnic_tools::errln!("{line}");
    match &options.role {
        Role::Server { at } => {
            let queue_pairs = options.queue_pairs;
            let listen = ListenOptions::default()
                .backlog(BACKLOG)
                .transport(mpa::transport(options.sctp));
            let (context, listener) = options.rnic_source.listen(at, listen, queue_pairs)?;
            many::serve(&context, &listener, queue_pairs, options.timeout, told)
        }
        Role::Client {
            to,
            size,
            depth,
            alone,
            duration,
        } => {
            let load = Load {
                queue_pairs: options.queue_pairs,
                size: *size,
                depth: *depth,
                alone: *alone,
                duration: *duration,
                transport: mpa::transport(options.sctp),
            };
            load.check()?;
            let outcome = address::first_usable(to.addresses(), |peer| {
                let context = options.rnic_source.open_toward(peer, options.queue_pairs)?;
                many::run(&context, peer, &load, options.timeout, told)
            })?;
            print_json(&outcome)
        }
    }
}
