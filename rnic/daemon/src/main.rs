//! The soft-iWARP daemon: opens one interface as an RNIC and serves local clients over a Unix
//! socket until it is told to end.
//!
//! A start-up that fails prints one line with what was asked, what was found and what to do, and
//! exits with [`EXIT_FAILED`]. SIGTERM and SIGINT end the daemon in order: clients are told,
//! connections reset, the socket file removed.

#![forbid(unsafe_code)]

mod cli;
mod clients;
mod serve;
mod socket;

use std::process::ExitCode;

use clap::Parser;

use cli::Cli;

/// Exit code of a start-up that failed. Wrong arguments exit with 2.
const EXIT_FAILED: u8 = 1;

fn main() -> ExitCode {
    let cli = Cli::parse();
    env_logger::Builder::new()
        .filter_level(cli.log)
        .format(|out, record| {
            use std::io::Write;
            writeln!(
                out,
                "[{} {}] {}",
                record.level(),
                record.target(),
                record.args()
            )
        })
        .init();
    match serve::serve(&cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // One line, also when the kernel's verifier had more to say.
            let words: Vec<_> = error
                .to_string()
                .split_whitespace()
                .map(str::to_owned)
                .collect();
            eprintln!("rnicd: {}", words.join(" "));
            ExitCode::from(EXIT_FAILED)
        }
    }
}
