//! Where cargo put the programs under test.
//!
//! A test binary lies in `<target>/<profile>/deps`, the workspace's programs one directory above,
//! beside each other.
//! `RNIC_BIN_DIR` names another place, for instance that of a release build.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The path of one of the workspace's programs; panics with what to do when it was not built.
#[must_use]
pub fn path(program: &str) -> PathBuf {
    found(program, "--bins")
}

/// The path of one of the examples of the workspace; panics as [`path`] does.
#[must_use]
pub fn example(program: &str) -> PathBuf {
    found(&format!("examples/{program}"), "--examples")
}

/// A copy of one of the workspace's programs, for users who can't reach the directory of the build.
///
/// Another program makes it. Were it this one, then what another of its threads starts at that moment
/// would have the copy open for writing until its own exec, and nobody could run it so long ("Text
/// file busy").
#[must_use]
pub fn copy(program: &str, directory: &Path) -> PathBuf {
    let (from, to) = (path(program), directory.join(program));
    let done = Command::new("cp").args([&from, &to]).output();
    let done = done.unwrap_or_else(|error| panic!("can't start cp: {error}"));
    assert!(
        done.status.success(),
        "can't copy {} to {}: {}",
        from.display(),
        to.display(),
        String::from_utf8_lossy(&done.stderr)
    );
    to
}

fn found(program: &str, kind: &str) -> PathBuf {
    let directory = match std::env::var_os("RNIC_BIN_DIR") {
        Some(directory) => PathBuf::from(directory),
        None => {
            let own = std::env::current_exe().expect("a program knows its own path");
            let directory = own.parent().expect("a program lies in a directory");
            let profile = match directory.ends_with("deps") {
                true => directory.parent(),
                false => Some(directory),
            };
            profile.expect("deps lies in a profile's").to_path_buf()
        }
    };
    let path = directory.join(program);
    assert!(
        path.is_file(),
        "{} is not there: run `cargo build --workspace {kind}` first (scripts/test does), or say \
         where the programs are in RNIC_BIN_DIR",
        path.display()
    );
    path
}
