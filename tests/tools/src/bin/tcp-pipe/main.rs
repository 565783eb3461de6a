//! `tcp-pipe`: netcat over the userspace TCP, on an interface by AF_XDP.

#![forbid(unsafe_code)]
// They panic when nobody reads: see `rnic_tools::out`.
#![warn(clippy::print_stdout, clippy::print_stderr)]

use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::builder::RangedU64ValueParser;
use clap::{Parser, ValueEnum};
use rnic::embedded::XdpMode;
use rnic_test_tools::pipe::{Direction, Outcome, PipeError, Relay, Role, Settings, Stats};
use rnic_tools::size;
use userspace_tcp::CongestionControl;

/// Joins standard input and output to one TCP connection of this project's TCP.
///
/// The end of standard input closes our direction; the program ends when the peer has closed its own too. While
/// standard input is open it ends when the peer has closed both ways. TCP tells that only when the peer is asked
/// (--keepalive). Linux answers with a reset, from a minute after its program closed. Exit status: 0 when both directions were closed in order, 1 on errors, 128 + N when signal N
/// ended it (the connection is reset then).
#[derive(Debug, Parser)]
#[command(name = env!("CARGO_BIN_NAME"), version = env!("RNIC_VERSION"))]
struct Cli {
    /// The interface.
    #[arg(long, value_name = "NAME")]
    interface: String,
    /// Wait for one peer at this address of the interface.
    #[arg(
        long,
        value_name = "ADDRESS:PORT",
        conflicts_with = "connect",
        required_unless_present = "connect"
    )]
    listen: Option<SocketAddr>,
    /// Connect to this address.
    #[arg(long, value_name = "ADDRESS:PORT")]
    connect: Option<SocketAddr>,
    /// Our address to connect from, instead of the one that the route says.
    #[arg(long, value_name = "ADDRESS", requires = "connect")]
    source: Option<IpAddr>,
    /// Read nothing from the connection: throw away what comes.
    #[arg(long, conflicts_with = "recv_only")]
    send_only: bool,
    /// Read nothing from standard input; our direction is closed when the peer closes its own.
    #[arg(long)]
    recv_only: bool,
    /// Receive window, in bytes: as much as a peer may send within one round trip.
    #[arg(long, value_name = "BYTES", default_value = "16M", value_parser = size::bytes)]
    window: u64,
    /// Segments in flight or waiting to be; as many as fill the window, when not said.
    #[arg(
        long,
        value_name = "NUMBER",
        value_parser = RangedU64ValueParser::<usize>::new().range(1..)
    )]
    queue_segments: Option<usize>,
    /// Congestion control.
    #[arg(long, value_name = "NAME", default_value = "cubic")]
    congestion: CongestionControl,
    /// Offer explicit congestion notification (dctcp does in any case, bbr never).
    #[arg(long)]
    ecn: bool,
    /// Send bursts as large as the congestion window allows.
    #[arg(long)]
    no_pacing: bool,
    /// Send small segments at once, against Nagle's rule.
    #[arg(long)]
    nodelay: bool,
    /// Most bytes of payload and options in a segment, below what the MTU allows.
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u16).range(88..))]
    mss: Option<u16>,
    /// Give up connecting after this time.
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = size::duration)]
    connect_timeout: Duration,
    /// Give the connection up when the peer has acknowledged nothing for this time.
    #[arg(long, value_name = "TIME", default_value = "100s", value_parser = size::duration)]
    user_timeout: Duration,
    /// Ask a silent peer after this time whether it is still there, three times; give up then. 0 for never.
    #[arg(long, value_name = "TIME", default_value = "20s", value_parser = size::duration)]
    keepalive: Duration,
    /// Write figures of the run to this file at the end, as JSON; - is standard error.
    #[arg(long, value_name = "FILE")]
    stats: Option<PathBuf>,
    /// XDP mode.
    #[arg(long, value_enum, default_value = "auto")]
    mode: Mode,
    /// Never sleep: lower latency for a core.
    #[arg(long)]
    busy: bool,
    /// Tell more.
    #[arg(long, short)]
    verbose: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Mode {
    /// Native, or generic where the driver has none.
    Auto,
    /// The driver's own.
    Native,
    /// The kernel's, which every interface has.
    Generic,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let level = if cli.verbose { "info" } else { "warn" };
    env_logger::Builder::from_env(env_logger::Env::default().default_filter_or(level)).init();
    match run(&cli) {
        Ok(Outcome::Closed) => ExitCode::SUCCESS,
        Ok(Outcome::Signalled(signal)) => {
            rnic_tools::errln!(
                "tcp-pipe: {} came: the connection was reset",
                signal.as_str()
            );
            ExitCode::from(128 + signal as u8)
        }
        Err(error) => {
            rnic_tools::errln!("tcp-pipe: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(cli: &Cli) -> Result<Outcome, PipeError> {
    let mut relay = Relay::open(settings(cli))?;
    if cli.listen.is_some() {
        rnic_tools::errln!("tcp-pipe: listening on {}", relay.local());
    }
    let outcome = relay.run();
    let closed = matches!(outcome, Ok(Outcome::Closed));
    let written = match &cli.stats {
        Some(path) => write_stats(path, &relay.stats(closed)),
        None => Ok(()),
    };
    match written {
        Err(error) if closed => Err(error),
        Err(error) => {
            // How the run ended is what matters more.
            rnic_tools::errln!("tcp-pipe: {error}");
            outcome
        }
        Ok(()) => outcome,
    }
}

fn settings(cli: &Cli) -> Settings {
    let role = match (cli.listen, cli.connect) {
        (Some(local), _) => Role::Listen(local),
        (None, Some(remote)) => Role::Connect {
            remote,
            local: cli.source,
        },
        (None, None) => unreachable!("clap demands one of them"),
    };
    Settings {
        interface: cli.interface.clone(),
        mode: match cli.mode {
            Mode::Auto => XdpMode::Auto,
            Mode::Native => XdpMode::Native,
            Mode::Generic => XdpMode::Generic,
        },
        role,
        direction: match (cli.send_only, cli.recv_only) {
            (true, _) => Direction::SendOnly,
            (_, true) => Direction::ReceiveOnly,
            _ => Direction::Both,
        },
        // TCP cuts it to what its window field can say.
        window: u32::try_from(cli.window).unwrap_or(u32::MAX),
        queue_segments: cli.queue_segments,
        mss: cli.mss,
        congestion: cli.congestion,
        ecn: cli.ecn,
        pacing: !cli.no_pacing,
        nodelay: cli.nodelay,
        connect_timeout: cli.connect_timeout,
        user_timeout: cli.user_timeout,
        keepalive: Some(cli.keepalive).filter(|idle| !idle.is_zero()),
        busy: cli.busy,
    }
}

fn write_stats(path: &Path, stats: &Stats) -> Result<(), PipeError> {
    let failed = |source| PipeError::System {
        what: "writing the figures (--stats)",
        source,
    };
    let text = serde_json::to_string_pretty(stats).map_err(|error| failed(error.into()))?;
    if path == Path::new("-") {
        return writeln!(std::io::stderr(), "{text}").map_err(failed);
    }
    std::fs::write(path, text + "\n").map_err(failed)
}
