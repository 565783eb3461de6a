//! `rnic-ping`: does rping's job. The client advertises a buffer by a Send, the server Reads it and
//! Writes it back, the client compares.

#![forbid(unsafe_code)]
// They panic when nobody reads: see `rnic_tools::out`.
#![warn(clippy::print_stdout, clippy::print_stderr)]

use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use rnic::{AcceptOptions, ConnectOptions, ConnectionRequest, Context, ListenOptions};
use rnic_tools::address::{self, Connect, Listen};
use rnic_tools::endpoint::ToolError;
use rnic_tools::mpa::{self, Mpa};
use rnic_tools::ping;
use rnic_tools::report::{Latency, Samples};
use rnic_tools::size;
use rnic_tools::source::RnicSource;
use serde::Serialize;

/// RDMA ping: Send, RDMA Read, RDMA Write, compare.
#[derive(Debug, Parser)]
#[command(name = env!("CARGO_BIN_NAME"), version = env!("RNIC_VERSION"))]
struct Cli {
    #[command(subcommand)]
    role: Role,
}

#[derive(Debug, Subcommand)]
enum Role {
    /// Waits for clients.
    Server(Server),
    /// Pings a server.
    Client(Client),
}

#[derive(Debug, Args)]
struct Server {
    #[command(flatten)]
    rnic_source: RnicSource,
    #[command(flatten)]
    mpa: Mpa,
    #[command(flatten)]
    at: Listen,
    /// Go on after the first client.
    #[arg(long)]
    persistent: bool,
    /// How long nothing may happen on a connection.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = size::duration)]
    timeout: Duration,
}

#[derive(Debug, Args)]
struct Client {
    #[command(flatten)]
    rnic_source: RnicSource,
    #[command(flatten)]
    mpa: Mpa,
    #[command(flatten)]
    to: Connect,
    /// Bytes of the buffer, 4 to 65536.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(i64::from(ping::SIZE_MIN)..=i64::from(ping::SIZE_MAX)))]
    size: u32,
    /// Rounds.
    #[arg(long, default_value_t = 10)]
    count: u64,
    /// Time from one round to the next.
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = size::duration)]
    interval: Duration,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
    /// How long nothing may happen on the connection.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = size::duration)]
    timeout: Duration,
}

/// What a run ended with.
#[derive(Debug, Serialize)]
struct Outcome {
    rounds: u64,
    size: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    latency: Option<Latency>,
}

fn main() -> ExitCode {
    env_logger::Builder::from_env(env_logger::Env::default().default_filter_or("info")).init();
    let done = match Cli::parse().role {
        Role::Server(options) => serve(&options),
        Role::Client(options) => ping(&options),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            rnic_tools::errln!("rnic-ping: {error}");
            ExitCode::from(rnic_tools::perf::client::exit_status(&error))
        }
    }
}

fn serve(options: &Server) -> Result<(), ToolError> {
    let listen = ListenOptions::default().transport(options.mpa.transport());
    let (context, listener) = options.rnic_source.listen(&options.at, listen, 0)?;
    rnic_tools::outln!("{}", address::listening(&listener));
    loop {
        // What ends the listener ends the server; what ends one connection need not.
        let request = match listener.accept().wait(Duration::from_secs(3600)) {
            Err(rnic::Error::Timeout { .. }) => continue,
            request => request?,
        };
        let remote = request.remote();
        match serve_one(&context, request, options) {
            Ok(rounds) => rnic_tools::outln!("{remote}: {rounds} rounds"),
            Err(error) if options.persistent => log::warn!("{remote}: {error}"),
            Err(error) => return Err(error),
        }
        if !options.persistent {
            return Ok(());
        }
    }
}

fn serve_one(
    context: &Context,
    request: ConnectionRequest,
    options: &Server,
) -> Result<u64, ToolError> {
    let mut server = ping::Server::new(context, options.timeout)?;
    let accept = AcceptOptions::default().mpa(options.mpa.options());
    request
        .accept(server.queue_pair(), accept)
        .wait(options.timeout)?;
    server.serve()
}

fn connect(options: &Client, peer: SocketAddr) -> Result<ping::Client, ToolError> {
    let context = options.rnic_source.open_toward(peer, 0)?;
    let client = ping::Client::new(&context, options.size, options.timeout)?;
    let mpa = options.mpa.options();
    let connect = ConnectOptions::default()
        .transport(options.mpa.transport())
        .mpa(mpa);
    let established = client
        .queue_pair()
        .connect(peer, connect)
        .wait(options.timeout)?;
    mpa::note_refused(&mpa, &established.mpa);
    Ok(client)
}

fn ping(options: &Client) -> Result<(), ToolError> {
    let addresses = options.to.addresses();
    let mut client = address::first_usable(addresses, |peer| connect(options, peer))?;
    let mut samples = Samples::default();
    for round in 0..options.count {
        if round > 0 && !options.interval.is_zero() {
            std::thread::sleep(options.interval);
        }
        client.round(round, &mut samples)?;
    }
    client.finish()?;
    let latency = samples.latency();
    let outcome = Outcome {
        rounds: options.count,
        size: options.size,
        latency,
    };
    if options.json {
        let text = serde_json::to_string(&outcome).map_err(|error| {
            ToolError::Peer(format!("the result can't be written as JSON: {error}"))
        })?;
        rnic_tools::outln!("{text}");
    } else {
        rnic_tools::outln!(
            "{} rounds of {} bytes, all equal",
            outcome.rounds,
            outcome.size
        );
        if let Some(latency) = &outcome.latency {
            rnic_tools::outln!("round: {latency}");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_option_is_in_the_manual() {
        rnic_pages::assert_documented(<super::Cli as clap::CommandFactory>::command(), 1);
    }
}
