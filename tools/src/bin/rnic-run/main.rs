//! `rnic-run`: runs a program with an RNIC, by a private loopback daemon if there is no other.

#![forbid(unsafe_code)]
// They panic when nobody reads: see `rnic_tools::out`.
#![warn(clippy::print_stdout, clippy::print_stderr)]

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use rnic_tools::run::{PrivateDaemon, Run, start, supervisor};

/// Runs a program with an RNIC.
///
/// If an RNIC daemon answers ($RNIC_SOCKET, $XDG_RUNTIME_DIR/rnicd.sock, /run/rnicd/rnicd.sock), the program
/// uses it. If none does, a private daemon is started, which connects the program and all that it starts to
/// each other and to nobody else; with --udp also to other hosts. It needs no privilege and no interface, and it ends with
/// the program. That it is private is said on standard error, since programs of another rnic-run do not reach it.
///
/// The exit status is the program's, 128 and the signal's number if a signal ended it, 127 if it was not
/// found, 126 if it could not be run, and 125 if rnic-run itself failed.
#[derive(Debug, Parser)]
#[command(name = env!("CARGO_BIN_NAME"), version = env!("RNIC_VERSION"))]
struct Cli {
    /// Start a private daemon even if another answers.
    #[arg(long)]
    loopback: bool,
    /// Start a private daemon, which reaches other hosts by a UDP port: 9899 of all addresses, unless another is given.
    /// They need `rnic-run --udp` or `rnicd --udp`, too.
    #[arg(
        long,
        value_name = "[ADDRESS][:PORT]",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "",
        conflicts_with = "loopback"
    )]
    udp: Option<String>,
    /// Where this RNIC's libibverbs.so.1 is, for programs of the verbs [default: ../lib/rnic as seen from
    /// rnic-run, or beside it, if the library is there]. It is put in front of LD_LIBRARY_PATH.
    #[arg(long, value_name = "DIRECTORY")]
    verbs_dir: Option<PathBuf>,
    /// The program, and its arguments.
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    command: Vec<OsString>,
}

/// The exit status of `rnic-run`'s own failures, also of wrong arguments.
const EXIT_FAILED: u8 = 125;

fn main() -> ExitCode {
    // What rnic-run starts of itself.
    let mut arguments = std::env::args_os().skip(1);
    let first = arguments.next().unwrap_or_default();
    if first == supervisor::OPTION {
        let rnicd = PathBuf::from(arguments.next().unwrap_or_default());
        return supervisor::supervise(&rnicd, arguments);
    }
    if first == start::OPTION {
        return start::start(arguments.next().unwrap_or_default(), arguments);
    }
    let mut cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(asked) => {
            // Nobody may read it.
            let _ = asked.print();
            return ExitCode::from(match asked.use_stderr() {
                true => EXIT_FAILED,
                false => 0,
            });
        }
    };
    let arguments = cli.command.split_off(1);
    let run = Run {
        program: cli.command.remove(0),
        arguments,
        private: match (cli.loopback, cli.udp) {
            (_, Some(link)) => PrivateDaemon::Udp(link),
            (true, None) => PrivateDaemon::Loopback,
            (false, None) => PrivateDaemon::IfNone,
        },
        verbs: cli.verbs_dir,
    };
    match run.run() {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            rnic_tools::errln!("rnic-run: {error}");
            ExitCode::from(error.exit_status())
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_option_is_in_the_manual() {
        rnic_pages::assert_documented(<super::Cli as clap::CommandFactory>::command(), 1);
    }
}
