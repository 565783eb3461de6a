//! The kernel's TCP: iperf3, and `rnic-perf tcp`.

use serde_json::Value;

use super::place::{Link, Napi, Place};
use super::rnic::latency;
use super::running::{Running, Span};
use super::testbed::{End, ended, started};
use super::{Figures, GBIT, Testbed};
use crate::lab::INTERFACE;
use crate::tool;

/// A stream over iperf3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream {
    /// With checksum and segmentation offloads and GRO, all of which a veth has; else with none.
    pub offloads: bool,
}

impl Stream {
    #[must_use]
    pub fn name(self) -> &'static str {
        if self.offloads {
            "kernel-tso"
        } else {
            "kernel-plain"
        }
    }
}

const OFFLOADS: [&str; 5] = ["tx", "sg", "tso", "gso", "gro"];

/// Sends a stream from A to B.
pub(super) fn stream(
    testbed: &mut Testbed,
    place: Place,
    stream: Stream,
) -> Result<Figures, String> {
    if matches!(place.link, Link::Loopback | Link::AsItComes) {
        // It has them all, and keeps them.
        return iperf(testbed, place);
    }
    set_offloads(testbed, place, stream.offloads)?;
    let figures = iperf(testbed, place);
    // As they were: the others need no offload, and a NAPI that has a thread needs GRO.
    set_offloads(testbed, place, false)?;
    figures
}

fn iperf(testbed: &mut Testbed, place: Place) -> Result<Figures, String> {
    let at = testbed.next_address(place);
    let (address, port) = (at.ip().to_string(), at.port().to_string());
    let iperf = |end| testbed.command(place, end, "iperf3");
    let server = iperf(End::B).args(["-s", "-1", "--forceflush", "-B", &address, "-p", &port]);
    let server = started(server, "Server listening")?;
    // iperf3 takes whole seconds only.
    let seconds = testbed.duration_at(place).as_secs_f64().ceil().to_string();
    let client = iperf(End::A).args(["-c", &address, "-p", &port, "-t", &seconds]);
    let client = client.args(["-C", "cubic", "-J"]).spawn();
    let finished = ended(client, testbed.limit())?;
    let report: Value = serde_json::from_str(&finished.stdout)
        .map_err(|error| format!("no JSON ({error}) from {finished}"))?;
    ended(server, testbed.limit())?;
    let bits = report["end"]["sum_received"]["bits_per_second"].as_f64();
    let bits = bits.ok_or_else(|| format!("no bits a second in {report}"))?;
    Ok(Figures::from([(GBIT, bits / 1e9)]))
}

fn set_offloads(testbed: &Testbed, place: Place, on: bool) -> Result<(), String> {
    for end in [End::A, End::B] {
        let mut command = testbed
            .unpinned(place, end, "ethtool")
            .args(["-K", INTERFACE]);
        for offload in OFFLOADS {
            let stays = offload == "gro" && place.napi == Napi::Threaded;
            command = command.args([offload, if on || stays { "on" } else { "off" }]);
        }
        ended(command.spawn(), testbed.limit())?;
    }
    Ok(())
}

/// A round trip of 64 bytes.
pub(super) fn ping(testbed: &mut Testbed, place: Place, span: Span) -> Result<Running, String> {
    let at = testbed.next_address(place).to_string();
    let tool = |end| testbed.command(place, end, "rnic-perf").arg("tcp");
    let pong = started(tool(End::B).args(["pong", "--listen", &at]), "listening")?;
    let ping = tool(End::A).args(["ping", "--connect", &at]);
    let ping = ping.args(span.options()).spawn();
    Ok(Running::new(ping, pong, |ping, _| {
        latency(&tool::try_report(ping)?)
    }))
}
