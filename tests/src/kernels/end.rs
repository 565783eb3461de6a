//! Either end of a connection: a daemon here or in the machine, and its tools.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use serde_json::Value;

use crate::daemon::Daemon;
use crate::lab::Process;
use crate::peer::{Job, Peer};
use crate::{tool, wait};

/// How long one transfer may take on an emulated processor.
pub(super) const LIMIT: Duration = Duration::from_secs(120);

/// A daemon and where its tools run.
#[derive(Debug)]
pub(super) enum End<'a> {
    Here {
        daemon: &'a Daemon,
        ip: IpAddr,
    },
    There {
        peer: &'a Peer,
        namespace: &'static str,
        socket: String,
        ip: IpAddr,
    },
}

pub(super) enum Tool {
    Here(Process),
    There(Job),
}

impl End<'_> {
    pub(super) fn ip(&self) -> IpAddr {
        match self {
            Self::Here { ip, .. } | Self::There { ip, .. } => *ip,
        }
    }

    pub(super) fn start(&self, program: &str, role: &str, arguments: &str) -> Tool {
        match self {
            Self::Here { daemon, .. } => {
                let command = tool::command(daemon, program, role);
                Tool::Here(command.args(arguments.split_whitespace()).spawn())
            }
            Self::There {
                peer,
                namespace,
                socket,
                ..
            } => Tool::There(peer.start(&in_namespace(
                namespace,
                &format!("/host/{program} {role} --socket {socket} {arguments}"),
            ))),
        }
    }

    /// Starts a server and waits until it listens.
    pub(super) fn serve(&self, program: &str, port: u16) -> Result<Tool, String> {
        let at = SocketAddr::new(self.ip(), port);
        let mut tool = self.start(program, "server", &format!("--listen {at}"));
        match &mut tool {
            Tool::Here(process) => process.says("listening", LIMIT)?,
            Tool::There(job) => says(job, "listening")?,
        }
        Ok(tool)
    }
}

impl Tool {
    pub(super) fn finish(self) -> Result<String, String> {
        match self {
            Self::Here(process) => {
                let ended = process.finish(LIMIT);
                match ended.status.success() {
                    true => Ok(ended.stdout),
                    false => Err(ended.to_string()),
                }
            }
            Self::There(job) => {
                let ran = job.finish(LIMIT);
                match ran.code {
                    0 => Ok(ran.stdout),
                    _ => Err(ran.to_string()),
                }
            }
        }
    }
}

/// A shell command as it runs in a network namespace of the machine's; the empty name is its first.
pub(super) fn in_namespace(namespace: &str, command: &str) -> String {
    match namespace {
        "" => format!("exec {command}"),
        _ => format!("exec ip netns exec {namespace} {command}"),
    }
}

/// Waits until a command has written this, to whatever; the error is how it ended instead.
pub(super) fn says(job: &Job, words: &str) -> Result<(), String> {
    wait::until(words, LIMIT, || {
        if (job.stdout() + &job.stderr()).contains(words) {
            return Some(Ok(()));
        }
        job.ended().map(|ran| Err(ran.stderr.trim().to_owned()))
    })
}

/// Bytes between two RNICs, both ways, each compared with what was sent.
pub(super) fn transfers(a: &End<'_>, b: &End<'_>) -> Result<(), String> {
    let mut port = 20_000;
    for (server, client) in [(a, b), (b, a)] {
        for size in [64, 65_000] {
            port += 1;
            let serving = server.serve("rnic-ping", port)?;
            let to = SocketAddr::new(server.ip(), port);
            let line = format!("--connect {to} --json --size {size} --count 20");
            let report = client.start("rnic-ping", "client", &line).finish()?;
            let report: Value =
                serde_json::from_str(&report).map_err(|e| format!("{e}: {report}"))?;
            if report["rounds"] != 20 {
                return Err(format!("rnic-ping of {size} bytes: {report}"));
            }
            let _ = serving.finish()?;
        }
        for op in ["write", "send", "read"] {
            port += 1;
            let serving = server.serve("rnic-perf", port)?;
            let to = SocketAddr::new(server.ip(), port);
            let line = format!(
                "--connect {to} --op {op} --json --quiet --size 65536 --iterations 50 --verify"
            );
            let _ = client.start("rnic-perf", "client", &line).finish()?;
            drop(serving);
        }
    }
    Ok(())
}
