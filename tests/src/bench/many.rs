//! Many queue pairs of one program: `rnic-perf many`.

use std::fs;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::place::Place;
use super::rnic::{Daemons, RnicSource, embedded_options, goodput};
use super::testbed::{End, ended, started};
use super::{CPU, Figures, GBIT, GBIT_ALONE, Testbed, interrupt};
use crate::lab::{Command, Process};
use crate::tool;

/// Messages outstanding on all queue pairs together, at least: one on each if there are more.
const OUTSTANDING: u32 = 16;
/// What daemons may have so that there can be ten thousand queue pairs.
const CONFIGURATION: &str = "\
[limits]
queue_pairs = 16384
ring_entries = 16777216
outstanding_work = 16777216
connection_requests = 16384
[limits.client]
queue_pairs = 16384
ring_entries = 16777216
outstanding_work = 16777216
connection_requests = 16384
[limits.user]
queue_pairs = 16384
ring_entries = 16777216
outstanding_work = 16777216
connection_requests = 16384
";
/// How long connecting and resetting one queue pair may take at most.
const EACH: Duration = Duration::from_millis(10);
/// So many times longer than anything else is measured: turns are taken with one queue pair alone, and
/// with ten thousand a turn takes a good quarter of a second.
const LONGER: u32 = 3;
/// The least time over which a daemon's share of a core is taken.
const IDLE: Duration = Duration::from_secs(2);
/// How long after the last connection nothing of connecting is left: a thousand connections have
/// timers of their beginning for a second or two.
const SETTLED: Duration = Duration::from_secs(3);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Traffic {
    /// RDMA Writes of so many bytes each.
    Writes(u32),
    None,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ManyRun {
    pub queue_pairs: u32,
    pub traffic: Traffic,
    pub rnic_source: RnicSource,
}

impl ManyRun {
    #[must_use]
    pub fn name(&self) -> String {
        let what = match self.traffic {
            Traffic::Writes(_) => "write",
            Traffic::None => "idle",
        };
        format!(
            "{what}-qps-{}-{}",
            self.queue_pairs,
            self.rnic_source.name()
        )
    }

    /// Whether the first queue pair also writes alone, interleaved with all of them.
    fn has_one_beside(&self) -> bool {
        self.queue_pairs > 1 && self.traffic != Traffic::None
    }

    /// One end of it. The passive one hears nothing until all is done, which is to be within `limit`.
    fn end(&self, command: Command, role: &[&str], limit: Duration) -> Command {
        command
            .arg("many")
            .args(role)
            .args(["--queue-pairs", &self.queue_pairs.to_string()])
            .args(["--timeout", &format!("{}s", limit.as_secs())])
    }
}

/// Daemons that may have as many queue pairs as any run has.
fn daemons(
    testbed: &Testbed,
    place: Place,
    rnic_source: RnicSource,
) -> Result<Option<Daemons>, String> {
    let RnicSource::Daemon(polling) = rnic_source else {
        return Ok(None);
    };
    let configuration = testbed.directory().join("many.toml");
    fs::write(&configuration, CONFIGURATION)
        .map_err(|error| format!("can't write {}: {error}", configuration.display()))?;
    let configuration = configuration.to_string_lossy();
    Daemons::start(testbed, place, polling, &["--config", &configuration]).map(Some)
}

pub(super) fn run(testbed: &mut Testbed, place: Place, run: &ManyRun) -> Result<Figures, String> {
    let at = testbed.next_address(place).to_string();
    let daemons = daemons(testbed, place, run.rnic_source)?;
    let limit = testbed.limit() + EACH * run.queue_pairs;
    let tool = |end, role: &[&str]| match &daemons {
        Some(daemons) => run
            .end(testbed.unpinned(place, end, "rnic-perf"), role, limit)
            .arg("--socket")
            .arg(daemons.socket(end)),
        None => run
            .end(testbed.command(place, end, "rnic-perf"), role, limit)
            .args(embedded_options(place)),
    };
    let server = started(tool(End::B, &["server", "--listen", &at]), "listening")?;
    let (size, depth, duration) = match run.traffic {
        Traffic::Writes(size) => {
            let depth = (OUTSTANDING / run.queue_pairs).max(1);
            (size, depth, testbed.duration_at(place) * LONGER)
        }
        // Longer than it is looked at.
        Traffic::None => (0, 0, testbed.duration().max(IDLE) + SETTLED * 3 / 2),
    };
    let seconds = duration.as_secs_f64().to_string();
    let mut client = tool(End::A, &["client", "--connect", &at])
        .args(["--size", &size.to_string(), "--depth", &depth.to_string()])
        .args(["--duration", &seconds]);
    if run.has_one_beside() {
        client = client.args(["--alone", &OUTSTANDING.to_string()]);
    }
    let mut client = client.spawn();
    let mut figures = Figures::new();
    if let (Traffic::None, Some(daemons)) = (run.traffic, &daemons) {
        client.says("connected", limit)?;
        std::thread::sleep(SETTLED);
        let share = share_of_core(&daemons.processes, testbed.duration().max(IDLE))?;
        figures.insert(CPU, share * 100.0);
    }
    let report: Value = tool::try_report(&ended(client, limit)?)?;
    ended(server, limit)?;
    if let Some(daemons) = daemons {
        daemons.stop(testbed.limit())?;
    }
    if run.traffic != Traffic::None {
        figures.extend(goodput(&report)?);
    }
    if run.has_one_beside() {
        let alone = report["goodput_alone"][GBIT].as_f64();
        figures.insert(GBIT_ALONE, alone.ok_or("no goodput of one alone")?);
    }
    let connect = report["connect_seconds"].as_f64();
    figures.insert("connect_seconds", connect.ok_or("no time of connecting")?);
    Ok(figures)
}

/// How much of a core the busiest of these processes takes in `window`.
fn share_of_core(processes: &[Process], window: Duration) -> Result<f64, String> {
    let busy =
        || -> Result<Vec<Duration>, String> { processes.iter().map(time_on_cores).collect() };
    let (before, begin) = (busy()?, Instant::now());
    while begin.elapsed() < window && !interrupt::came() {
        std::thread::sleep(Duration::from_millis(10));
    }
    let (after, took) = (busy()?, begin.elapsed());
    let spent = after
        .iter()
        .zip(before)
        .map(|(after, before)| after.saturating_sub(before));
    let most = spent.max().unwrap_or_default();
    Ok(most.as_secs_f64() / took.as_secs_f64())
}

/// The time that all threads of a process have run.
fn time_on_cores(process: &Process) -> Result<Duration, String> {
    let directory = format!("/proc/{}/task", process.id());
    let failed = |error: std::io::Error| format!("{directory}: {error}");
    let mut nanoseconds = 0;
    for thread in fs::read_dir(&directory).map_err(failed)? {
        let text = fs::read_to_string(thread.map_err(failed)?.path().join("schedstat"));
        let text = text.map_err(failed)?;
        let first = text
            .split_whitespace()
            .next()
            .and_then(|word| word.parse::<u64>().ok());
        nanoseconds += first.ok_or_else(|| format!("no time in {directory}: {text}"))?;
    }
    Ok(Duration::from_nanos(nanoseconds))
}
