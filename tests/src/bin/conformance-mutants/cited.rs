//! The tests that rows cite, and how they are run: by nextest, those of one binary together, in the
//! copy of the sources.

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;
use std::process::Command;

use crate::rows::Row;
use crate::tree::Tree;

/// Packages whose tests need neither root nor network namespaces, the quickest to build first. Those of
/// the others are run for a row only if it cites nothing else.
const QUICK: &[&str] = &[
    "rnic-crc",
    "rnic-proto",
    "rnic-net",
    "userspace-tcp",
    "userspace-sctp",
    "rnic-ipc",
    "rnic-prm",
    "rnic-engine",
];

/// Seeds of each random test: fewer than by default, which a mutant that breaks a rule does not need.
const SEEDS: &str = "40";

/// A test as a row names it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cited {
    /// Its place in the order of running: packages as in [`QUICK`], unit tests first.
    rank: (usize, bool),
    /// `package`, `package::binary` or `package::bin/binary`.
    binary: String,
    name: String,
}

impl Cited {
    fn parse(citation: &str) -> Result<Self, String> {
        let (binary, name) = citation
            .split_once(' ')
            .ok_or(format!("{citation}: not a binary, a space and a path"))?;
        let package = binary.split("::").next().unwrap_or(binary);
        let rank = QUICK.iter().position(|quick| *quick == package);
        Ok(Self {
            rank: (rank.unwrap_or(QUICK.len()), binary != package),
            binary: binary.to_string(),
            name: name.to_string(),
        })
    }

    fn is_quick(&self) -> bool {
        self.rank.0 < QUICK.len()
    }
}

impl fmt::Display for Cited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.binary, self.name)
    }
}

/// The tests of a row that are run.
pub fn of_row(row: &Row) -> Result<BTreeSet<Cited>, String> {
    let all: Result<Vec<Cited>, String> = row.tests.iter().map(|test| Cited::parse(test)).collect();
    let mut all = all?;
    if all.iter().any(Cited::is_quick) {
        all.retain(Cited::is_quick);
    }
    Ok(all.into_iter().collect())
}

/// Those of one binary together, in the order of running.
pub fn groups(cited: &BTreeSet<Cited>) -> Vec<Vec<Cited>> {
    let mut groups: Vec<Vec<Cited>> = Vec::new();
    for test in cited {
        match groups.last_mut() {
            Some(group) if group[0].binary == test.binary => group.push(test.clone()),
            _ => groups.push(vec![test.clone()]),
        }
    }
    groups
}

#[derive(Debug)]
pub enum Outcome {
    /// All tests were run.
    Ran {
        /// Those that failed, crashed or took too long.
        failed: Vec<Cited>,
    },
    /// It did not compile.
    NotBuilt {
        /// The first error.
        why: String,
    },
}

/// Builds and runs tests of one binary. `target` is where the work tree is built, `folder` where its copy is.
pub fn run(tree: &Tree, target: &Path, folder: &Path, group: &[Cited]) -> Result<Outcome, String> {
    let binary = &group[0].binary;
    let tests: Vec<String> = group.iter().map(|t| format!("test(={})", t.name)).collect();
    let expression = format!("binary_id(={binary}) & ({})", tests.join(" | "));
    let mut command = Command::new("cargo");
    command.args(["nextest", "run", "--profile", "mutants", "--color", "never"]);
    command.args(selection(binary)).args(["-E", &expression]);
    // Nothing of these packages takes the place of what the work tree has built, and what is not of the workspace is
    // built there already.
    let target = match group[0].is_quick() {
        true => target.to_path_buf(),
        false => folder.join("build"),
    };
    command.env("CARGO_TARGET_DIR", target);
    command.env("CARGO_INCREMENTAL", "1");
    command.env("CARGO_TERM_PROGRESS_WHEN", "never");
    command.env("PROPTEST_DISABLE_FAILURE_PERSISTENCE", "1");
    if std::env::var_os("RNIC_TEST_SEEDS").is_none() {
        command.env("RNIC_TEST_SEEDS", SEEDS);
    }
    let output = command
        .current_dir(tree.path())
        .output()
        .map_err(|error| format!("cargo nextest: {error}"))?;
    let told = String::from_utf8_lossy(&output.stderr);
    // 100: tests failed; 101: they were not built.
    match output.status.code() {
        Some(0 | 100) => {
            let failed = group.iter().filter(|test| has_failed(&told, test));
            let failed: Vec<Cited> = failed.cloned().collect();
            if output.status.success() == failed.is_empty() {
                return Ok(Outcome::Ran { failed });
            }
        }
        Some(101) => {
            let error = told.lines().find(|line| line.starts_with("error"));
            let why = error.unwrap_or("no error was printed").to_string();
            return Ok(Outcome::NotBuilt { why });
        }
        _ => {}
    }
    Err(format!("{expression}: {}\n{told}", output.status))
}

/// Only this binary is built.
fn selection(binary: &str) -> Vec<String> {
    let (package, rest) = binary.split_once("::").unwrap_or((binary, ""));
    let mut selection = vec!["-p".to_string(), package.to_string()];
    match rest.split_once('/') {
        _ if rest.is_empty() => selection.push("--lib".to_string()),
        Some(("bin", name)) => selection.extend(["--bin".to_string(), name.to_string()]),
        _ => selection.extend(["--test".to_string(), rest.to_string()]),
    }
    selection
}

/// Whether a line of the report says that the test did not pass: `FAIL [ 0.1s] (1/2) binary path`, or
/// with a signal or TIMEOUT.
fn has_failed(report: &str, test: &Cited) -> bool {
    let name = format!(" {test}");
    let lines = report.lines().filter(|line| line.ends_with(&name));
    lines.map(str::trim_start).any(|line| {
        ["FAIL", "TIMEOUT", "SIG", "ABORT"]
            .iter()
            .any(|end| line.starts_with(end))
    })
}
