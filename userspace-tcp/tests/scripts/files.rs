//! The script files: where they are, and running those of one area.

use std::path::{Path, PathBuf};

use crate::{machine, parse, report};

/// Environment variable that picks scripts by a part of `area/rule` and prints their wire.
const ONLY: &str = "TCP_SCRIPT";

/// The directory of this test.
pub fn home() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts")
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
    let inner = path
        .strip_prefix(env!("CARGO_MANIFEST_DIR"))
        .unwrap_or(path);
    inner.display().to_string()
}

pub fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Runs one script: the wire, or what is wrong.
pub fn run(path: &Path) -> Result<Vec<String>, String> {
    let text = read(path);
    let script = parse::script(&name(path), &text, &common()).map_err(|error| error.to_string())?;
    let outcome = machine::run(&script);
    match report::report(&script, &text, &outcome) {
        None => Ok(outcome.wire),
        Some(report) => Err(report),
    }
}

/// Runs every script of an area, of which there are so many, and fails with the reports of all that
/// don't hold.
pub fn run_area(area: &str, scripts: usize) {
    let only = std::env::var(ONLY).ok();
    let mut failed = Vec::new();
    let mut ran = 0;
    for path in scripts_of(area) {
        let name = name(&path);
        if only
            .as_ref()
            .is_some_and(|only| !name.contains(only.as_str()))
        {
            continue;
        }
        ran += 1;
        match run(&path) {
            Ok(wire) if only.is_some() => println!("{name}\n  {}", wire.join("\n  ")),
            Ok(_) => {}
            Err(report) => failed.push(report),
        }
    }
    println!("{area}: {ran} scripts ran, {} failed", failed.len());
    assert!(
        only.is_some() || ran == scripts,
        "{area}: {ran} scripts ran; `areas!` in main.rs says {scripts}"
    );
    assert!(failed.is_empty(), "\n\n{}", failed.join("\n"));
}
