//! Counters, once or again and again with their rates.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use clap::Args;
use rnic::Context;
use rnic_tools::ctl::rates::{Rate, rates};
use rnic_tools::ctl::table::Table;
use rnic_tools::door::Door;
use rnic_tools::endpoint::ToolError;
use serde_json::{Value, json};

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Leave out those that are 0; with --watch, those that did not change
    #[arg(long)]
    nonzero: bool,
    /// Look again every so many seconds and tell the rates
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    watch: Option<Duration>,
    /// Look so many times and end [default: until interrupted]
    #[arg(long, value_name = "TIMES", requires = "watch")]
    times: Option<u64>,
}

/// The devices to ask, each with what goes before its counters' names: nothing when there is one.
struct Devices(Vec<(String, Context)>);

impl Devices {
    fn open(door: &Door) -> Result<Self, ToolError> {
        let names = door.devices()?;
        let mut all = Vec::new();
        for name in &names {
            let context = door.open_device(name)?;
            let before = match names.len() {
                1 => String::new(),
                _ => context.device_info()?.interface + ":",
            };
            all.push((before, context));
        }
        Ok(Self(all))
    }

    fn counters(&self) -> Result<Vec<(String, u64)>, ToolError> {
        let mut all = Vec::new();
        for (before, context) in &self.0 {
            let found = context.counters()?.into_iter();
            all.extend(found.map(|(name, count)| (format!("{before}{name}"), count)));
        }
        Ok(all)
    }
}

pub(crate) fn answer(door: &Door, options: &Options, as_json: bool) -> Result<(), ToolError> {
    let devices = Devices::open(door)?;
    match options.watch {
        None => once(&devices, options, as_json),
        Some(pause) => watch(&devices, options, pause, as_json),
    }
}

fn once(devices: &Devices, options: &Options, as_json: bool) -> Result<(), ToolError> {
    let mut counters = devices.counters()?;
    counters.retain(|(_, count)| *count != 0 || !options.nonzero);
    if as_json {
        let object: BTreeMap<String, u64> = counters.into_iter().collect();
        rnic_tools::outln!("{}", json!(object));
    } else {
        for (name, count) in counters {
            rnic_tools::outln!("{name:40} {count}");
        }
    }
    Ok(())
}

fn watch(
    devices: &Devices,
    options: &Options,
    pause: Duration,
    as_json: bool,
) -> Result<(), ToolError> {
    let mut before = devices.counters()?;
    let mut looked = Instant::now();
    let mut times = 0;
    while options.times.is_none_or(|most| times < most) {
        std::thread::sleep(pause);
        let now = devices.counters()?;
        let between = looked.elapsed();
        looked = Instant::now();
        let mut found = rates(&before, &now, between);
        if options.nonzero {
            found.retain(|rate| rate.per_second.is_none_or(|rate| rate != 0.0) && rate.value != 0);
        }
        if as_json {
            rnic_tools::outln!("{}", line(&found, between));
        } else {
            rnic_tools::outln!("{}", table(&found));
        }
        before = now;
        times += 1;
    }
    Ok(())
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

fn seconds(text: &str) -> Result<Duration, String> {
    let parsed = text.parse::<f64>().ok().filter(|seconds| *seconds >= 0.01);
    parsed
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .ok_or_else(|| "give a number of seconds, at least 0.01".to_owned())
}
