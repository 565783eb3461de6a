//! Which RNIC a tool uses: a daemon's, or one in its own process.

#[cfg(feature = "embedded")]
mod own;

/// Built without an RNIC of its own, a tool has a daemon's only.
#[cfg(not(feature = "embedded"))]
mod own {
    use super::{Context, ToolError};

    #[derive(Clone, Debug, clap::Args)]
    pub(super) struct Own {}

    impl Own {
        pub(super) fn open(&self, _queue_pairs: u32) -> Option<Result<Context, ToolError>> {
            None
        }
    }
}

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use rnic::{Context, Daemon, DeviceName, ListenOptions, Listener};

use crate::address::{self, Listen};
use crate::endpoint::ToolError;
use own::Own;

/// The options that say which daemon, and which of its devices.
#[derive(Clone, Debug, Args)]
pub struct DaemonSource {
    /// The daemon's socket [default: $RNIC_SOCKET, or the first of $XDG_RUNTIME_DIR/rnicd.sock and
    /// /run/rnicd/rnicd.sock that answers].
    #[arg(long, global = true, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Which of the daemon's devices, by its interface or an address of it [default: $RNIC_DEVICE, or
    /// the one that suits the addresses].
    #[arg(long, global = true, value_name = "INTERFACE|ADDRESS")]
    device: Option<DeviceName>,
}

/// The options that say which RNIC.
#[derive(Clone, Debug, Args)]
pub struct RnicSource {
    #[command(flatten)]
    daemon: DaemonSource,
    #[command(flatten)]
    own: Own,
}

/// An interface of a daemon.
#[derive(Debug)]
pub enum Interface {
    /// It is open as this device.
    Open(DeviceName),
    /// The daemon waits for it.
    Waiting {
        /// Its name.
        name: String,
        /// Why it is not open.
        why: String,
    },
}

impl RnicSource {
    /// Listens: at the first of the addresses that is this host's, by the device that has it.
    pub fn listen(
        &self,
        at: &Listen,
        options: ListenOptions,
        queue_pairs: u32,
    ) -> Result<(Context, Listener), ToolError> {
        address::first_usable(at.addresses(), |local| {
            let context = self.open(rnic::address::device_of(local), queue_pairs)?;
            let listener = context.listen(local, options)?;
            Ok((context, listener))
        })
    }

    /// Opens it to connect to a peer: of several devices, of which none is named, the one that leads there.
    pub fn open_toward(&self, peer: SocketAddr, queue_pairs: u32) -> Result<Context, ToolError> {
        self.open(Some(rnic::address::device_toward(peer)), queue_pairs)
    }

    /// An RNIC in this process may have as many queue pairs as that, and as ever if those are fewer.
    fn open(&self, suits: Option<DeviceName>, queue_pairs: u32) -> Result<Context, ToolError> {
        if let Some(context) = self.own.open(queue_pairs) {
            return context;
        }
        let daemon = self.daemon.daemon()?;
        let named = self
            .daemon
            .device
            .clone()
            .or_else(rnic::find::default_device);
        let device = match (named, suits) {
            (Some(named), _) => Some(named),
            // Of an address's scope, that it is not the only device's may not go unnoticed.
            (None, Some(scope @ DeviceName::Interface(_))) => Some(scope),
            (None, suits) if daemon.devices()?.len() > 1 => suits,
            (None, _) => None,
        };
        Ok(daemon.open(device.as_ref())?)
    }
}

impl DaemonSource {
    /// The devices that are meant by no name, or by the one that was given.
    pub fn devices(&self) -> Result<Vec<DeviceName>, ToolError> {
        match &self.device {
            Some(device) => Ok(vec![device.clone()]),
            None => {
                let names = self.daemon()?.devices()?;
                Ok(names.into_iter().map(DeviceName::Interface).collect())
            }
        }
    }

    /// [`Self::devices`], and the interfaces that the daemon waits for with the reason, in the daemon's order.
    pub fn interfaces(&self) -> Result<Vec<Interface>, ToolError> {
        if self.device.is_some() {
            return Ok(self.devices()?.into_iter().map(Interface::Open).collect());
        }
        let state = |(name, why)| match why {
            None => Interface::Open(DeviceName::Interface(name)),
            Some(why) => Interface::Waiting { name, why },
        };
        Ok(self
            .daemon()?
            .interfaces()?
            .into_iter()
            .map(state)
            .collect())
    }

    /// Opens the first device of the daemon.
    pub fn open_any(&self) -> Result<Context, ToolError> {
        Ok(self.daemon()?.open(None)?)
    }

    /// Opens one of [`Self::devices`].
    pub fn open_device(&self, device: &DeviceName) -> Result<Context, ToolError> {
        Ok(self.daemon()?.open(Some(device))?)
    }

    /// The daemon itself.
    ///
    /// # Errors
    ///
    /// When none answers.
    pub fn daemon(&self) -> Result<Daemon, ToolError> {
        Ok(match &self.socket {
            Some(socket) => Daemon::at(socket),
            None => Daemon::find(),
        }?)
    }
}
