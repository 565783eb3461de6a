//! `rnic-ping` and `rnic-perf` on hosts of the lab.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::Value;

use crate::binary;
use crate::daemon::Daemon;
use crate::lab::{Command, Finished, Process};

/// How long a server may take until it listens.
pub const LISTEN_LIMIT: Duration = Duration::from_secs(30);

/// A tool run in the namespace of a daemon, as a client of that daemon.
#[must_use]
pub fn command(daemon: &Daemon, program: &str, role: &str) -> Command {
    daemon
        .namespace()
        .command(binary::path(program))
        .label(&format!("{program}-{role}"))
        .args([role, "--socket"])
        .arg(daemon.socket())
}

/// Starts a tool's server and waits until it listens: tools say so in a line with the address.
#[must_use]
pub fn server(daemon: &Daemon, program: &str, at: SocketAddr, more: &[&str]) -> Process {
    let mut process = command(daemon, program, "server")
        .args(["--listen", &at.to_string()])
        .args(more)
        .spawn();
    let listens = process.says("listening", LISTEN_LIMIT);
    listens.unwrap_or_else(|error| panic!("{error}"));
    process
}

/// A tool's client, yet to be started.
#[must_use]
pub fn client(daemon: &Daemon, program: &str, to: SocketAddr, more: &[&str]) -> Command {
    command(daemon, program, "client")
        .args(["--connect", &to.to_string(), "--json"])
        .args(more)
}

/// The JSON object that a tool wrote to standard output.
#[track_caller]
#[must_use]
pub fn report(finished: &Finished) -> Value {
    try_report(finished).unwrap_or_else(|error| panic!("{error}"))
}

/// The same for who can go on without.
///
/// # Errors
///
/// When there is none.
pub fn try_report(finished: &Finished) -> Result<Value, String> {
    let line = finished.stdout.lines().rfind(|line| line.starts_with('{'));
    let text = line.unwrap_or(&finished.stdout);
    serde_json::from_str(text).map_err(|error| format!("no JSON ({error}) from {finished}"))
}
