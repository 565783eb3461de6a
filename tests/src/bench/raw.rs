//! AF_XDP without a protocol: `rnic-perf raw`.

use serde_json::Value;

use super::place::{Napi, Place};
use super::rnic::latency;
use super::running::{Running, Span};
use super::testbed::{End, started};
use super::{Figures, GBIT, MESSAGES, Testbed};
use crate::lab::{Command, Finished, INTERFACE};
use crate::tool;

/// Bytes of an Ethernet header.
const ETHERNET: u32 = 14;
/// Bytes of the frame of an RDMA Write of 64 bytes: Ethernet, IPv4, TCP with timestamps, the ULPDU's
/// length, the tagged header, the bytes, the CRC.
const WRITE_64: u32 = ETHERNET + 20 + 32 + 2 + 14 + 64 + 4;

/// A round trip of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawPing {
    /// Its bytes, without FCS.
    bytes: u32,
}

impl RawPing {
    /// A frame as long as that of an RDMA Write of 64 bytes: the limit of those.
    pub const AS_WRITE: Self = Self { bytes: WRITE_64 };
    /// A frame of 64 bytes, which has no room for the headers of any such message.
    pub const SHORT: Self = Self { bytes: 64 };

    #[must_use]
    pub fn name(self) -> String {
        match self.bytes {
            WRITE_64 => "raw-ping".into(),
            bytes => format!("raw-ping-{bytes}"),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// What nobody writes or reads.
    Nothing,
    /// An application's bytes, verified before they are copied out.
    Bytes,
}

impl Load {
    pub const ALL: [Self; 2] = [Self::Nothing, Self::Bytes];

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Nothing => "raw",
            Self::Bytes => "raw-verified",
        }
    }

    fn option(self) -> Option<&'static str> {
        match self {
            Self::Nothing => None,
            Self::Bytes => Some("--verified"),
        }
    }
}

/// For an end that waits for frames.
const TIMEOUT: [&str; 2] = ["--timeout", "10s"];

/// Frames of the place's MTU, as many as possible.
pub(super) fn rate(
    testbed: &Testbed,
    place: Place,
    load: Load,
    span: Span,
) -> Result<Running, String> {
    let bytes = ETHERNET + place.mtu;
    let command = |end, role| command(testbed, place, end, role, bytes).args(load.option());
    let receiver = started(command(End::B, "receive").args(TIMEOUT), "listening")?;
    let mut sender = command(End::A, "send").args(span.options());
    // Elsewhere little is lost, and a word of the receiver's now and then costs more than that.
    if place.napi == Napi::Rps {
        sender = sender.arg("--paced");
    }
    Ok(Running::new(sender.spawn(), receiver, rates))
}

/// What the two ends say of their frames.
fn rates(sender: &Finished, receiver: Option<&Finished>) -> Result<Figures, String> {
    let receiver = receiver.ok_or("frames that nobody receives")?;
    let (sent, received) = (tool::try_report(sender)?, tool::try_report(receiver)?);
    let number = |report: &Value, key: &str| {
        let value = report[key].as_f64();
        value.ok_or_else(|| format!("no {key} in {report}"))
    };
    let share = number(&sent, "counted")? / number(&sent, "frames")?.max(1.0);
    let seconds = number(&sent, "seconds")? / share;
    Ok(Figures::from([
        (GBIT, number(&received, "payload_bytes")? * 8e-9 / seconds),
        (MESSAGES, number(&received, "frames")? / seconds),
        ("lost", number(&received, "lost")?),
    ]))
}

/// One frame at a time.
pub(super) fn ping(
    testbed: &Testbed,
    place: Place,
    RawPing { bytes }: RawPing,
    span: Span,
) -> Result<Running, String> {
    let end = |end, role| command(testbed, place, end, role, bytes).args(TIMEOUT);
    let pong = started(end(End::B, "pong"), "listening")?;
    let ping = end(End::A, "ping").args(span.options()).spawn();
    Ok(Running::new(ping, pong, |ping, _| {
        latency(&tool::try_report(ping)?)
    }))
}

fn command(testbed: &Testbed, place: Place, end: End, role: &str, bytes: u32) -> Command {
    // A receive path on the receiver's core needs that core, but for a single frame not for long.
    let alone = matches!(role, "ping" | "pong");
    let waiting = match (place.napi, alone) {
        (Napi::Inline, _) | (Napi::Rps, true) => "spin",
        (Napi::Rps | Napi::Threaded, _) => "poll",
    };
    testbed
        .command(place, end, "rnic-perf")
        .args(["raw", role, "--interface", INTERFACE])
        .args(["--mode", place.napi.xdp_mode(), "--waiting", waiting])
        .args(["--bytes", &bytes.to_string()])
}
