//! RDMA: `rnic-perf` between RNICs in its own processes, or between two daemons, or by one.

use std::fmt::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;

use super::place::{Link, Place};
use super::running::{Running, Span};
use super::testbed::{End, ended, started};
use super::{Figures, GBIT, MESSAGES, P50, P90, P99, P999, Testbed};
use crate::lab::{Command, Finished, INTERFACE, Process, Signal};
use crate::tool;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RnicSource {
    /// In the processes that use them.
    Embedded,
    Daemon(Polling),
}

/// What a daemon does while it has nothing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Polling {
    /// Spins for a while, then sleeps: the default.
    Adaptive,
    /// Never sleeps.
    Spin,
    /// Sleeps at once.
    Event,
}

impl RnicSource {
    pub const BOTH: [Self; 2] = [Self::Embedded, Self::Daemon(Polling::Adaptive)];

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Embedded => "embedded",
            Self::Daemon(polling) => polling.name(),
        }
    }
}

impl Polling {
    pub const ALL: [Self; 3] = [Self::Adaptive, Self::Spin, Self::Event];

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Adaptive => "daemon",
            Self::Spin => "daemon-spin",
            Self::Event => "daemon-event",
        }
    }

    /// As `rnicd --polling` has it.
    fn option(self) -> &'static str {
        match self {
            Self::Adaptive => "adaptive",
            Self::Spin => "spin",
            Self::Event => "event",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// RDMA Write.
    Write,
    Send,
    /// RDMA Read.
    Read,
}

impl Operation {
    pub const ALL: [Self; 3] = [Self::Write, Self::Send, Self::Read];

    /// As `rnic-perf` calls it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::Send => "send",
            Self::Read => "read",
        }
    }
}

/// Bytes of messages that goals are about.
pub(super) const MEBI: u32 = 1 << 20;
pub(super) const KIBI_64: u32 = 65_536;

/// A run of `rnic-perf`.
#[derive(Clone, Debug, PartialEq)]
pub struct RnicRun {
    pub operation: Operation,
    /// Bytes of a message.
    pub size: u32,
    pub rnic_source: RnicSource,
    /// With MPA Markers, both ways.
    pub markers: bool,
    /// One message at a time, and its time; else as many bytes as possible.
    pub latency: bool,
    /// With BBR in place of CUBIC; only where the RNICs are embedded.
    pub bbr: bool,
    /// Over SCTP in place of TCP.
    pub sctp: bool,
}

impl RnicRun {
    /// As many bytes as possible, without Markers.
    #[must_use]
    pub fn bandwidth(operation: Operation, size: u32, rnic_source: RnicSource) -> Self {
        Self {
            operation,
            size,
            rnic_source,
            markers: false,
            latency: false,
            bbr: false,
            sctp: false,
        }
    }

    /// Its name: `write-1M-embedded`.
    #[must_use]
    pub fn name(&self) -> String {
        let mut name = format!("{}-{}", self.operation.name(), size_name(self.size));
        if self.latency {
            name += "-ping";
        }
        if self.markers {
            name += "-markers";
        }
        if self.bbr {
            name += "-bbr";
        }
        if self.sctp {
            name += "-sctp";
        }
        // Writing to a string does not fail.
        let _ = write!(name, "-{}", self.rnic_source.name());
        name
    }

    /// Messages under way: about 1 MiB, which a cache holds.
    fn depth(&self) -> u32 {
        if self.latency {
            1
        } else {
            ((1 << 20) / self.size.max(1)).clamp(4, 128)
        }
    }

    /// Whether it takes turns with bare frames and others: what goals are about, because not many can
    /// without being away for too long. A daemon that never sleeps can't.
    #[must_use]
    pub fn takes_turns(&self) -> bool {
        let sizes: &[u32] = match self.rnic_source {
            RnicSource::Embedded => &[KIBI_64, MEBI],
            RnicSource::Daemon(Polling::Adaptive | Polling::Event) => &[KIBI_64],
            RnicSource::Daemon(Polling::Spin) => &[],
        };
        let is_of_goals = self.operation == Operation::Write && !self.latency && !self.sctp;
        is_of_goals && sizes.contains(&self.size)
    }

