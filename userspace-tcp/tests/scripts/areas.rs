//! Running the scripts of one area.

use crate::alone::Alone;
use crate::files::{name, run as run_script, scripts_of};

/// Environment variable that picks scripts by a part of `area/rule` and prints their wire.
const ONLY: &str = "TCP_SCRIPT";

/// Runs every script of an area, of which there are so many, and fails with the reports of all that
/// don't hold.
pub fn run(area: &str, scripts: usize) {
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
        match run_script::<Alone>(&path) {
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
