//! Reading the configuration file again while the daemon runs: by SIGHUP, or `rnicctl reload`.
//!
//! All of it comes to hold, or nothing: what can't change while the daemon runs is a fault like any other,
//! and is told with a line of its own.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rnic_device::{Devices, bounded};
use rnic_ipc::control::{Refusal, RefusalCode};

use crate::cli::Cli;
use crate::open_files;
use crate::settings::Settings;

/// Reads the file again.
#[derive(Debug)]
pub(crate) struct Reload {
    cli: Cli,
    devices: Devices,
    /// What holds. Locked while something else comes to hold.
    settings: Mutex<Settings>,
}

impl Reload {
    /// Of a daemon that was started so.
    pub(crate) fn new(cli: Cli, settings: Settings, devices: Devices) -> Self {
        Self {
            cli,
            devices,
            settings: Mutex::new(settings),
        }
    }

    /// How long connections may take to end in order when the daemon is told to end.
    pub(crate) fn drain(&self) -> Duration {
        self.lock().drain
    }

    /// By a signal: the outcome is logged.
    pub(crate) fn signalled(&self) {
        if let Err(faults) = self.run() {
            log::error!(
                "the configuration is not reloaded: {} fault(s)",
                faults.len()
            );
            for fault in faults {
                log::error!("{fault}");
            }
        }
    }

    /// By a client's order: the client is told too.
    pub(crate) fn ordered(&self) -> Result<(), Refusal> {
        self.run().map_err(|faults| {
            log::warn!("the configuration is not reloaded: {}", faults.join("; "));
            bounded(Refusal {
                code: RefusalCode::WrongState,
                message: faults.join("\n"),
            })
        })
    }

    fn run(&self) -> Result<(), Vec<String>> {
        let Some(file) = &self.cli.config else {
            return Err(vec![
                "no configuration file to read again: start rnicd with --config FILE".to_owned(),
            ]);
        };
        let mut settings = self.lock();
        let asked = Settings::new(&self.cli).map_err(|error| {
            error
                .to_string()
                .lines()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        })?;
        let faults = settings.fixed(&asked);
        if !faults.is_empty() {
            return Err(faults);
        }
        self.devices.reconfigure(&asked.devices)?;
        log::set_max_level(asked.log);
        if let Some(first) = asked.devices.first() {
            open_files::raise(&first.limits);
        }
        *settings = asked;
        log::info!("{} is reloaded", file.display());
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Settings> {
        self.settings.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
