//! AF_XDP without a protocol: `rnic-perf raw`.

use std::time::Duration;

use serde_json::Value;

use super::ground::{End, ended, started};
use super::place::{Napi, Place};
use super::rnic::latency;
use super::running::Running;
use super::{Figures, GBIT, Ground, MESSAGES};
use crate::lab::{Command, INTERFACE};
use crate::tool;

/// Octets of an Ethernet header.
const ETHERNET: u32 = 14;
/// Octets of a frame that goes there and back.
const PING: u32 = 64;

/// What frames carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// What nobody writes or reads.
    Nothing,
    /// An application's octets, verified before they are copied out.
    Octets,
    /// The segments of RDMA Writes: the least that a transport of these must do.
    Writes,
}

impl Load {
    /// All.
    pub const ALL: [Self; 3] = [Self::Nothing, Self::Octets, Self::Writes];

    /// In names of contestants.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Nothing => "raw",
            Self::Octets => "raw-verified",
            Self::Writes => "raw-least",
        }
    }

    fn option(self) -> Option<&'static str> {
        match self {
            Self::Nothing => None,
            Self::Octets => Some("--verified"),
            Self::Writes => Some("--least"),
        }
    }
}

/// Frames of the place's MTU, as many as possible.
pub(super) fn rate(ground: &Ground, place: Place, load: Load) -> Result<Figures, String> {
    let octets = ETHERNET + place.mtu;
    let command = |end, role| {
        let duration = ground.duration_at(place);
        let command = command(ground, place, end, (role, duration), octets);
        match load.option() {
            Some(option) => command.arg(option),
            None => command,
        }
    };
    let receiver = started(command(End::B, "receive"), "listening")?;
    let mut sender = command(End::A, "send");
    // Elsewhere little is lost, and a word of the receiver's now and then costs more than that. What is
    // acknowledged has a window anyway.
    if place.napi == Napi::Rps && load != Load::Writes {
        sender = sender.arg("--paced");
    }
    let sender = sender.spawn();
    let sent = tool::try_report(&ended(sender, ground.limit())?)?;
    let received = tool::try_report(&ended(receiver, ground.limit())?)?;
    let number = |report: &Value, key: &str| {
        let value = report[key].as_f64();
        value.ok_or_else(|| format!("no {key} in {report}"))
    };
    let seconds = number(&sent, "seconds")?.max(number(&received, "seconds")?);
    Ok(Figures::from([
        (GBIT, number(&received, "payload_octets")? * 8e-9 / seconds),
        (MESSAGES, number(&received, "frames")? / seconds),
        ("lost", number(&received, "lost")?),
    ]))
}

/// One frame at a time; behind each so many KiB of other code are run through.
pub(super) fn ping(
    ground: &Ground,
    place: Place,
    code: u32,
    duration: Duration,
) -> Result<Running, String> {
    let end = |end, role| {
        command(ground, place, end, (role, duration), PING).args(["--code", &code.to_string()])
    };
    let pong = started(end(End::B, "pong"), "listening")?;
    Ok(Running::new(end(End::A, "ping").spawn(), pong, latency))
}

fn command(
    ground: &Ground,
    place: Place,
    end: End,
    (role, duration): (&str, Duration),
    octets: u32,
) -> Command {
    let seconds = duration.as_secs_f64().to_string();
    // A receive path on the receiver's core needs that core, but for a single frame not for long.
    let waiting = match (place.napi, octets) {
        (Napi::Inline, _) | (Napi::Rps, PING) => "spin",
        (Napi::Rps | Napi::Threaded, _) => "poll",
    };
    ground
        .command(place, end, "rnic-perf")
        .args(["raw", role, "--interface", INTERFACE])
        .args(["--mode", place.napi.xdp_mode(), "--waiting", waiting])
        .args(["--octets", &octets.to_string(), "--duration", &seconds])
        .args(["--timeout", "10s"])
}
