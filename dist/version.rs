//! The build script of programs that tell their version: leaves it in `RNIC_VERSION`, its number and the commit in
//! parentheses. The commit is that of `RNIC_COMMIT`, or what git says of the sources. Without both, as in sources
//! without history, there is none.

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-env-changed=RNIC_COMMIT");
    let given = std::env::var("RNIC_COMMIT")
        .ok()
        .filter(|commit| !commit.is_empty());
    let commit = given.or_else(from_git);
    let number = std::env::var("CARGO_PKG_VERSION").unwrap_or_default();
    let version = match commit {
        Some(commit) => format!("{number} ({commit})"),
        None => number,
    };
    println!("cargo::rustc-env=RNIC_VERSION={version}");
}

/// The first digits of the commit that is checked out. A commit, a checkout and a reset all write the log of HEAD.
fn from_git() -> Option<String> {
    let log = git(&["rev-parse", "--git-path", "logs/HEAD"])?;
    println!("cargo::rerun-if-changed={log}");
    git(&["rev-parse", "--short=9", "HEAD"])
}

fn git(arguments: &[&str]) -> Option<String> {
    let ran = Command::new("git").args(arguments).output().ok()?;
    let said = String::from_utf8(ran.stdout).ok()?.trim().to_owned();
    (ran.status.success() && !said.is_empty()).then_some(said)
}
