//! `rnic-perf raw`: bare frames from one AF_XDP socket to another.

use std::time::Duration;

use clap::{Args, Subcommand};
use rnic_tools::endpoint::ToolError;
use rnic_tools::perf::raw::code::CODE_MAX;
use rnic_tools::perf::raw::{LEAST_FRAME, Load, Waiting, Wire, echo, least, rate};
use rnic_tools::size;
use rnic_tools::xdp::Mode;

use crate::print_json;

/// Start `receive` or `pong` at one end first, then `send` or `ping` at the other. While they run the
/// kernel hears nothing of their interfaces.
#[derive(Debug, Args)]
pub(crate) struct Raw {
    #[command(subcommand)]
    role: Role,
    /// The interface; its queue 0 is used.
    #[arg(long, global = true, value_name = "INTERFACE", default_value = "")]
    interface: String,
    /// Which kind of XDP to use.
    #[arg(long, global = true, value_enum, default_value = "auto")]
    mode: Mode,
    /// How to wait for frames.
    #[arg(long, global = true, value_enum, default_value = "spin")]
    waiting: Waiting,
    /// Have frames that are sent or received in numbers carry an application's bytes, at both ends. These are
    /// copied into each frame with a checksum and a CRC, verified, and copied out. A protocol that moves them
    /// does at least that.
    #[arg(long, global = true)]
    verified: bool,
    /// Have them be the segments of RDMA Writes, at both ends: all headers, acknowledged, sent again when
    /// lost, and nothing that such a transport could do without.
    #[arg(long, global = true, conflicts_with = "verified")]
    least: bool,
    /// Bytes of a frame with its Ethernet header: of those that are sent, or the most that are
    /// received.
    #[arg(long, global = true, value_name = "BYTES", default_value = "1514", value_parser = frame_bytes)]
    bytes: usize,
    /// How long to measure, for `send` and `ping` [default: 5s]
    #[arg(long, global = true, value_name = "TIME", value_parser = size::duration)]
    duration: Option<Duration>,
    /// How long no frame may come; `send` waits for none but with --least [default: 30s]
    #[arg(long, global = true, value_name = "TIME", value_parser = size::duration)]
    timeout: Option<Duration>,
}

/// Without --duration.
const DURATION: Duration = Duration::from_secs(5);
/// Without --timeout.
const TIMEOUT: Duration = Duration::from_secs(30);

impl Raw {
    /// The error for an option that would have no effect.
    fn check(&self) -> Result<(), ToolError> {
        let counts = matches!(self.role, Role::Send(_) | Role::Receive);
        let measures = matches!(self.role, Role::Send(_) | Role::Ping(_));
        let waits = self.least || !matches!(self.role, Role::Send(_));
        let paced = matches!(self.role, Role::Send(Send { paced: true, .. }));
        let why = if self.interface.is_empty() {
            "name an interface with --interface"
        } else if self.least && (!counts || paced) {
            "--least is for send and receive, and has a pace of its own"
        } else if self.verified && !counts {
            "--verified is for send and receive: frames that go back and forth carry nothing"
        } else if self.duration.is_some() && !measures {
            "--duration is for send and ping, and their other end follows: leave it out here"
        } else if self.timeout.is_some() && !waits {
            "send waits for no frame, so --timeout has no effect: leave it out, or use --least"
        } else {
            return Ok(());
        };
        Err(ToolError::Usage(why.into()))
    }
}

#[derive(Clone, Copy, Debug, Subcommand)]
enum Role {
    /// Sends as many frames as it can; prints JSON.
    Send(Send),
    /// Counts them; prints JSON.
    Receive,
    /// Sends a frame and waits until it comes back, again and again; prints JSON.
    Ping(Echo),
    /// Sends each frame back.
    Pong(Echo),
}

#[derive(Args, Clone, Copy, Debug)]
struct Send {
    /// Never be further ahead of the receiver than its rings are long: where a receive path that is
    /// overrun leaves it no time (RPS)
    #[arg(long)]
    paced: bool,
    /// Send in intervals of so long, interleaved with other programs. Before each interval, once all has
    /// arrived, it stops itself (SIGSTOP) until SIGCONT comes. A third of an interval then passes uncounted,
    /// for caches to fill
    #[arg(long, value_name = "TIME", value_parser = size::duration)]
    turn: Option<Duration>,
}

#[derive(Args, Clone, Copy, Debug)]
struct Echo {
    /// Run once through about so many KiB of other code behind each frame, while the peer has it: what
    /// that displaces from the processor's instruction cache the next frame waits for
    #[arg(long, value_name = "KIB", default_value_t = 0, value_parser = kib_of_code)]
    code: usize,
}

fn kib_of_code(text: &str) -> Result<usize, String> {
    let kib = text.parse().ok().filter(|kib| *kib <= CODE_MAX);
    kib.ok_or_else(|| format!("give 0 to {CODE_MAX} KiB"))
}

fn frame_bytes(text: &str) -> Result<usize, String> {
    let bytes = size::bytes(text)? as usize;
    if bytes < LEAST_FRAME {
        return Err(format!("a frame has at least {LEAST_FRAME} bytes"));
    }
    Ok(bytes)
}

pub(crate) fn run(options: &Raw) -> Result<(), ToolError> {
    options.check()?;
    let duration = options.duration.unwrap_or(DURATION);
    let timeout = options.timeout.unwrap_or(TIMEOUT);
    let load = match (options.least, options.verified) {
        (true, _) => Load::Writes,
        (_, true) => Load::Bytes,
        _ => Load::Nothing,
    };
    let mut wire = Wire::open(
        &options.interface,
        options.bytes,
        options.mode.into(),
        options.waiting,
        load,
    )?;
    match options.role {
        Role::Send(Send { turn, .. }) if options.least => {
            let bytes = options.bytes;
            let sent = least::send(&mut wire, bytes, duration, turn, timeout)?;
            print_json(&sent)
        }
        Role::Receive if options.least => {
            rnic_tools::outln!("listening on {}", options.interface);
            print_json(&least::receive(&mut wire, timeout)?)
        }
        Role::Send(Send { paced, turn }) => {
            let bytes = options.bytes;
            print_json(&rate::send(&mut wire, bytes, duration, turn, paced)?)
        }
        Role::Receive => {
            rnic_tools::outln!("listening on {}", options.interface);
            print_json(&rate::receive(&mut wire, timeout)?)
        }
        Role::Ping(Echo { code }) => {
            let bytes = options.bytes;
            let latency = echo::ping(&mut wire, bytes, code, duration, timeout)?;
            print_json(&latency)
        }
        Role::Pong(Echo { code }) => {
            rnic_tools::outln!("listening on {}", options.interface);
            echo::pong(&mut wire, code, timeout)
        }
    }
}
