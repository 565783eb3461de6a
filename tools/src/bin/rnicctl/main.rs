//! `rnicctl`: asks a running RNIC what it is, what it has and what it counts, and gives it orders.
//!
//! Its own client shows among the clients. What of others' it sees the RNIC decides: an administrator
//! everything, everybody else what his own programs have.

#![forbid(unsafe_code)]

mod capture;
mod counters;

use std::net::SocketAddr;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand, ValueEnum};
use rnic::inspect::{Kind, LogLevel, Object, Order};
use rnic::{ClientId, Context};
use rnic_tools::ctl::show::{self, Programs};
use rnic_tools::door::Door;
use rnic_tools::endpoint::ToolError;
use serde_json::{Value, json};

/// Asks a running RNIC what it is, what it has and what it counts, and gives it orders.
#[derive(Debug, Parser)]
#[command(version)]
struct Cli {
    #[command(flatten)]
    door: Door,
    /// Print JSON: an object for the device and the counters, a list of objects for everything else
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    question: Question,
}

#[derive(Debug, Subcommand)]
enum Question {
    /// Interface, XDP mode, addresses and sizes
    Device,
    /// Programs that use the RNIC, and what they hold of what they may
    Clients(Which),
    /// TCP connections: ends, state, round trip time, congestion window, retransmissions
    Connections(Which),
    /// Queue pairs: state, protection domain, completion queues
    Qps(Which),
    /// Completion queues
    Cqs(Which),
    /// Memory regions and windows: the STag's index (never its key), rights, octets
    Regions(Which),
    /// Where programs listen
    Listeners(Which),
    /// What everybody may hold
    Limits,
    /// All counters of the RNIC
    Counters(counters::Options),
    /// Write the RNIC's frames to pcapng files (administrators only)
    Capture(capture::Options),
    /// Take something away
    #[command(subcommand)]
    Drop(What),
    /// Log more or less from now on (administrators only)
    Log {
        /// How much
        level: Level,
    },
}

/// Which objects to show.
#[derive(Debug, Args)]
struct Which {
    /// Only this one, with all that is known of it
    #[arg(value_name = "NUMBER", value_parser = number)]
    number: Option<u32>,
    /// Only those of this client
    #[arg(long, value_name = "NUMBER")]
    client: Option<u32>,
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
            eprintln!("rnicctl: {error}");
            ExitCode::FAILURE
        }
    }
}

fn answer(cli: &Cli) -> Result<(), ToolError> {
    let context = cli.door.open()?;
    let all = Which {
        number: None,
        client: None,
    };
    match &cli.question {
        Question::Device => device(&context, cli.json),
        Question::Clients(which) => list(&context, Kind::Clients, which, cli.json),
        Question::Connections(which) => list(&context, Kind::Connections, which, cli.json),
        Question::Qps(which) => list(&context, Kind::QueuePairs, which, cli.json),
        Question::Cqs(which) => list(&context, Kind::CompletionQueues, which, cli.json),
        Question::Regions(which) => list(&context, Kind::Regions, which, cli.json),
        Question::Listeners(which) => list(&context, Kind::Listeners, which, cli.json),
        Question::Limits => list(&context, Kind::Limits, &all, cli.json),
        Question::Counters(options) => counters::answer(&context, options, cli.json),
        Question::Capture(options) => capture::answer(&context, options, cli.json),
        Question::Drop(what) => remove(&context, what, cli.json),
        Question::Log { level } => {
            context.order(Order::SetLogLevel(level.wanted()))?;
            done(cli.json);
            Ok(())
        }
    }
}

fn device(context: &Context, as_json: bool) -> Result<(), ToolError> {
    let device = context.device_info()?;
    if as_json {
        let object = json!({
            "interface": device.interface,
            "xdp_mode": device.xdp_mode,
            "addresses": device.addresses,
            "mtu": device.mtu,
            "queues": device.queues,
            "max_sge": device.max_sge,
            "max_inline": device.max_inline,
            "max_queue_depth": device.max_queue_depth,
        });
        println!("{object}");
        return Ok(());
    }
    let addresses: Vec<String> = device.addresses.iter().map(ToString::to_string).collect();
    println!("interface    {}", device.interface);
    println!("XDP mode     {}", device.xdp_mode);
    println!("addresses    {}", addresses.join(", "));
    println!("MTU          {} octets", device.mtu);
    println!("RX queues    {}", device.queues);
    println!("elements     {} a work request", device.max_sge);
    println!("inline       {} octets a work request", device.max_inline);
    println!("queue depth  {} work requests", device.max_queue_depth);
    Ok(())
}

fn list(context: &Context, kind: Kind, which: &Which, as_json: bool) -> Result<(), ToolError> {
    let mut objects = context.inspect(kind)?;
    if let Some(client) = which.client {
        objects.retain(|object| show::owner(object) == Some(ClientId(client)));
    }
    if let Some(wanted) = which.number {
        objects.retain(|object| show::number(object) == Some(wanted));
        let none = || ToolError::Usage(format!("there is no {wanted}, or it is not yours to see"));
        let object = objects.first().ok_or_else(none)?;
        if !as_json {
            details(&show::json(object), "");
            return Ok(());
        }
    }
    if as_json {
        let list: Vec<Value> = objects.iter().map(show::json).collect();
        println!("{}", Value::from(list));
        return Ok(());
    }
    let programs = match kind {
        Kind::Clients => Programs::of(&objects),
        _ => Programs::of(&context.inspect(Kind::Clients)?),
    };
    print!("{}", show::table(kind, &objects, &programs));
    Ok(())
}

/// All fields of an object, one a line.
fn details(value: &Value, before: &str) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                match value {
                    Value::Object(_) | Value::Array(_) => {
                        println!("{before}{name}");
                        details(value, &format!("{before}  "));
                    }
                    Value::String(text) => println!("{before}{name:22} {text}"),
                    Value::Null => println!("{before}{name:22} -"),
                    other => println!("{before}{name:22} {other}"),
                }
            }
        }
        Value::Array(values) => values.iter().for_each(|value| details(value, before)),
        Value::String(text) => println!("{before}{text}"),
        other => println!("{before}{other}"),
    }
}

fn remove(context: &Context, what: &What, as_json: bool) -> Result<(), ToolError> {
    let order = match *what {
        What::Client { number } => Order::DropClient {
            client: ClientId(number),
        },
        What::Connection { number } => Order::DropConnection {
            connection: number,
            ends: ends_of_connection(context, number)?,
        },
    };
    context.order(order)?;
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
        println!("{}", json!({ "done": true }));
    }
}

/// Decimal, or hexadecimal as regions are shown.
fn number(text: &str) -> Result<u32, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.map_err(|_| "give a number as the list shows it".to_owned())
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
