//! `rnicctl`: shows and administers a running RNIC.
//!
//! Of all devices of a daemon, unless one is named. Its own client shows among the clients. What of others' it sees the RNIC decides: an administrator
//! everything, everybody else what his own programs have.

#![forbid(unsafe_code)]
// They panic when nobody reads: see `rnic_tools::out`.
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod capture;
mod counters;

use std::net::SocketAddr;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand, ValueEnum};
use rnic::inspect::{DaemonOrder, Kind, LogLevel, Object, Order};
use rnic::{ClientId, Context, DeviceInfo, DeviceName};
use rnic_tools::ctl::show::{self, Programs, Shown};
use rnic_tools::door::{Door, Interface};
use rnic_tools::endpoint::ToolError;
use serde_json::{Value, json};

/// Shows and administers a running RNIC: its devices, objects, counters and limits.
#[derive(Debug, Parser)]
#[command(name = env!("CARGO_BIN_NAME"), version)]
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
    /// Interface, XDP mode, addresses and sizes; of several devices the first
    Device,
    /// The same of all devices: one for each interface
    Devices,
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
    Limits,
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
            rnic_tools::errln!("rnicctl: {error}");
            ExitCode::FAILURE
        }
    }
}

fn answer(cli: &Cli) -> Result<(), ToolError> {
    let door = &cli.door;
    let all = Which {
        number: None,
        client: None,
    };
    match &cli.question {
        Question::Device => device(door, cli.json),
        Question::Devices => devices(door, cli.json),
        Question::Clients(which) => list(door, Kind::Clients, which, cli.json),
        Question::Connections(which) => list(door, Kind::Connections, which, cli.json),
        Question::Qps(which) => list(door, Kind::QueuePairs, which, cli.json),
        Question::Cqs(which) => list(door, Kind::CompletionQueues, which, cli.json),
        Question::Regions(which) => list(door, Kind::Regions, which, cli.json),
        Question::Listeners(which) => list(door, Kind::Listeners, which, cli.json),
        Question::Limits => list(door, Kind::Limits, &all, cli.json),
        Question::Counters(options) => counters::answer(door, options, cli.json),
        Question::Capture(options) => capture::answer(&first(door)?, options, cli.json),
        Question::Drop(what) => remove(door, what, cli.json),
        Question::Reload { reopen } => {
            order(door, DaemonOrder::Reload { reopen: *reopen }, cli.json)
        }
        Question::Reopen { interface } => {
            let interface = interface.clone();
            order(door, DaemonOrder::Reopen { interface }, cli.json)
        }
        Question::Log { level } => {
            first(door)?.order(Order::SetLogLevel(level.wanted()))?;
            done(cli.json);
            Ok(())
        }
    }
}

/// An order about the daemon itself.
fn order(door: &Door, order: DaemonOrder, as_json: bool) -> Result<(), ToolError> {
    door.daemon()?.order(order)?;
    done(as_json);
    Ok(())
}

/// The device that is named, or the first that is open. Without one the RNIC says why.
fn first(door: &Door) -> Result<Context, ToolError> {
    match door.devices()?.first() {
        Some(device) => door.open_device(device),
        None => door.open_any(),
    }
}

fn device(door: &Door, as_json: bool) -> Result<(), ToolError> {
    let device = first(door)?.device_info()?;
    if as_json {
        rnic_tools::outln!("{}", info(&device));
    } else {
        tell(&device);
    }
    Ok(())
}

fn devices(door: &Door, as_json: bool) -> Result<(), ToolError> {
    let mut list = Vec::new();
    for (number, interface) in door.interfaces()?.into_iter().enumerate() {
        if !as_json && number > 0 {
            rnic_tools::outln!("");
        }
        match interface {
            Interface::Waiting { name, why } if as_json => {
                list.push(json!({ "interface": name, "waits": why }));
            }
            Interface::Waiting { name, why } => {
                rnic_tools::outln!("interface    {name}");
                rnic_tools::outln!("waits        {why}");
            }
            Interface::Open(name) => {
                let device = door.open_device(&name)?.device_info()?;
                match as_json {
                    true => list.push(info(&device)),
                    false => tell(&device),
                }
            }
        }
    }
    if as_json {
        rnic_tools::outln!("{}", Value::from(list));
    }
    Ok(())
}

fn info(device: &DeviceInfo) -> Value {
    json!({
        "interface": device.interface,
        "xdp_mode": device.xdp_mode,
        "addresses": device.addresses,
        "mtu": device.mtu,
        "queues": device.queues,
        "max_sge": device.max_sge,
        "max_inline": device.max_inline,
        "max_queue_depth": device.max_queue_depth,
    })
}

