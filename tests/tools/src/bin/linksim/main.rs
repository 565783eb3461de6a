//! `linksim`: joins two interfaces and makes the link between them as bad as one likes.

#![forbid(unsafe_code)]
// They panic when nobody reads: see `rnic_tools::out`.
#![warn(clippy::print_stdout, clippy::print_stderr)]

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use rnic_test_tools::linksim::{
    CarrierOptions, Config, ConfigError, File, Format, Impairments, Layer, Planned, RunError,
    RunOptions, Settings, Span, run,
};
use rnic_tools::xdp::Mode;

/// Joins two interfaces of this network namespace and forwards Ethernet frames both ways, with
/// losses, delays and changes that a seed decides.
///
/// Both interfaces are taken whole: this namespace's kernel hears nothing from them. Kernels at the
/// ends must compute their own checksums and segments: `ethtool -K DEV tx off` there.
///
/// Shares are written 1% or 0.01; times 50ms, 200us or 1.5s; rates 500Mbit (bits a second) or
/// 62.5MB (bytes a second), in powers of 1000; amounts 256p (packets) or 64KiB (bytes, in powers
/// of 1024).
#[derive(Debug, Parser)]
#[command(version = env!("RNIC_VERSION"), name = "linksim", after_help = AFTER)]
struct Cli {
    /// The interface on the left
    #[arg(long, value_name = "INTERFACE")]
    left: Option<String>,
    /// The interface on the right
    #[arg(long, value_name = "INTERFACE")]
    right: Option<String>,
    /// A TOML file with any of this; what the command line says comes on top
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// What all random decisions come from (default 1)
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u64>,
    #[command(flatten)]
    both: Impairments,
    /// Only for packets to the right: KEY=VALUE,... with the impairments' names as keys
    #[arg(long, value_name = "LIST", value_parser = list, default_value = "")]
    to_right: Impairments,
    /// Only for packets to the left
    #[arg(long, value_name = "LIST", value_parser = list, default_value = "")]
    to_left: Impairments,
    /// A change: at=TIME since the start or after=PACKETS of a direction, perhaps
    /// toward=right|left, and KEY=VALUE,...; can be given several times
    #[arg(long, value_name = "LIST")]
    change: Vec<Planned>,
    /// End after this time
    #[arg(long, value_name = "TIME")]
    duration: Option<Span>,
    /// Print counters this often; without it at the end and at SIGUSR1 only
    #[arg(long, value_name = "TIME")]
    interval: Option<Span>,
    /// Print counters as JSON, one object a line
    #[arg(long)]
    json: bool,
    /// Show no progress
    #[arg(long)]
    quiet: bool,
    /// Write what is forwarded and dropped to a pcapng file; dropped packets have a comment
    #[arg(long, value_name = "FILE")]
    pcap: Option<PathBuf>,
    /// Bytes of each packet that go to the file
    #[arg(long, value_name = "BYTES", default_value_t = 65535)]
    pcap_snap: usize,
    /// Packets that queues and delays can hold: at least rate times delay
    #[arg(long, value_name = "NUMBER", default_value_t = 16384, value_parser = clap::value_parser!(u32).range(1024..=400_000))]
    frames: u32,
    /// Which XDP mode to use
    #[arg(long, value_enum, default_value = "auto")]
    mode: Mode,
    /// Check the configuration, print what it comes to, and end
    #[arg(long)]
    check: bool,
}

const AFTER: &str = "\
Examples:
  linksim --left veth1 --right veth2 --loss 1% --delay 20ms
  linksim --left veth1 --right veth2 --rate 100Mbit --queue 100p --to-left loss=0.1%
  linksim --left veth1 --right veth2 --change at=2s,mtu=1400 --change at=4s,mtu=none

Signals: SIGUSR1 prints the counters, SIGINT and SIGTERM end the link and print them.
docs/linksim.md says more.";

/// Why `linksim` ends with an error.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error("no interface on the {0}: name one with --{0}, or in the file as {0} = \"NAME\"")]
    NoInterface(&'static str),
    #[error(transparent)]
    Run(#[from] RunError),
}

fn list(text: &str) -> Result<Impairments, String> {
    Impairments::from_pairs(text.split(',').filter(|pair| !pair.is_empty()))
}

fn main() -> ExitCode {
    env_logger::Builder::from_env(env_logger::Env::default().default_filter_or("info")).init();
    match serve(Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            rnic_tools::errln!("linksim: {error}");
            ExitCode::FAILURE
        }
    }
}

fn serve(cli: Cli) -> Result<(), Error> {
    let file = match &cli.config {
        Some(path) => File::read(path)?,
        None => File::default(),
    };
    let command_line = Layer {
        both: &cli.both,
        own: [&cli.to_right, &cli.to_left],
    };
    let mut changes = file.change.clone();
    changes.extend(cli.change);
    let seed = cli.seed.or(file.seed).unwrap_or(1);
    let config = Config::new(seed, &[file.layer(), command_line], &changes)?;
    if cli.check {
        let show = |name: &str, settings: &Settings| rnic_tools::outln!("{name}: {settings:#?}");
        show("to right", &config.settings[0]);
        show("to left", &config.settings[1]);
        rnic_tools::outln!("changes: {:#?}", config.changes);
        return Ok(());
    }
    let carrier = CarrierOptions {
        left: cli.left.or(file.left).ok_or(Error::NoInterface("left"))?,
        right: cli
            .right
            .or(file.right)
            .ok_or(Error::NoInterface("right"))?,
        frames: cli.frames,
        mode: cli.mode.into(),
    };
    let options = RunOptions {
        duration: cli.duration.map(|span| span.0),
        interval: cli.interval.map(|span| span.0),
        format: if cli.json { Format::Json } else { Format::Text },
        quiet: cli.quiet,
        capture: cli.pcap.map(|path| (path, cli.pcap_snap)),
    };
    Ok(run(&carrier, &config, &options)?)
}
