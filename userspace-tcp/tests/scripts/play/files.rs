//! The script files: where they are, and running one.

use std::path::{Path, PathBuf};

use crate::host::Host;
use crate::{machine, parse, report};

/// The directory of the scripts.
pub fn home() -> PathBuf {
    PathBuf::from(crate::SCRIPTS)
}

/// What `do` includes.
pub fn common() -> PathBuf {
    home().join("common")
}

/// The scripts of a directory, sorted.
pub fn scripts_of(area: &str) -> Vec<PathBuf> {
    let directory = home().join(area);
    let entries = std::fs::read_dir(&directory);
    let entries = entries.unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
    let mut files: Vec<PathBuf> = entries
        .map(|entry| entry.expect("a directory entry").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "tcp"))
        .collect();
    files.sort();
    files
}

/// The name of a script in reports.
pub fn name(path: &Path) -> String {
    let inner = path.strip_prefix(home()).unwrap_or(path);
    inner.display().to_string()
}

pub fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Runs one script: the wire, or what is wrong.
pub fn run<H: Host>(path: &Path) -> Result<Vec<String>, String> {
    let text = read(path);
    let script = parse::script(&name(path), &text, &common()).map_err(|error| error.to_string())?;
    let outcome = machine::run::<H>(&script);
    match report::report(&script, &text, &outcome) {
        None => Ok(outcome.wire),
        Some(report) => Err(report),
    }
}
