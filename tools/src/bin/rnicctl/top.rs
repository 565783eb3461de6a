//! Clients and connections by what they move.

use std::time::{Duration, Instant};

use clap::Args;
use rnic::admin::Kind;
use rnic_tools::ctl::show::{Programs, Shown};
use rnic_tools::ctl::top::Activity;
use rnic_tools::endpoint::ToolError;
use rnic_tools::screen;
use rnic_tools::source::DaemonSource;

use crate::Style;
use crate::devices::Devices;
use crate::watch::{Again, answers, seconds};

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Measure for so many seconds each time. A terminal is redrawn until q or Ctrl-C; anything else gets one
    /// block after the other, in JSON each in a line
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    watch: Duration,
    /// Measure so many times and end [default: until interrupted]
    #[arg(long, value_name = "TIMES", value_parser = clap::value_parser!(u64).range(1..))]
    times: Option<u64>,
}

/// A look at all connections.
struct Look<'a> {
    devices: Devices<'a>,
    at: Instant,
    connections: Vec<Shown>,
}

pub(crate) fn answer(
    daemon_source: &DaemonSource,
    options: &Options,
    style: Style,
) -> Result<(), ToolError> {
    let again = Again {
        watch: Some(options.watch),
        times: options.times,
    };
    answers(again, style, &mut |before: Option<Look<'_>>| {
        let Some(before) = before else {
            return Ok((None, Look::take(Devices::open(daemon_source)?)?));
        };
        let clients = before.devices.objects(Kind::Clients)?;
        let now = Look::take(before.devices)?;
        let between = now.at - before.at;
        let found = Activity::between(&before.connections, &now.connections, &clients, between);
        Ok((Some(text(&found, &clients, &now.devices, style)?), now))
    })
}

fn text(
    found: &Activity,
    clients: &[Shown],
    devices: &Devices<'_>,
    style: Style,
) -> Result<String, ToolError> {
    if style.json {
        let line = serde_json::to_string(found).map_err(|error| ToolError::Io {
            what: "writing the result as JSON".into(),
            source: error.into(),
        })?;
        return Ok(line + "\n");
    }
    // Of a terminal's rows the connections have the most.
    let most = screen::terminal_size().map_or(usize::MAX, |(_, rows)| rows / 3);
    let programs = Programs::of(clients);
    Ok(found.text(&programs, devices.several(), style.width(), most))
}

impl<'a> Look<'a> {
    fn take(devices: Devices<'a>) -> Result<Self, ToolError> {
        let connections = devices.objects(Kind::Connections)?;
        Ok(Self {
            devices,
            at: Instant::now(),
            connections,
        })
    }
}
