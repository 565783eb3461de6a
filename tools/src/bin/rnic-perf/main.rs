//! `rnic-perf`: goodput and latency of RDMA Write, Send and Read between two RNICs.

#![forbid(unsafe_code)]
// They panic when nobody reads: see `rnic_tools::out`.
#![warn(clippy::print_stdout, clippy::print_stderr)]

#[cfg(feature = "embedded")]
mod loopback;
mod many;
#[cfg(feature = "embedded")]
mod raw;
mod tcp;

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use rnic::{ConnectOptions, ListenOptions};
use rnic_tools::address::{self, Connect, Listen};
use rnic_tools::endpoint::{ToolError, Waiting};
use rnic_tools::mpa::Mpa;
use rnic_tools::perf::bandwidth::{Span, Until};
use rnic_tools::perf::client::Outcome;
use rnic_tools::perf::plan::{DEPTH_MAX, Figure, Operation, Plan};
use rnic_tools::perf::sweep::{self, Sizes};
use rnic_tools::perf::{client, server};
use rnic_tools::progress::Progress;
use rnic_tools::size;
use rnic_tools::source::RnicSource;
use serde::Serialize;

/// Measures goodput and latency of RDMA Write, Send and Read between two RNICs.
#[derive(Debug, Parser)]
#[command(name = env!("CARGO_BIN_NAME"), version = env!("RNIC_VERSION"))]
struct Cli {
    #[command(subcommand)]
    role: Role,
}

#[derive(Debug, Subcommand)]
enum Role {
    /// Waits for clients and does what they ask.
    Server(Server),
    /// Measures.
    Client(Client),
    /// Writes over many queue pairs of one program.
    Many(many::Many),
    /// A ping-pong of Writes within this process: no daemon, no interface, no privilege.
    #[cfg(feature = "embedded")]
    Loopback(loopback::Loopback),
    /// AF_XDP without a protocol, to see what the machine gives.
    #[cfg(feature = "embedded")]
    Raw(raw::Raw),
    /// A ping-pong over the kernel's TCP, to compare with.
    Tcp(tcp::Tcp),
}

#[derive(Debug, Args)]
struct Server {
    #[command(flatten)]
    rnic_source: RnicSource,
    #[command(flatten)]
    mpa: Mpa,
    #[command(flatten)]
    at: Listen,
    /// Serve one client, then end; the exit status tells how it went.
    #[arg(long)]
    once: bool,
    /// Never sleep while a client is served: with --embedded for a core of its own.
    #[arg(long)]
    busy: bool,
    /// How long nothing may happen on a connection. While the client Writes or Reads nothing does here:
    /// the end of that is waited for as long as the connection is there.
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
    /// What to move.
    #[arg(long, value_enum, default_value = "write")]
    op: Operation,
    /// Measure bytes a second (the default).
    #[arg(long, conflicts_with = "latency")]
    bandwidth: bool,
    /// Measure the time of one message.
    #[arg(long)]
    latency: bool,
    /// Bytes of a message.
    #[arg(long, default_value = "64k", value_parser = size::message_bytes)]
    size: u32,
    /// Measure at each of these sizes: FROM..TO, which doubles each, or SIZE,SIZE,... Each is a connection of its own,
    /// and measured for as long as one alone. The result is a table.
    #[arg(long, value_name = "SIZES", value_parser = sweep::sizes, conflicts_with_all = ["size", "turn"])]
    sizes: Option<Sizes>,
    /// Draw what was measured over the sizes, as SVG, into this file.
    #[arg(long, value_name = "FILE", requires = "sizes")]
    plot: Option<PathBuf>,
    /// Messages outstanding. When latency is measured it is always one.
    #[arg(long, default_value_t = 16, conflicts_with = "latency", value_parser = clap::value_parser!(u32).range(1..=i64::from(DEPTH_MAX)))]
    depth: u32,
    /// How long to measure.
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = size::duration, conflicts_with_all = ["bytes", "iterations"])]
    duration: Duration,
    /// How many bytes to move, instead of a time.
    #[arg(long, value_name = "BYTES", value_parser = size::bytes, conflicts_with = "iterations")]
    bytes: Option<u64>,
    /// How many messages to move, instead of a time.
    #[arg(long, value_name = "NUMBER")]
    iterations: Option<u64>,
    /// Never sleep while it is measured: with --embedded for a core of its own.
    #[arg(long)]
    busy: bool,
    /// Measure bytes a second in intervals of so long, interleaved with other programs. Before each interval,
    /// once all has arrived, it stops itself (SIGSTOP) until SIGCONT comes. A third of an interval then passes
    /// uncounted, for caches to fill.
    #[arg(long, value_name = "TIME", value_parser = size::duration, conflicts_with_all = ["latency", "bytes", "iterations"])]
    turn: Option<Duration>,
    /// Let the receiving end compare bytes with what was sent: every one of Sends, and of Writes and
    /// Reads with --bytes or --iterations. With --duration these go round in memory, which is compared
    /// once, at the end. The result says how many bytes were compared.
    #[arg(long, conflicts_with = "latency")]
    verify: bool,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
    /// Print no progress.
    #[arg(long)]
    quiet: bool,
    /// How long nothing may happen on the connection.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = size::duration)]
    timeout: Duration,
}

