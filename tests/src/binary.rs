//! Where cargo put the programs under test.
//!
//! A test binary lies in `<target>/<profile>/deps`, the workspace's programs one directory above,
//! beside each other.
//! `RNIC_BIN_DIR` names another place, for instance that of a release build.

use std::path::PathBuf;

/// The path of one of the workspace's programs; panics with what to do when it was not built.
#[must_use]
pub fn path(program: &str) -> PathBuf {
    found(program, "--bins")
}

/// The path of one of the examples of the crate `rnic`; panics as [`path`] does.
#[must_use]
pub fn example(program: &str) -> PathBuf {
    found(&format!("examples/{program}"), "--examples")
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