    fn client(&self, span: Span, command: Command, to: SocketAddr) -> Command {
        let depth = self.depth().to_string();
        let figure = match self.latency {
            true => vec!["--latency"],
            false => vec!["--bandwidth", "--depth", &depth],
        };
        self.both(command.args(["client", "--connect", &to.to_string()]))
            .args(["--op", self.operation.name()])
            .args(figure)
            .args(["--size", &self.size.to_string()])
            .args(span.options())
            .args(["--json", "--quiet"])
    }

    fn server(&self, command: Command, at: SocketAddr) -> Command {
        self.both(command.args(["server", "--once", "--listen", &at.to_string()]))
    }

    fn both(&self, command: Command) -> Command {
        let options = [(self.markers, "--markers"), (self.sctp, "--sctp")];
        let options = options.iter().filter(|(is_on, _)| *is_on);
        command
            .args(["--timeout", "30s"])
            .args(options.map(|(_, option)| option))
    }
}

/// A size in bytes as `--only` takes it: 64, 4k, 1M.
#[must_use]
pub fn size_name(bytes: u32) -> String {
    match bytes {
        bytes if bytes >= 1 << 20 && bytes % (1 << 20) == 0 => format!("{}M", bytes >> 20),
        bytes if bytes >= 1 << 10 && bytes % (1 << 10) == 0 => format!("{}k", bytes >> 10),
        bytes => bytes.to_string(),
    }
}

/// The options by which a tool has the place's RNIC in its own process.
pub(super) fn embedded_options(place: Place) -> [&'static str; 4] {
    ["--embedded", INTERFACE, "--mode", place.xdp_mode()]
}

/// Starts both ends, and daemons if it is over these.
pub(super) fn start(
    testbed: &mut Testbed,
    place: Place,
    run: &RnicRun,
    span: Span,
) -> Result<Running, String> {
    match run.rnic_source {
        RnicSource::Embedded => embedded(testbed, place, run, span),
        RnicSource::Daemon(polling) => over_daemons(testbed, place, run, polling, span),
    }
}

/// With the RNICs in the processes of `rnic-perf`.
fn embedded(
    testbed: &mut Testbed,
    place: Place,
    run: &RnicRun,
    span: Span,
) -> Result<Running, String> {
    if place.link == Link::Loopback {
        return within_one_process(testbed, place, run, span);
    }
    let at = testbed.next_address(place);
    let tool = |end| {
        let mut options = Vec::from(embedded_options(place));
        // Elsewhere the kernel's receive path, or the link, needs a core that would never be left.
        if place.leaves_cores_alone() {
            options.push("--busy");
        }
        if run.bbr {
            options.extend(["--congestion", "bbr"]);
        }
        (testbed.command(place, end, "rnic-perf"), options)
    };
    let (command, options) = tool(End::B);
    let server = started(run.server(command, at).args(options), "listening")?;
    let (command, options) = tool(End::A);
    let client = run.client(span, command, at).args(options).spawn();
    Ok(Running::new(client, server, figures_of))
}

/// With both ends in one thread of one process.
fn within_one_process(
    testbed: &Testbed,
    place: Place,
    run: &RnicRun,
    span: Span,
) -> Result<Running, String> {
    if !(run.latency && run.operation == Operation::Write) {
        return Err(format!("{} can't run within one process", run.name()));
    }
    let program = testbed.command(place, End::A, "rnic-perf");
    let program = program.args(["loopback", "--size", &run.size.to_string()]);
    let program = program.args(span.options()).spawn();
    Ok(Running::alone(program, |program, _| {
        latency(&tool::try_report(program)?)
    }))
}

/// With the RNICs in daemons.
fn over_daemons(
    testbed: &mut Testbed,
    place: Place,
    run: &RnicRun,
    polling: Polling,
    span: Span,
) -> Result<Running, String> {
    let at = testbed.next_address(place);
    let daemons = Daemons::start(testbed, place, polling, &[])?;
    let tool = |end| {
        let socket = daemons.socket(end).into_os_string();
        (
            match (place.link, polling) {
                // The daemon has its core for itself.
                (Link::Loopback, Polling::Spin) => testbed.beside(place, End::A, "rnic-perf"),
                _ => testbed.unpinned(place, end, "rnic-perf"),
            },
            ["--socket".into(), socket],
        )
    };
    let (command, rnic_source) = tool(End::B);
    let server = started(run.server(command, at).args(rnic_source), "listening")?;
    let (command, rnic_source) = tool(End::A);
    let client = run.client(span, command, at).args(rnic_source).spawn();
    Ok(Running::new(client, server, figures_of).over(daemons))
}

