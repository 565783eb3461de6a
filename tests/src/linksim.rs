//! `linksim` between two hosts of the lab.

use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use crate::lab::{ENDS, Namespace, Process, Signal};
use crate::{binary, wait};

/// How long it may take until it forwards, or answers a signal.
const READY_LIMIT: Duration = Duration::from_secs(30);

/// A running link. Dropping it ends it.
#[derive(Debug)]
pub struct Linksim {
    process: Process,
}

impl Linksim {
    /// Joins the two cables' ends in `middle` by a link with these options, and waits until it
    /// forwards.
    #[must_use]
    pub fn start(middle: &Namespace, options: &[&str]) -> Self {
        Self::try_start(middle, options).unwrap_or_else(|error| panic!("{error}"))
    }

    /// The same for who can go on without.
    ///
    /// # Errors
    ///
    /// What it said instead of forwarding.
    pub fn try_start(middle: &Namespace, options: &[&str]) -> Result<Self, String> {
        // Before others: a link that has to wait for a processor is another link.
        let command = middle
            .command("nice")
            .label("linksim")
            .args(["-n", "-10"])
            .arg(binary::path("linksim"))
            .args(["--left", ENDS[0], "--right", ENDS[1], "--json", "--quiet"])
            .args(options);
        let mut process = command.spawn();
        process.says("ready", READY_LIMIT)?;
        Ok(Self { process })
    }

    /// As [`start`](Self::start), with a capture.
    #[must_use]
    pub fn captured(middle: &Namespace, options: &[&str], file: &Path) -> Self {
        let file = file.to_string_lossy();
        Self::start(middle, &[options, &["--pcap", &file]].concat())
    }

    /// What it has counted until now.
    pub fn report(&mut self) -> Value {
        let lines = |process: &Process| process.stdout().lines().count();
        let before = lines(&self.process);
        self.process.signal(Signal::USR1);
        wait::until("linksim reports", READY_LIMIT, || {
            (lines(&self.process) > before && self.process.stdout().ends_with('\n')).then_some(())
        });
        last(&self.process.stdout())
    }

    /// Ends it; what it has counted in all.
    #[must_use]
    pub fn stop(self) -> Value {
        last(&self.process.terminate().success().stdout)
    }
}

fn last(output: &str) -> Value {
    let line = output.lines().last().unwrap_or_default();
    serde_json::from_str(line).unwrap_or_else(|error| panic!("no JSON ({error}): {output}"))
}

/// A number in a report, by its path: `to_right.lost`.
#[track_caller]
#[must_use]
pub fn count(report: &Value, path: &str) -> u64 {
    let found = path.split('.').fold(report, |value, key| &value[key]);
    found
        .as_u64()
        .unwrap_or_else(|| panic!("no number {path} in {report}"))
}
