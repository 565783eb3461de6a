//! `rnicctl`: shows and administers a running RNIC.
//!
//! Of all devices of a daemon, unless one is named. Its own client shows among the clients. What of others' it sees the RNIC decides: an administrator
//! everything, everybody else what his own programs have.

#![forbid(unsafe_code)]
// They panic when nobody reads: see `rnic_tools::out`.
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod capture;
mod counters;
mod devices;
mod lists;
mod top;
mod watch;

use std::net::SocketAddr;
use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};
use rnic::admin::{DaemonOrder, Kind, LogLevel, Object, Order};
use rnic::{ClientId, Context, DeviceName};
use rnic_tools::ctl::show;
use rnic_tools::endpoint::ToolError;
use rnic_tools::source::DaemonSource;
use serde_json::json;

use devices::{Devices, first};
use lists::Which;
use watch::Again;

/// Shows and administers a running RNIC: its devices, objects, counters and limits.
#[derive(Debug, Parser)]
#[command(name = env!("CARGO_BIN_NAME"), version = env!("RNIC_VERSION"))]
struct Cli {
    #[command(flatten)]
    daemon_source: DaemonSource,
    /// Print JSON: an object for the device, the counters and top, a list of objects for everything else
    #[arg(long, global = true)]
    json: bool,
    /// Give each row of a list one line, however long. Without this a row goes on in further lines where the
    /// terminal ends, or after 80 columns where there is none
    #[arg(long, global = true, conflicts_with = "json")]
    wide: bool,
    #[command(subcommand)]
    question: Question,
}

#[derive(Debug, Subcommand)]
enum Question {
    /// Interface, XDP mode, addresses and sizes; of several devices the first
    Device,
    /// The same of all devices: one for each interface
    Devices(Again),
    /// Clients and connections by what they move: bytes a second, round trip time, segments sent again
    Top(top::Options),
    /// Programs that use the RNIC, and how much of their limits they use
    Clients(Which),
    /// TCP connections: ends, state, round trip time, congestion window, retransmissions
    Connections(Which),
    /// Queue pairs: state, protection domain, completion queues
    Qps(Which),
    /// Completion queues
    Cqs(Which),
    /// Memory regions and windows: the STag's index (never its key), rights, bytes
    Regions(Which),
    /// Where programs listen
    Listeners(Which),
    /// Limits of clients, users and the device
    Limits(Again),
    /// All counters of the RNIC
    Counters(counters::Options),
    /// Write the RNIC's frames to pcapng files (administrators only)
    Capture(capture::Options),
    /// End a client's session, or a connection: your own, or any as an administrator
    #[command(subcommand)]
    Drop(What),
    /// Read the daemon's configuration file again: all of it takes effect, or nothing (administrators
    /// only)
    Reload {
        /// Open interfaces again whose settings need it: their connections end
        #[arg(long)]
        reopen: bool,
    },
    /// Open an interface again, with its present MTU and queues: its connections end (administrators
    /// only)
    Reopen {
        /// The interface's name
        interface: String,
    },
    /// Change the log level (administrators only)
    Log {
        /// How much
        level: Level,
    },
}

#[derive(Debug, Subcommand)]
enum What {
    /// A client with all that it has: one of your own, or any as an administrator
    Client {
        /// As `rnicctl clients` shows it
        number: u32,
    },
    /// A connection, which is reset
    Connection {
        /// As `rnicctl connections` shows it
        number: u32,
    },
}

/// How answers are written.
#[derive(Clone, Copy, Debug)]
struct Style {
    json: bool,
    wide: bool,
}

impl Style {
    /// The most characters of a line, if there is a bound.
    fn width(self) -> Option<usize> {
        (!self.wide).then(rnic_tools::screen::columns)
    }
}

/// How much is logged.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Level {
    Off,
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

fn main() -> ExitCode {
    match answer(&Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            rnic_tools::errln!("rnicctl: {error}");
            ExitCode::FAILURE
        }
    }
}

