//! Programs in C over usrsctp (`tests/interop/sctp`), as peers of our SCTP.

use std::path::PathBuf;
use std::process::Command;

/// Builds one of them, if that was not done yet: tests are processes, of which several may want it.
///
/// # Panics
///
/// When it can't be built.
#[must_use]
pub fn program(name: &str) -> PathBuf {
    let sources = concat!(env!("CARGO_MANIFEST_DIR"), "/interop/sctp");
    let test = std::env::current_exe().expect("a test has a path");
    let build = test.with_file_name("usrsctp");
    std::fs::create_dir_all(&build).expect("a directory");
    let program = build.join(name);
    let made = Command::new("flock")
        .arg(&build)
        .args(["make", "-s", "-C", sources])
        .arg(format!("BUILD={}", build.display()))
        .arg(&program)
        .output();
    let made = made.expect("flock and make run");
    assert!(
        made.status.success(),
        "can't build {name}; `scripts/setup` installs libusrsctp-dev: {}",
        String::from_utf8_lossy(&made.stderr)
    );
    program
}
