//! Everything that the daemon runs with: what was said, and the defaults of what was not.

use std::path::PathBuf;
use std::time::Duration;

use log::LevelFilter;
use rnic_device::{DeviceConfig, Limits};

use crate::cli::{Cli, Given, Mode};
use crate::config::{self, ConfigError};
use crate::metrics::MetricsAddress;

/// Where clients connect when nothing else was said.
const SOCKET: &str = "/run/rnicd.sock";
/// Who may then.
const SOCKET_MODE: u32 = 0o660;
/// How long connections may take to end in order then.
const DRAIN: Duration = Duration::from_secs(2);

/// Everything that the daemon runs with.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) socket: PathBuf,
    pub(crate) socket_mode: u32,
    /// None: the daemon's own.
    pub(crate) socket_group: Option<u32>,
    /// None: nowhere.
    pub(crate) metrics: Option<MetricsAddress>,
    pub(crate) log: LevelFilter,
    /// How long connections may take to end in order when the daemon is told to end.
    pub(crate) drain: Duration,
    pub(crate) device: DeviceConfig,
}

/// Why the daemon does not know what to do.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SettingsError {
    /// The file.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Nobody named an interface.
    #[error(
        "no interface to open: name one with --interface, or with `interface = \"NAME\"` in the \
         file of --config"
    )]
    NoInterface,
}

impl Settings {
    /// What the command line says, over what its file says.
    pub(crate) fn new(cli: &Cli) -> Result<Self, SettingsError> {
        let mut limits = Limits::default();
        let mut given = cli.given.clone();
        if let Some(path) = &cli.config {
            let file = config::read(path)?;
            given = given.over(file.given);
            limits = file.limits;
        }
        Self::of(given, limits)
    }

    fn of(given: Given, limits: Limits) -> Result<Self, SettingsError> {
        let interface = given.interface.ok_or(SettingsError::NoInterface)?;
        let mut device = DeviceConfig::new(interface);
        device.queues = given.queues;
        device.capture = given.capture;
        device.mode = given.mode.unwrap_or(Mode::Auto).into();
        device.busy_poll = given.busy_poll;
        device.idle_spin = given
            .idle_spin
            .map_or(device.idle_spin, Duration::from_micros);
        device.frames = given.frames.unwrap_or(device.frames);
        device.limits = limits;
        device.administrators.gid = given.admin_group;
        Ok(Self {
            socket: given.socket.unwrap_or_else(|| PathBuf::from(SOCKET)),
            socket_mode: given.socket_mode.unwrap_or(SOCKET_MODE),
            socket_group: given.socket_group,
            metrics: given.metrics,
            log: given.log.unwrap_or(LevelFilter::Info),
            drain: given.drain.map_or(DRAIN, Duration::from_millis),
            device,
        })
    }
}

#[cfg(test)]
mod tests;