fn main() -> ExitCode {
    env_logger::Builder::from_env(env_logger::Env::default().default_filter_or("info")).init();
    let done = match Cli::parse().role {
        Role::Server(options) => serve(&options),
        Role::Client(options) => measure(&options),
        Role::Many(options) => many::run(&options),
        #[cfg(feature = "embedded")]
        Role::Loopback(options) => loopback::run(&options),
        #[cfg(feature = "embedded")]
        Role::Raw(options) => raw::run(&options),
        Role::Tcp(options) => tcp::run(&options),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            rnic_tools::errln!("rnic-perf: {error}");
            ExitCode::from(client::exit_status(&error))
        }
    }
}

fn serve(options: &Server) -> Result<(), ToolError> {
    let listen = ListenOptions::default()
        .backlog(64)
        .transport(options.mpa.transport());
    let (context, listener) = options.rnic_source.listen(&options.at, listen, 0)?;
    let told = |line: String| rnic_tools::outln!("{line}");
    server::run(
        &context,
        &listener,
        options.mpa.options(),
        options.once,
        Waiting {
            patience: options.timeout,
            busy: options.busy,
        },
        told,
    )
}

fn measure(options: &Client) -> Result<(), ToolError> {
    if let Some(sizes) = &options.sizes {
        return measure_all(options, sizes);
    }
    let outcome = measure_one(options, options.size)?;
    if options.json {
        return print_json(&outcome);
    }
    let head = format!(
        "{:?}, {} bytes, depth {}",
        outcome.operation, outcome.size, outcome.depth
    );
    if let Some(goodput) = outcome.goodput {
        rnic_tools::outln!("{head}: {goodput}");
    }
    if let Some(latency) = outcome.latency {
        rnic_tools::outln!("{head}: {latency}");
    }
    if let Some(bytes) = outcome.verified_bytes {
        rnic_tools::outln!("{head}: {} verified equal", size::show(bytes));
    }
    Ok(())
}

/// Measures with messages of so many bytes.
fn measure_one(options: &Client, size: u32) -> Result<Outcome, ToolError> {
    let (plan, until) = plan(options, size);
    let goal = match until {
        Until::Messages(messages) => Some(messages.saturating_mul(u64::from(plan.size))),
        Until::Elapsed(_) => None,
    };
    let what = format!("{:?} {}", plan.operation, size::show(plan.size.into()));
    let mut progress = Progress::new(what, goal, options.quiet);
    let span = Span {
        until,
        turn: options.turn,
    };
    let waiting = Waiting {
        patience: options.timeout,
        busy: options.busy,
    };
    address::first_usable(options.to.addresses(), |peer| {
        let context = options.rnic_source.open_toward(peer, 0)?;
        let connect = ConnectOptions::default()
            .transport(options.mpa.transport())
            .mpa(options.mpa.options());
        client::run(&context, peer, connect, plan, span, waiting, &mut progress)
    })
}

