//! Ways to a daemon, and to one of its devices.

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use rnic_ipc::control::{DeviceName, Request, Response};
use rnic_ipc::transport::{Channel, DEFAULT_SOCKET};

use crate::context::Context;
use crate::error::Error;
use crate::link::{Link, unexpected};

impl Context {
    /// Through the daemon that listens at `socket`, to its first device.
    pub fn open(socket: impl AsRef<Path>) -> Result<Self, Error> {
        Self::over(daemon(socket.as_ref())?)
    }

    /// Through the daemon that listens at `socket`, to one of its devices: named by its interface, by an
    /// address of it, or by where one wants to connect to.
    ///
    /// # Errors
    /// [`Error::Refused`] when it has none such.
    pub fn open_device(socket: impl AsRef<Path>, device: &DeviceName) -> Result<Self, Error> {
        let link = daemon(socket.as_ref())?;
        match link.request(&Request::OpenDevice(device.clone()), &[])? {
            (Response::Done, _) => Self::over(link),
            (other, _) => Err(unexpected(&other)),
        }
    }

    /// Through the daemon at [`Self::default_socket`], to [`Self::default_device`] or else to its first.
    pub fn open_default() -> Result<Self, Error> {
        match Self::default_device() {
            Some(device) => Self::open_device(Self::default_socket(), &device),
            None => Self::open(Self::default_socket()),
        }
    }

    /// The devices of the daemon that listens at `socket`: the names of their interfaces.
    pub fn devices(socket: impl AsRef<Path>) -> Result<Vec<String>, Error> {
        match daemon(socket.as_ref())?.request(&Request::ListDevices, &[])? {
            (Response::Devices(names), _) => Ok(names),
            (other, _) => Err(unexpected(&other)),
        }
    }

    /// The path in the environment's `RNIC_SOCKET`, or [`DEFAULT_SOCKET`].
    pub fn default_socket() -> PathBuf {
        std::env::var_os("RNIC_SOCKET").map_or_else(|| DEFAULT_SOCKET.into(), PathBuf::from)
    }

    /// The device that the environment's `RNIC_DEVICE` names, by its interface or an address of it.
    pub fn default_device() -> Option<DeviceName> {
        let name = std::env::var("RNIC_DEVICE").ok()?;
        let Ok(name) = name.parse();
        Some(name)
    }
}

fn daemon(socket: &Path) -> Result<Link, Error> {
    Ok(Link::Daemon(Mutex::new(Channel::connect(socket)?)))
}
