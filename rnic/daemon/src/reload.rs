//! Reading the configuration file again while the daemon runs: by SIGHUP, or `rnicctl reload`.
//!
//! All of it comes to hold, or nothing: what can't change while the daemon runs is a fault like any other,
//! and is logged with its own line.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rnic_device::{ApplyOptions, Devices, bounded};
use rnic_ipc::control::{Refusal, RefusalCode};
use rnic_ipc::inspect::DaemonOrder;

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
        self.lock().own.drain
    }

    /// By a signal: the outcome is logged.
    pub(crate) fn signalled(&self) {
        // Without --reopen no interface is opened again that could fail to.
        if let Err(faults) = self.apply(false) {
            log::error!(
                "the configuration is not reloaded: {} fault(s)",
                faults.len()
            );
            for fault in faults {
                log::error!("{fault}");
            }
        }
    }

    /// By an administrator's order: who gave it is told too.
    pub(crate) fn ordered(&self, order: &DaemonOrder) -> Result<(), Refusal> {
        let done = match order {
            DaemonOrder::Reload { reopen } => match self.apply(*reopen) {
                Ok(failed) if failed.is_empty() => Ok(()),
                Ok(failed) => Err(Refusal {
                    code: RefusalCode::Host,
                    message: format!(
                        "the configuration is reloaded, but interfaces are not open again: {}",
                        failed.join("\n")
                    ),
                }),
                Err(faults) => {
                    log::warn!("the configuration is not reloaded: {}", faults.join("; "));
                    Err(Refusal {
                        code: RefusalCode::WrongState,
                        message: faults.join("\n"),
                    })
                }
            },
            DaemonOrder::Reopen { interface } => self.devices.reopen(interface, self.drain()),
        };
        done.map_err(bounded)
    }

    /// Gives a line for each interface that could not be opened again.
    fn apply(&self, reopen: bool) -> Result<Vec<String>, Vec<String>> {
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
        let faults = settings.needs_restart(&asked);
        if !faults.is_empty() {
            return Err(faults);
        }
        let options = ApplyOptions {
            reopen,
            drain: asked.own.drain,
        };
        let failed = self.devices.apply(&asked.devices, options)?;
        log::set_max_level(asked.own.log);
        open_files::raise(&asked.devices);
        *settings = asked;
        log::info!("{} is reloaded", file.display());
        Ok(failed)
    }

    fn lock(&self) -> MutexGuard<'_, Settings> {
        self.settings.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
