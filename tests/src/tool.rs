//! `rnic-ping` and `rnic-perf` on hosts of the lab.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::Value;

use crate::binary;
use crate::daemon::Daemon;
use crate::lab::{Command, Finished, Process};
use crate::wait;

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
    wait::until(&format!("{program} listens on {at}"), LISTEN_LIMIT, || {
        if let Some(status) = process.status() {
            panic!("{program} server ended: {status}\n{}", process.stderr());
        }
        let said = |text: &str| text.contains("listening");
        (said(&process.stdout()) || said(&process.stderr())).then_some(())
    });
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
    let line = finished.stdout.lines().rfind(|line| line.starts_with('{'));
    let text = line.unwrap_or(&finished.stdout);
    serde_json::from_str(text).unwrap_or_else(|error| panic!("no JSON ({error}) from {finished}"))
}
