//! Starting a program with no signal blocked. A child inherits what its parent blocks, and between fork
//! and exec only `unsafe` code runs. So `rnic-run` starts itself, which unblocks the signals (those that came
//! meanwhile are delivered then) and becomes the program.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use super::{RunError, signals};

/// The option by which `rnic-run` becomes the program that follows.
pub const OPTION: &str = "--start";

pub(super) fn command(program: &OsStr) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg0("rnic-run").arg(OPTION).arg(program);
    command
}

/// Becomes the program; returns only if that fails, and has said why.
pub fn start(program: OsString, arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let source = match signals::unblock() {
        Ok(()) => Command::new(&program).args(arguments).exec(),
        Err(source) => source,
    };
    let error = RunError::Program { program, source };
    crate::errln!("rnic-run: {error}");
    ExitCode::from(error.exit_status())
}