fn answer(cli: &Cli) -> Result<(), ToolError> {
    let daemon_source = &cli.daemon_source;
    let style = Style {
        json: cli.json,
        wide: cli.wide,
    };
    let list = |kind, which| lists::answer(daemon_source, kind, which, style);
    match &cli.question {
        Question::Device => devices::device(daemon_source, style),
        Question::Devices(again) => devices::answer(daemon_source, again, style),
        Question::Top(options) => top::answer(daemon_source, options, style),
        Question::Clients(which) => list(Kind::Clients, which),
        Question::Connections(which) => list(Kind::Connections, which),
        Question::Qps(which) => list(Kind::QueuePairs, which),
        Question::Cqs(which) => list(Kind::CompletionQueues, which),
        Question::Regions(which) => list(Kind::Regions, which),
        Question::Listeners(which) => list(Kind::Listeners, which),
        Question::Limits(again) => list(Kind::Limits, &Which::all(again)),
        Question::Counters(options) => counters::answer(daemon_source, options, style),
        Question::Capture(options) => capture::answer(&first(daemon_source)?, options, cli.json),
        Question::Drop(what) => remove(daemon_source, what, cli.json),
        Question::Reload { reopen } => order(
            daemon_source,
            DaemonOrder::Reload { reopen: *reopen },
            cli.json,
        ),
        Question::Reopen { interface } => {
            let interface = interface.clone();
            order(daemon_source, DaemonOrder::Reopen { interface }, cli.json)
        }
        Question::Log { level } => {
            first(daemon_source)?.order(Order::SetLogLevel(level.wanted()))?;
            done(cli.json);
            Ok(())
        }
    }
}

/// An order about the daemon itself.
fn order(daemon_source: &DaemonSource, order: DaemonOrder, as_json: bool) -> Result<(), ToolError> {
    daemon_source.daemon()?.order(order)?;
    done(as_json);
    Ok(())
}

fn remove(daemon_source: &DaemonSource, what: &What, as_json: bool) -> Result<(), ToolError> {
    let (kind, number) = match *what {
        What::Client { number } => (Kind::Clients, number),
        What::Connection { number } => (Kind::Connections, number),
    };
    let mut objects = Devices::open(daemon_source)?.objects(kind)?;
    objects.retain(|shown| show::number(&shown.object) == Some(number));
    let found = lists::the_only(&objects, number)?;
    let order = match &found.object {
        Object::Connection(one) => Order::DropConnection {
            connection: number,
            ends: (one.local, one.remote),
        },
        _ => Order::DropClient {
            client: ClientId(number),
        },
    };
    let device = match &found.interface {
        Some(interface) => daemon_source.open_device(&DeviceName::Interface(interface.clone()))?,
        None => first(daemon_source)?,
    };
    device.order(order)?;
    done(as_json);
    Ok(())
}

/// Both ends of a connection, ours first.
fn ends_of_connection(
    context: &Context,
    number: u32,
) -> Result<(SocketAddr, SocketAddr), ToolError> {
    let connections = context.inspect(Kind::Connections)?;
    let found = connections.into_iter().find_map(|object| match object {
        Object::Connection(one) if one.connection == number => Some((one.local, one.remote)),
        _ => None,
    });
    found.ok_or_else(|| {
        let why = format!("there is no connection {number}, or it is not yours to see");
        ToolError::Usage(why)
    })
}

fn done(as_json: bool) {
    if as_json {
        rnic_tools::outln!("{}", json!({ "done": true }));
    }
}

impl Level {
    fn wanted(self) -> LogLevel {
        match self {
            Self::Off => LogLevel::Off,
            Self::Error => LogLevel::Error,
            Self::Warn => LogLevel::Warn,
            Self::Info => LogLevel::Info,
            Self::Debug => LogLevel::Debug,
            Self::Trace => LogLevel::Trace,
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_option_is_in_the_manual() {
        rnic_pages::assert_documented(<super::Cli as clap::CommandFactory>::command(), 1);
    }
}
