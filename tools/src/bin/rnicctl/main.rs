//! `rnicctl`: asks a running RNIC what it is and what it counts.

#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use rnic_tools::door::Door;
use rnic_tools::endpoint::ToolError;

/// Asks a running RNIC what it is and what it counts.
#[derive(Debug, Parser)]
#[command(version)]
struct Cli {
    #[command(flatten)]
    door: Door,
    #[command(subcommand)]
    question: Question,
}

#[derive(Debug, Subcommand)]
enum Question {
    /// Interface, XDP mode, addresses and limits.
    Device,
    /// All counters of the RNIC.
    Counters {
        /// Leave out those that are 0.
        #[arg(long)]
        nonzero: bool,
        /// Print one JSON object.
        #[arg(long)]
        json: bool,
    },
}

fn main() -> ExitCode {
    match answer(&Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("rnicctl: {error}");
            ExitCode::FAILURE
        }
    }
}

fn answer(cli: &Cli) -> Result<(), ToolError> {
    let context = cli.door.open()?;
    match cli.question {
        Question::Device => {
            let device = context.device_info()?;
            let addresses: Vec<String> = device.addresses.iter().map(ToString::to_string).collect();
            println!("interface    {}", device.interface);
            println!("XDP mode     {}", device.xdp_mode);
            println!("addresses    {}", addresses.join(", "));
            println!("MTU          {} octets", device.mtu);
            println!("RX queues    {}", device.queues);
            println!("elements     {} a work request", device.max_sge);
            println!("queue depth  {} work requests", device.max_queue_depth);
        }
        Question::Counters { nonzero, json } => {
            let mut counters = context.counters()?;
            counters.retain(|(_, count)| *count != 0 || !nonzero);
            if json {
                let object: BTreeMap<String, u64> = counters.into_iter().collect();
                let text = serde_json::to_string(&object).map_err(|error| {
                    ToolError::Peer(format!("the counters can't be written as JSON: {error}"))
                })?;
                println!("{text}");
            } else {
                for (name, count) in counters {
                    println!("{name:40} {count}");
                }
            }
        }
    }
    Ok(())
}
