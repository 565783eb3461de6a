//! `rnic-perf raw`: bare frames from one AF_XDP socket to another.

use std::time::Duration;

use clap::{Args, Subcommand};
use rnic_tools::endpoint::ToolError;
use rnic_tools::perf::raw::{FRAME_MIN, Load, Waiting, Wire, echo, rate};
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
    /// Bytes of a frame with its Ethernet header: of those that are sent, or the most that are
    /// received.
    #[arg(long, global = true, value_name = "BYTES", default_value = "1514", value_parser = frame_bytes)]
    bytes: usize,
    /// How long to measure, for `send` and `ping` [default: 5s]
    #[arg(long, global = true, value_name = "TIME", value_parser = size::duration)]
    duration: Option<Duration>,
    /// How long no frame may come; `send` waits for none [default: 30s]
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
        let measures = matches!(self.role, Role::Send(_) | Role::Ping);
        let waits = !matches!(self.role, Role::Send(_));
        let why = if self.interface.is_empty() {
            "name an interface with --interface"
        } else if self.verified && !counts {
            "--verified is for send and receive: frames that go back and forth carry nothing"
        } else if self.duration.is_some() && !measures {
            "--duration is for send and ping, and their other end follows: leave it out here"
        } else if self.timeout.is_some() && !waits {
            "send waits for no frame, so --timeout has no effect: leave it out"
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
    Ping,
    /// Sends each frame back.
    Pong,
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

fn frame_bytes(text: &str) -> Result<usize, String> {
    let bytes = size::bytes(text)? as usize;
    if bytes < FRAME_MIN {
        return Err(format!("a frame has at least {FRAME_MIN} bytes"));
    }
    Ok(bytes)
}

pub(crate) fn run(options: &Raw) -> Result<(), ToolError> {
    options.check()?;
    let duration = options.duration.unwrap_or(DURATION);
    let timeout = options.timeout.unwrap_or(TIMEOUT);
    let load = match options.verified {
        true => Load::Bytes,
        false => Load::Nothing,
    };
    let mut wire = Wire::open(
        &options.interface,
        options.bytes,
        options.mode.into(),
        options.waiting,
        load,
    )?;
    match options.role {
        Role::Send(Send { paced, turn }) => {
            let bytes = options.bytes;
            print_json(&rate::send(&mut wire, bytes, duration, turn, paced)?)
        }
        Role::Receive => {
            rnic_tools::outln!("listening on {}", options.interface);
            print_json(&rate::receive(&mut wire, timeout)?)
        }
        Role::Ping => {
            let bytes = options.bytes;
            let latency = echo::ping(&mut wire, bytes, duration, timeout)?;
            print_json(&latency)
        }
        Role::Pong => {
            rnic_tools::outln!("listening on {}", options.interface);
            echo::pong(&mut wire, timeout)
        }
    }
}