/// A daemon on each host: over the loopback, where both ends are one host, one. Dropping it kills them.
#[derive(Debug)]
pub(super) struct Daemons {
    pub(super) processes: Vec<Process>,
    sockets: [PathBuf; 2],
}

impl Daemons {
    /// Starts them with further arguments, and waits until they serve.
    pub(super) fn start(
        testbed: &Testbed,
        place: Place,
        polling: Polling,
        arguments: &[&str],
    ) -> Result<Self, String> {
        // Several daemons may be at work at the same time.
        let cable = place.cable;
        let socket = |end: End| testbed.directory().join(format!("{end:?}{cable}.sock"));
        let (device, ends): (&[&str], &[End]) = match place.link {
            Link::Loopback => (&["--loopback"], &[End::B]),
            Link::Cable | Link::AsItComes | Link::Lossy(_) => (
                &["--interface", INTERFACE, "--mode", place.xdp_mode()],
                &[End::A, End::B],
            ),
        };
        let start = |end: &End| {
            let command = match polling {
                Polling::Spin => testbed.on_core(place, *end, "rnicd"),
                Polling::Adaptive | Polling::Event => testbed.command(place, *end, "rnicd"),
            };
            let command = command
                .args(device)
                .args(["--drain", "100", "--polling", polling.option()])
                .arg("--socket")
                .arg(socket(*end))
                .args(arguments);
            started(command, "ready: listening")
        };
        let processes = ends.iter().map(start).collect::<Result<_, _>>()?;
        Ok(Self {
            processes,
            sockets: [ends[0], End::B].map(socket),
        })
    }

    /// Where an end's clients connect.
    pub(super) fn socket(&self, end: End) -> PathBuf {
        self.sockets[end as usize].clone()
    }

    /// Ends them in order.
    pub(super) fn stop(self, limit: Duration) -> Result<(), String> {
        for mut process in self.processes {
            process.signal(Signal::TERM);
            ended(process, limit)?;
        }
        Ok(())
    }
}

fn figures_of(client: &Finished, _: Option<&Finished>) -> Result<Figures, String> {
    figures(&tool::try_report(client)?)
}

/// What `rnic-perf client` reports.
fn figures(report: &Value) -> Result<Figures, String> {
    if report["latency"].is_object() {
        return latency(&report["latency"]);
    }
    goodput(report)
}

pub(super) fn goodput(report: &Value) -> Result<Figures, String> {
    let goodput = &report["goodput"];
    let mut figures = Figures::new();
    for name in [GBIT, MESSAGES] {
        let value = goodput[name].as_f64();
        figures.insert(name, value.ok_or_else(|| format!("no {name} in {report}"))?);
    }
    Ok(figures)
}

/// Percentiles as the tools of `rnic-perf` print them.
pub(super) fn latency(report: &Value) -> Result<Figures, String> {
    let mut figures = Figures::new();
    for (name, key) in [(P50, "p50"), (P90, "p90"), (P99, "p99"), (P999, "p999")] {
        let value = report[key].as_f64();
        figures.insert(name, value.ok_or_else(|| format!("no {key} in {report}"))?);
    }
    Ok(figures)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_what_runs() {
        let run = |size| {
            RnicRun::bandwidth(
                Operation::Write,
                size,
                RnicSource::Daemon(Polling::Adaptive),
            )
        };
        assert_eq!(run(1 << 20).name(), "write-1M-daemon");
        assert_eq!(run(65_536).name(), "write-64k-daemon");
        let ping = RnicRun {
            latency: true,
            markers: true,
            ..run(64)
        };
        assert_eq!(ping.name(), "write-64-ping-markers-daemon");
        let bbr = RnicRun {
            bbr: true,
            rnic_source: RnicSource::Embedded,
            ..run(1 << 20)
        };
        assert_eq!(bbr.name(), "write-1M-bbr-embedded");
        let sctp = RnicRun {
            bbr: false,
            sctp: true,
            ..bbr
        };
        assert_eq!(sctp.name(), "write-1M-sctp-embedded");
    }

    #[test]
    fn a_report_without_its_figures_is_an_error() {
        let report = serde_json::json!({ "goodput": { GBIT: 1.5, MESSAGES: 2.0 } });
        assert_eq!(figures(&report).map(|all| all[GBIT]), Ok(1.5));
        assert!(figures(&serde_json::json!({})).is_err());
        assert!(latency(&serde_json::json!({ "p50": 1.0 })).is_err());
    }
}