fn tell(device: &DeviceInfo) {
    let addresses: Vec<String> = device.addresses.iter().map(ToString::to_string).collect();
    rnic_tools::outln!("interface    {}", device.interface);
    rnic_tools::outln!("XDP mode     {}", device.xdp_mode);
    rnic_tools::outln!("addresses    {}", addresses.join(", "));
    rnic_tools::outln!("MTU          {} bytes", device.mtu);
    rnic_tools::outln!("RX queues    {}", device.queues);
    rnic_tools::outln!("elements     {} a work request", device.max_sge);
    rnic_tools::outln!("inline       {} bytes a work request", device.max_inline);
    rnic_tools::outln!("queue depth  {} work requests", device.max_queue_depth);
}

/// The objects of one kind of all devices, one device after the other: this client shows among them.
fn objects(door: &Door, kind: Kind) -> Result<Vec<Shown>, ToolError> {
    if kind == Kind::Limits {
        let limits = first(door)?.inspect(kind)?.into_iter();
        let shown = limits.map(|object| Shown {
            interface: None,
            object,
        });
        return Ok(shown.collect());
    }
    let mut all = Vec::new();
    for name in door.devices()? {
        let context = door.open_device(&name)?;
        let interface = context.device_info()?.interface;
        let found = context.inspect(kind)?.into_iter();
        all.extend(found.map(|object| Shown {
            interface: Some(interface.clone()),
            object,
        }));
    }
    Ok(all)
}

fn list(door: &Door, kind: Kind, which: &Which, as_json: bool) -> Result<(), ToolError> {
    let mut objects = objects(door, kind)?;
    if let Some(client) = which.client {
        objects.retain(|shown| show::owner(&shown.object) == Some(ClientId(client)));
    }
    if let Some(wanted) = which.number {
        objects.retain(|shown| show::number(&shown.object) == Some(wanted));
        let shown = the_only(&objects, wanted)?;
        if !as_json {
            details(&show::json(shown), "");
            return Ok(());
        }
    }
    if as_json {
        let list: Vec<Value> = objects.iter().map(show::json).collect();
        rnic_tools::outln!("{}", Value::from(list));
        return Ok(());
    }
    let programs = match kind {
        Kind::Clients => Programs::of(&objects),
        _ => Programs::of(&self::objects(door, Kind::Clients)?),
    };
    rnic_tools::out!("{}", show::table(kind, &objects, &programs));
    Ok(())
}

/// Each device counts its connections for itself.
fn the_only(found: &[Shown], wanted: u32) -> Result<&Shown, ToolError> {
    match found {
        [one] => Ok(one),
        [] => Err(ToolError::Usage(format!(
            "there is no {wanted}, or it is not yours to see"
        ))),
        several => {
            let interfaces = several.iter().filter_map(|one| one.interface.clone());
            let interfaces: Vec<String> = interfaces.collect();
            Err(ToolError::Usage(format!(
                "there is a {wanted} on each of the interfaces {}: say which with --device",
                interfaces.join(", ")
            )))
        }
    }
}

/// All fields of an object, one a line.
fn details(value: &Value, before: &str) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                match value {
                    Value::Object(_) | Value::Array(_) => {
                        rnic_tools::outln!("{before}{name}");
                        details(value, &format!("{before}  "));
                    }
                    Value::String(text) => rnic_tools::outln!("{before}{name:22} {text}"),
                    Value::Null => rnic_tools::outln!("{before}{name:22} -"),
                    other => rnic_tools::outln!("{before}{name:22} {other}"),
                }
            }
        }
        Value::Array(values) => values.iter().for_each(|value| details(value, before)),
        Value::String(text) => rnic_tools::outln!("{before}{text}"),
        other => rnic_tools::outln!("{before}{other}"),
    }
}

fn remove(door: &Door, what: &What, as_json: bool) -> Result<(), ToolError> {
    let (kind, number) = match *what {
        What::Client { number } => (Kind::Clients, number),
        What::Connection { number } => (Kind::Connections, number),
    };
    let mut objects = objects(door, kind)?;
    objects.retain(|shown| show::number(&shown.object) == Some(number));
    let found = the_only(&objects, number)?;
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
        Some(interface) => door.open_device(&DeviceName::Interface(interface.clone()))?,
        None => first(door)?,
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

#[cfg(test)]
mod tests {
    #[test]
    fn every_option_is_in_the_manual() {
        rnic_pages::assert_documented(<super::Cli as clap::CommandFactory>::command(), 1);
    }
}
