//! Which RNIC a tool uses: a daemon's, or one in its own process.

use std::path::PathBuf;

use clap::Args;
use rnic::{Context, Device, DeviceConfig, Driving};

use crate::endpoint::ToolError;

/// The options that say so.
#[derive(Clone, Debug, Args)]
pub struct Door {
    /// The daemon's socket [default: $RNIC_SOCKET, or the daemon's own default].
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Use no daemon: open this interface as an RNIC in this process (needs the daemon's rights).
    #[arg(long, value_name = "INTERFACE", conflicts_with = "socket")]
    embedded: Option<String>,
}

impl Door {
    /// Opens it.
    pub fn open(&self) -> Result<Context, ToolError> {
        Ok(match (&self.socket, &self.embedded) {
            (_, Some(interface)) => {
                let config = DeviceConfig {
                    driving: Driving::Inline,
                    ..DeviceConfig::new(interface)
                };
                Context::embedded(&Device::open(config)?)?
            }
            (Some(socket), None) => Context::open(socket)?,
            (None, None) => Context::open_default()?,
        })
    }
}
