//! Ways to a daemon, and to one of its devices.

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use rnic_ipc::control::{DeviceName, Request, Response};
use rnic_ipc::find;
use rnic_ipc::inspect::DaemonOrder;

use crate::context::Context;
use crate::error::Error;
use crate::link::{Link, unexpected};

impl Context {
    /// Through the daemon that [`Daemon::find`] finds, to [`default_device`] or else to its first device.
    /// [`Daemon`] opens any other.
    ///
    /// # Errors
    /// Those of [`Daemon::find`] and [`Daemon::open`].
    pub fn open() -> Result<Self, Error> {
        Daemon::find()?.open(default_device().as_ref())
    }

    /// Through a device in this process. With [`Runtime::Caller`](crate::embedded::Runtime::Caller) the engine runs in
    /// the calls of this crate, and only there: a program that makes none for long lets its peers time out.
    ///
    /// # Errors
    /// [`Error::Refused`]: the device is shut down, or allows no more clients.
    #[cfg(feature = "embedded")]
    pub fn embedded(device: &std::sync::Arc<rnic_device::Device>) -> Result<Self, Error> {
        let credentials = rnic_device::Credentials {
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            pid: std::process::id(),
            // The device is this process's own.
            superuser: rustix::process::geteuid().is_root(),
        };
        Self::over(Link::Embedded(device.connect_client(credentials)?))
    }
}

/// The device that the environment's `RNIC_DEVICE` names, by its interface or an address of it.
pub fn default_device() -> Option<DeviceName> {
    let name = find::variable("RNIC_DEVICE")?.into_string().ok()?;
    let Ok(name) = name.parse();
    Some(name)
}

/// A daemon that answers, of which no device is open yet.
#[derive(Debug)]
pub struct Daemon {
    link: Link,
    socket: PathBuf,
}

impl Daemon {
    /// The daemon at the path in the environment's `RNIC_SOCKET`, and no other. Without that it is the first that answers
    /// of the user's own, at `$XDG_RUNTIME_DIR/rnicd.sock`, and the host's, at
    /// [`DEFAULT_SOCKET`](crate::find::DEFAULT_SOCKET).
    ///
    /// # Errors
    /// [`Error::NoDaemon`] and [`Error::NotPermitted`], with each place that was tried and why it failed.
    pub fn find() -> Result<Self, Error> {
        Self::find_at(None)
    }

    /// The daemon that listens at `socket`.
    ///
    /// # Errors
    /// As for [`Self::find`].
    pub fn at(socket: impl AsRef<Path>) -> Result<Self, Error> {
        Self::find_at(Some(socket.as_ref()))
    }

    fn find_at(socket: Option<&Path>) -> Result<Self, Error> {
        let (channel, socket) = find::connect(find::places(socket))?;
        let link = Link::Daemon(Mutex::new(channel));
        Ok(Self { link, socket })
    }

    /// The socket's path.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Its devices: the names of their interfaces.
    pub fn devices(&self) -> Result<Vec<String>, Error> {
        match self.link.request(&Request::ListDevices, &[])? {
            (Response::Devices(names), _) => Ok(names),
            (other, _) => Err(unexpected(&other)),
        }
    }

    /// All its interfaces, those among them that it is to open and waits for: these with the reason.
    pub fn interfaces(&self) -> Result<Vec<(String, Option<String>)>, Error> {
        match self.link.request(&Request::ListInterfaces, &[])? {
            (Response::Interfaces(interfaces), _) => Ok(interfaces),
            (other, _) => Err(unexpected(&other)),
        }
    }

    /// Orders something about the daemon itself, and waits until it is done. For administrators.
    ///
    /// # Errors
    /// [`Error::Refused`], with a line for each fault.
    pub fn order(&self, order: DaemonOrder) -> Result<(), Error> {
        match self.link.request(&Request::Administer(order), &[])? {
            (Response::Done, _) => Ok(()),
            (other, _) => Err(unexpected(&other)),
        }
    }

    /// Opens one of its devices, named by its interface, by an address of it, or by where one wants to connect to; or the
    /// first.
    ///
    /// # Errors
    /// [`Error::Refused`] when it has none such.
    pub fn open(self, device: Option<&DeviceName>) -> Result<Context, Error> {
        if let Some(device) = device {
            match self
                .link
                .request(&Request::OpenDevice(device.clone()), &[])?
            {
                (Response::Done, _) => {}
                (other, _) => return Err(unexpected(&other)),
            }
        }
        Context::over(self.link)
    }
}