/// Measures at each of these sizes: a row of the table for each as soon as it is there, then the plot.
fn measure_all(options: &Client, sizes: &Sizes) -> Result<(), ToolError> {
    check_all(options, sizes)?;
    let plot = options.plot.as_deref();
    let file_error = |path: &Path, source| ToolError::Io {
        what: format!("writing the plot {}", path.display()),
        source,
    };
    if let Some(path) = plot {
        // Before the measurement takes its time.
        let file = OpenOptions::new().create(true).append(true).open(path);
        file.map_err(|error| file_error(path, error))?;
    }
    let figure = figure(options);
    if !options.json {
        rnic_tools::outln!("{}", sweep::Head(figure));
    }
    let mut outcomes = Vec::new();
    for size in sizes.all() {
        let outcome = measure_one(options, *size)?;
        if !options.json {
            rnic_tools::outln!("{}", sweep::Row(&outcome));
        }
        outcomes.push(outcome);
    }
    if let Some(path) = plot {
        let svg = sweep::svg(options.op, figure, &outcomes).ok_or_else(|| {
            ToolError::Usage(format!(
                "no message was measured, so {} has no plot: give more --iterations or a longer \
                 --duration",
                path.display()
            ))
        })?;
        std::fs::write(path, svg).map_err(|error| file_error(path, error))?;
    }
    match options.json {
        true => print_json(&sweep::Report { sizes: &outcomes }),
        false => Ok(()),
    }
}

/// The error for a size that no server would serve: before the sizes in front of it take their time.
fn check_all(options: &Client, sizes: &Sizes) -> Result<(), ToolError> {
    sizes.all().iter().try_for_each(|size| {
        let checked = plan(options, *size).0.check();
        checked.map_err(|reason| ToolError::Usage(format!("messages of {size} bytes: {reason}")))
    })
}

/// Prints a result on a line of its own.
fn print_json(result: &impl Serialize) -> Result<(), ToolError> {
    let text = serde_json::to_string(result).map_err(|error| ToolError::Io {
        what: "writing the result as JSON".into(),
        source: error.into(),
    })?;
    rnic_tools::outln!("{text}");
    Ok(())
}

/// The memory that messages go round in when nothing asks for more, in bytes: small enough to stay in
/// a cache. Those that are outstanding together may have the same bytes, as in other such programs:
/// how far memory is behind the caches is not what is measured.
const SPAN: u64 = 1 << 20;

fn figure(options: &Client) -> Figure {
    match options.latency {
        true => Figure::Latency,
        false => Figure::Bandwidth,
    }
}

fn plan(options: &Client, message: u32) -> (Plan, Until) {
    let figure = figure(options);
    let size = u64::from(message);
    let messages = options
        .iterations
        .or(options.bytes.map(|b| b.div_ceil(size.max(1))));
    let depth = if options.latency { 1 } else { options.depth };
    let span = (SPAN / size.max(1) * size).max(size);
    let span = match (figure, messages) {
        // Source, sink and one more of each message.
        (Figure::Latency, _) => size * 3,
        // Every byte of the transfer has a place of its own, so that each is compared.
        (Figure::Bandwidth, Some(messages)) if options.verify => options
            .bytes
            .unwrap_or_else(|| messages.saturating_mul(size)),
        (Figure::Bandwidth, _) if options.verify => (size * u64::from(depth)).max(span),
        _ => span,
    };
    let mut plan = Plan::new(options.op, figure, message, depth, span);
    plan.verify = options.verify && figure == Figure::Bandwidth;
    plan.seed = 0x5eed ^ span;
    let until = messages.map_or(Until::Elapsed(options.duration), Until::Messages);
    (plan, until)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    #[test]
    fn a_sweep_is_refused_for_any_of_its_sizes_by_its_name() {
        let check = |words: &str| {
            let words = format!("rnic-perf client --connect 192.0.2.2 --op send {words}");
            let cli = super::Cli::try_parse_from(words.split(' ')).expect(&words);
            let super::Role::Client(options) = cli.role else {
                panic!("{words} is a client's");
            };
            let sizes = options.sizes.as_ref().expect("a sweep");
            super::check_all(&options, sizes).map_err(|error| error.to_string())
        };
        assert_eq!(check("--sizes 64..4M"), Ok(()));
        let refused = check("--sizes 64..4M --depth 4096").expect_err("too much memory");
        assert!(refused.contains("messages of 1048576 bytes"), "{refused}");
        assert!(refused.contains("at most 8 GiB"), "{refused}");
    }

    #[test]
    fn every_option_is_in_the_manual() {
        rnic_pages::assert_documented(<super::Cli as clap::CommandFactory>::command(), 1);
    }
}
