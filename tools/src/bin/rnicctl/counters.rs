//! Counters, once or again and again with their rates.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use clap::Args;
use rnic_tools::ctl::rates::{Rate, rates};
use rnic_tools::ctl::table::Table;
use rnic_tools::endpoint::ToolError;
use rnic_tools::source::DaemonSource;
use serde_json::{Value, json};

use crate::Style;
use crate::devices::Devices;
use crate::watch::{Again, answers};

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Leave out those that are 0; with --watch, those that did not change
    #[arg(long)]
    nonzero: bool,
    #[command(flatten)]
    again: Again,
}

/// A look at all counters.
struct Look<'a> {
    devices: Devices<'a>,
    at: Instant,
    counters: Vec<(String, u64)>,
}

impl<'a> Look<'a> {
    fn take(devices: Devices<'a>) -> Result<Self, ToolError> {
        let counters = devices.counters()?;
        Ok(Self {
            devices,
            at: Instant::now(),
            counters,
        })
    }
}

pub(crate) fn answer(
    daemon_source: &DaemonSource,
    options: &Options,
    style: Style,
) -> Result<(), ToolError> {
    let watched = options.again.watch.is_some();
    answers(options.again, style, &mut |before: Option<Look<'_>>| {
        let Some(before) = before else {
            let look = Look::take(Devices::open(daemon_source)?)?;
            // Rates need a second look.
            let text = (!watched).then(|| values(&look.counters, options, style));
            return Ok((text, look));
        };
        let now = Look::take(before.devices)?;
        let between = now.at - before.at;
        let mut found = rates(&before.counters, &now.counters, between);
        if options.nonzero {
            found.retain(|rate| rate.per_second.is_none_or(|rate| rate != 0.0) && rate.value != 0);
        }
        let text = match style.json {
            true => format!("{}\n", line(&found, between)),
            false => table(&found).text(style.width()),
        };
        Ok((Some(text), now))
    })
}

/// Each counter's value.
fn values(counters: &[(String, u64)], options: &Options, style: Style) -> String {
    let shown = counters
        .iter()
        .filter(|(_, count)| *count != 0 || !options.nonzero);
    if style.json {
        let object: BTreeMap<&String, u64> = shown.map(|(name, count)| (name, *count)).collect();
        return format!("{}\n", json!(object));
    }
    shown
        .map(|(name, count)| format!("{name:40} {count}\n"))
        .collect()
}

/// One look as one line of JSON: the rates of counters, the values of levels.
fn line(found: &[Rate], between: Duration) -> Value {
    let rates: BTreeMap<&str, f64> = found
        .iter()
        .filter_map(|rate| Some((rate.name.as_str(), rate.per_second?)))
        .collect();
    let values: BTreeMap<&str, u64> = found
        .iter()
        .map(|rate| (rate.name.as_str(), rate.value))
        .collect();
    json!({ "seconds": between.as_secs_f64(), "rates": rates, "values": values })
}

fn table(found: &[Rate]) -> Table {
    let mut table = Table::new(&["counter", "value", "a second"]);
    for rate in found {
        let per_second = rate
            .per_second
            .map_or_else(|| "-".to_owned(), |rate| format!("{rate:.1}"));
        table.push(vec![rate.name.clone(), rate.value.to_string(), per_second]);
    }
    table
}
