//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use log::LevelFilter;
use rnic_device::{DeviceConfig, XdpMode};

/// A software RNIC (iWARP) on one network interface, for local clients.
#[derive(Debug, Parser)]
#[command(version, about)]
pub(crate) struct Cli {
    /// The interface to open, in this network namespace
    #[arg(long, value_name = "NAME")]
    pub(crate) interface: String,

    /// The Unix socket that clients connect to
    #[arg(long, value_name = "PATH", default_value = "/run/rnicd.sock")]
    pub(crate) socket: PathBuf,

    /// Who may connect: the socket file's permissions, octal
    #[arg(long, value_name = "MODE", default_value = "0660", value_parser = octal)]
    pub(crate) socket_mode: u32,

    /// Write every frame of the RNIC to this file
    #[arg(long, value_name = "FILE.pcapng")]
    pub(crate) capture: Option<PathBuf>,

    /// RX queues to serve; must be all that the interface has, which is the default
    #[arg(long, value_name = "N")]
    pub(crate) queues: Option<u32>,

    /// Which kind of XDP to use
    #[arg(long, value_enum, default_value_t = Mode::Auto)]
    pub(crate) mode: Mode,

    /// Packet buffers for the whole interface
    #[arg(long, value_name = "N")]
    pub(crate) frames: Option<u32>,

    /// Microseconds to spin without work before sleeping
    #[arg(long, value_name = "US", default_value_t = 50)]
    pub(crate) idle_spin: u64,

    /// Busy-poll the driver for so many microseconds at each look (drivers with NAPI busy polling)
    #[arg(long, value_name = "US")]
    pub(crate) busy_poll: Option<u32>,

    /// What to log: off, error, warn, info, debug or trace
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    pub(crate) log: LevelFilter,
}

/// Which kind of XDP to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Mode {
    /// Native, or generic when the driver has no native one
    Auto,
    /// The driver's own
    Native,
    /// The kernel's, which every interface has
    Generic,
}

impl Cli {
    /// What the device is to be opened with.
    pub(crate) fn device(&self) -> DeviceConfig {
        let mut config = DeviceConfig::new(&self.interface);
        config.queues = self.queues;
        config.capture = self.capture.clone();
        config.mode = match self.mode {
            Mode::Auto => XdpMode::Auto,
            Mode::Native => XdpMode::Native,
            Mode::Generic => XdpMode::Generic,
        };
        config.busy_poll = self.busy_poll;
        config.idle_spin = Duration::from_micros(self.idle_spin);
        config.frames = self.frames.unwrap_or(config.frames);
        config
    }
}

fn octal(text: &str) -> Result<u32, String> {
    match u32::from_str_radix(text, 8) {
        Ok(mode) if mode <= 0o777 => Ok(mode),
        _ => Err("give permissions in octal, such as 0660".to_owned()),
    }
}

#[cfg(test)]
mod tests;
