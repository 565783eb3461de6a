//! The soft-iWARP daemon: opens interfaces as RNICs and serves local clients over a Unix socket until
//! it is told to end.
//!
//! A start-up that fails prints one line with what was asked, what was found and what to do (of a
//! configuration file a line for each fault), and exits with [`EXIT_FAILED`]. SIGTERM and SIGINT end
//! the daemon in order: the socket file is removed, connections end (what takes too long is reset),
//! clients are notified. A second one makes it quick. SIGHUP has the configuration file read again, if there
//! is one.

#![forbid(unsafe_code)]

mod check;
mod cli;
mod clients;
mod closer;
mod config;
mod journal;
mod log_limit;
mod metrics;
mod names;
mod open_files;
mod reload;
mod serve;
mod service;
mod settings;
mod socket;

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;

use cli::Cli;
use config::ConfigError;
use journal::Reader;
use log_limit::Limited;
use rnic_host::heap::Heap;
use serve::ServeError;
use settings::{Settings, SettingsError};

/// An allocation that fails costs requests, and not the daemon.
#[global_allocator]
static HEAP: Heap = Heap;

/// Exit code of a start-up that failed. Wrong arguments exit with 2.
const EXIT_FAILED: u8 = 1;
/// Exit code of wrong arguments.
const EXIT_USAGE: u8 = 2;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let settings = match Settings::new(&cli) {
        Ok(settings) => settings,
        Err(error) => return unsettled(&error),
    };
    let reader = Reader::of_stderr();
    if cli.check {
        return check(&settings, reader);
    }
    let logger = env_logger::Builder::new()
        // All of it, so that an operator may ask for more at run time: the level is the crate's.
        .filter_level(log::LevelFilter::Trace)
        .format(move |out, record| {
            writeln!(
                out,
                "{}[{} {}] {}",
                reader.priority(record.level()),
                record.level(),
                record.target(),
                record.args()
            )
        })
        .build();
    // Nobody else has set one.
    let _ = log::set_boxed_logger(Box::new(Limited::new(logger)));
    log::set_max_level(settings.own.log);
    let ended = serve::serve(cli, settings);
    log::logger().flush();
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(reader, &error);
            ExitCode::from(EXIT_FAILED)
        }
    }
}

/// Prints what would hold, and a line for each thing that would keep the daemon from starting.
fn check(settings: &Settings, reader: Reader) -> ExitCode {
    // Whoever reads it may have read enough.
    let _ = write!(std::io::stdout(), "{}", check::Effective(settings));
    let faults = check::faults(settings);
    for fault in &faults {
        complain(reader, fault);
    }
    match faults.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(EXIT_FAILED),
    }
}

/// One line, also when the kernel's verifier had more to say.
fn complain(reader: Reader, error: &ServeError) {
    let words: Vec<_> = error
        .to_string()
        .split_whitespace()
        .map(str::to_owned)
        .collect();
    reader.complain(&format!("rnicd: {}", words.join(" ")));
}

fn unsettled(error: &SettingsError) -> ExitCode {
    let reader = Reader::of_stderr();
    match error {
        // Each begins with its file, line and column, as editors want it.
        SettingsError::Config(ConfigError::Faults(_)) => reader.complain(&error.to_string()),
        _ => reader.complain(&format!("rnicd: {error}")),
    }
    ExitCode::from(match error {
        SettingsError::Config(_) => EXIT_FAILED,
        _ => EXIT_USAGE,
    })
}
