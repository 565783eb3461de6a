//! `rnic-run`: a program with an RNIC. If no daemon answers, it gets a private one that serves loopback
//! only, for as long as the program runs.
//!
//! With a private daemon there are three processes. `rnic-run` waits for the program and passes signals on. Its
//! supervisor ([`supervisor`]), which is `rnic-run` again, starts the private `rnicd`. It ends the daemon when `rnic-run`
//! is gone, however it went.

use std::ffi::OsString;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use rnic::Daemon;
use rnic::find::SOCKET_VARIABLE;
use rnic::find::variable;

pub mod search;
mod signals;
pub mod start;
pub mod supervisor;

use signals::{Arrived, Signals};
use supervisor::Supervisor;

/// The variable that names a device of a daemon: another daemon's devices have other names.
const DEVICE_VARIABLE: &str = "RNIC_DEVICE";

/// The variable in which the dynamic linker looks for libraries first.
const LIBRARY_VARIABLE: &str = "LD_LIBRARY_PATH";

#[derive(Clone, Debug)]
pub struct Run {
    pub program: OsString,
    pub arguments: Vec<OsString>,
    pub private: PrivateDaemon,
    /// Where libibverbs.so.1 of this RNIC is, instead of beside this program.
    pub verbs: Option<PathBuf>,
}

/// When a private daemon is started, and which.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PrivateDaemon {
    /// One of the loopback, if no other daemon answers.
    IfNone,
    /// The same even if another answers.
    Loopback,
    /// One with a UDP port, of this address and port, as `rnicd --udp` has it.
    Udp(String),
}

impl PrivateDaemon {
    /// What rnicd is started with.
    fn arguments(&self) -> Vec<String> {
        match self {
            Self::IfNone | Self::Loopback => vec!["--loopback".to_owned()],
            Self::Udp(link) => vec![format!("--udp={link}")],
        }
    }

    /// Whom the program reaches by it.
    fn reaches(&self) -> &'static str {
        match self {
            Self::IfNone | Self::Loopback => {
                "it connects this program and what it starts, and nobody else, nor another rnic-run's"
            }
            Self::Udp(_) => {
                "it connects this program and what it starts with each other, and with RNICs of other hosts by SCTP in UDP"
            }
        }
    }
}

/// Why a program could not be run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The daemon that the user named does not answer.
    #[error("{0}; or give --loopback for a private daemon")]
    Named(rnic::Error),
    /// There is no rnicd to start.
    #[error("no program rnicd in {}: install it there, or put its directory into PATH", show(.0))]
    NoDaemonProgram(Vec<PathBuf>),
    /// The supervisor has said why.
    #[error("the private RNIC daemon did not start: see above")]
    NotStarted,
    /// The named directory has no verbs library.
    #[error(
        "--verbs-dir names {}, where {} is not: name the directory of this RNIC's verbs libraries",
        path.display(), search::VERBS_LIBRARY
    )]
    NoVerbs { path: PathBuf },
    /// The program can't be started.
    #[error("can't run {}: {source}", program.display())]
    Program {
        program: OsString,
        source: std::io::Error,
    },
    /// The kernel refused something.
    #[error("{what}: {source}")]
    Host {
        what: &'static str,
        source: std::io::Error,
    },
}

fn show(directories: &[PathBuf]) -> String {
    let shown: Vec<_> = directories
        .iter()
        .map(|path| path.display().to_string())
        .collect();
    shown.join(", ")
}

fn host(what: &'static str) -> impl Fn(std::io::Error) -> RunError {
    move |source| RunError::Host { what, source }
}

impl RunError {
    /// The exit status that says whose fault it was, as for env(1) and timeout(1).
    #[must_use]
    pub fn exit_status(&self) -> u8 {
        match self {
            Self::Program { source, .. } if source.kind() == std::io::ErrorKind::NotFound => 127,
            Self::Program { .. } => 126,
            _ => 125,
        }
    }
}

impl Run {
    /// Runs the program; the exit status to end with. Where a daemon answers already the program takes
    /// the place of this process, and the call returns only with an error.
    pub fn run(&self) -> Result<u8, RunError> {
        let own = own_directory()?;
        let daemon = self.daemon()?;
        let mut command = match &daemon {
            Some(_) => Command::new(&self.program),
            None => start::command(&self.program),
        };
        command.args(&self.arguments);
        if let Some(verbs) = search::verbs_directory(&own, self.verbs.as_deref())? {
            let rest = std::env::var_os(LIBRARY_VARIABLE);
            command.env(LIBRARY_VARIABLE, search::in_front(&verbs, rest));
        } else {
            crate::errln!(
                "rnic-run: {} of this RNIC is not in {}: programs of the verbs find the host's, which knows no \
                 RNIC; install rnic-verbs, or name its directory with --verbs-dir",
                search::VERBS_LIBRARY,
                show(&search::verbs_places(&own))
            );
        }
        if let Some(daemon) = daemon {
            command.env(SOCKET_VARIABLE, daemon.socket());
            drop(daemon);
            let source = command.exec();
            return Err(self.not_started(source));
        }
        let rnicd = search::rnicd(&own, std::env::var_os("PATH"))?;
        command.env_remove(DEVICE_VARIABLE);
        self.with_private_daemon(command, &rnicd)
    }

    /// The daemon that answers, if it is to be used.
    fn daemon(&self) -> Result<Option<Daemon>, RunError> {
        if self.private != PrivateDaemon::IfNone {
            return Ok(None);
        }
        match Daemon::find() {
            Ok(daemon) => Ok(Some(daemon)),
            // Who names a daemon wants that one.
            Err(error) if is_named() => Err(RunError::Named(error)),
            Err(_) => Ok(None),
        }
    }

    fn with_private_daemon(&self, mut command: Command, rnicd: &Path) -> Result<u8, RunError> {
        // Before the supervisor starts, so that a signal finds somebody who ends it in order.
        let signals = Signals::block().map_err(host("signalfd"))?;
        let supervisor = Supervisor::start(rnicd, &self.private.arguments())?;
        crate::errln!(
            "rnic-run: a private RNIC daemon, at {}: {}",
            supervisor.socket().display(),
            self.private.reaches()
        );
        command.env(SOCKET_VARIABLE, supervisor.socket());
        if let Some(signal) = signals.ended_early().map_err(host("signalfd"))? {
            return Ok(signal_status(signal));
        }
        let mut child = command.spawn().map_err(|source| self.not_started(source))?;
        let status = loop {
            match signals.next().map_err(host("signalfd"))? {
                Arrived::Child => {
                    if let Some(status) = child.try_wait().map_err(host("waitpid"))? {
                        break status;
                    }
                }
                Arrived::PassOn(signal) => signals::send(&child, signal),
                Arrived::FromTerminal => {}
            }
        };
        supervisor.end();
        Ok(exit_status(status))
    }

    fn not_started(&self, source: std::io::Error) -> RunError {
        RunError::Program {
            program: self.program.clone(),
            source,
        }
    }
}

/// Whether the environment names a daemon's socket.
fn is_named() -> bool {
    variable(SOCKET_VARIABLE).is_some_and(|path| !path.is_empty())
}

fn own_directory() -> Result<PathBuf, RunError> {
    let own = std::env::current_exe().map_err(host("/proc/self/exe"))?;
    let own = own.parent().map(Path::to_path_buf);
    Ok(own.unwrap_or_else(|| PathBuf::from("/")))
}

/// What a shell shows for a program that ended so.
fn exit_status(status: ExitStatus) -> u8 {
    match (status.code(), status.signal()) {
        (Some(code), _) => code as u8,
        (None, Some(signal)) => signal_status(signal),
        // Stopped or continued: nobody waits for that.
        (None, None) => 125,
    }
}

fn signal_status(signal: i32) -> u8 {
    128_u8.saturating_add(u8::try_from(signal).unwrap_or(127))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_programs_exit_status_and_its_signal_are_passed_on_as_a_shell_does() {
        assert_eq!(exit_status(ExitStatus::from_raw(0)), 0);
        assert_eq!(exit_status(ExitStatus::from_raw(7 << 8)), 7);
        assert_eq!(exit_status(ExitStatus::from_raw(255 << 8)), 255);
        assert_eq!(exit_status(ExitStatus::from_raw(9)), 137);
        assert_eq!(exit_status(ExitStatus::from_raw(64)), 192);
    }

    #[test]
    fn the_exit_status_says_whether_the_program_was_missing_or_could_not_run() {
        let failed = |kind: std::io::ErrorKind| {
            let program = "x".into();
            let source = kind.into();
            RunError::Program { program, source }.exit_status()
        };
        assert_eq!(failed(std::io::ErrorKind::NotFound), 127);
        assert_eq!(failed(std::io::ErrorKind::PermissionDenied), 126);
        assert_eq!(RunError::NotStarted.exit_status(), 125);
    }
}
