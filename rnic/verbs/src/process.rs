//! What this process has: devices, and a session for each that is used. A child after fork(2) begins
//! with nothing: a session is of the process that opened it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use rnic::errors::ParseReceiveWaitError;
use rnic::find::variable;
use rnic::{Context, Daemon, DeviceName, ReceiveWait, Transport};
use rustix::io::Errno;

use crate::device::{Device, name_prefix};
use crate::ffi::{Fail, Outcome};
use crate::lock;
use crate::per_process::PerProcess;
use crate::session::Session;

pub(crate) struct Process {
    way: Way,
    device_prefix: String,
    /// By interface. They stay: programs keep pointers to them.
    devices: Mutex<HashMap<String, Arc<Device>>>,
    sessions: Mutex<HashMap<String, Arc<Session>>>,
}

/// How an RNIC is reached.
enum Way {
    /// Through the daemon that the client API finds.
    Daemon,
    /// In this process, on this interface (`RNIC_EMBEDDED`).
    Embedded(String),
}

static CURRENT: PerProcess<Process> = PerProcess::new(Process::begin);

/// An RNIC in this process, which a thread of its own drives.
#[cfg(feature = "embedded")]
fn embedded(interface: &str) -> Outcome<Context> {
    let mut config = rnic::embedded::DeviceConfig::new(interface);
    config.runtime = rnic::embedded::Runtime::Thread;
    let device = rnic::embedded::Device::open(config);
    let device = device.map_err(|error| Fail::of(Errno::NODEV, error.to_string()))?;
    Ok(Context::embedded(&device)?)
}

#[cfg(not(feature = "embedded"))]
fn embedded(interface: &str) -> Outcome<Context> {
    let why = format!(
        "RNIC_EMBEDDED={interface}, but this library was built without the feature `embedded`: unset it, and use a daemon"
    );
    Err(Fail::of(Errno::NODEV, why))
}

impl Process {
    pub(crate) fn current() -> &'static Self {
        CURRENT.get()
    }

    fn begin() -> Self {
        crate::logger::install();
        let embedded = variable("RNIC_EMBEDDED").and_then(|name| name.into_string().ok());
        let way = match embedded {
            Some(interface) if !interface.is_empty() => Way::Embedded(interface),
            _ => Way::Daemon,
        };
        Self {
            way,
            device_prefix: name_prefix(),
            devices: Mutex::default(),
            sessions: Mutex::default(),
        }
    }

    /// What DDP goes over, for programs that know of no choice: `RNIC_TRANSPORT`.
    pub(crate) fn transport() -> Outcome<Transport> {
        let wanted = variable("RNIC_TRANSPORT").unwrap_or_default();
        match wanted.to_str() {
            Some("" | "tcp") => Ok(Transport::Tcp),
            Some("sctp") => Ok(Transport::Sctp),
            _ => Err(Fail::of(
                Errno::INVAL,
                format!("RNIC_TRANSPORT is {wanted:?}; tcp and sctp are known"),
            )),
        }
    }

    /// How long a Send waits for a receive, for programs that know of no such wait: `RNIC_RECEIVE_WAIT`. `None`: as
    /// the interface has it.
    pub(crate) fn receive_wait() -> Outcome<Option<ReceiveWait>> {
        let wanted = variable("RNIC_RECEIVE_WAIT").unwrap_or_default();
        if wanted.is_empty() {
            return Ok(None);
        }
        let wait = wanted.to_string_lossy().parse();
        wait.map(Some).map_err(|error: ParseReceiveWaitError| {
            Fail::of(Errno::INVAL, format!("RNIC_RECEIVE_WAIT: {error}"))
        })
    }

    pub(crate) fn devices(&self) -> Outcome<Vec<Arc<Device>>> {
        let interfaces = match &self.way {
            Way::Embedded(interface) => vec![interface.clone()],
            Way::Daemon => match rnic::find::default_device() {
                None => Daemon::find()?.devices()?,
                Some(DeviceName::Interface(name)) => vec![name],
                Some(other) => vec![interface_of(&other)?],
            },
        };
        let device = |interface: &String| self.device(interface);
        Ok(interfaces.iter().map(device).collect())
    }

    /// The devices that the last look found. Most programs never look themselves.
    fn known_devices(&self) -> Outcome<Vec<Arc<Device>>> {
        let known: Vec<_> = lock(&self.devices).values().cloned().collect();
        match known.is_empty() {
            true => self.devices(),
            false => Ok(known),
        }
    }

    pub(crate) fn device(&self, interface: &str) -> Arc<Device> {
        let mut known = lock(&self.devices);
        let made = || Arc::new(Device::new(&self.device_prefix, interface));
        known
            .entry(interface.to_owned())
            .or_insert_with(made)
            .clone()
    }

    /// The session of a device, opened if there is none that lives.
    pub(crate) fn session(&self, interface: &str) -> Outcome<Arc<Session>> {
        let mut sessions = lock(&self.sessions);
        if let Some(session) = sessions.get(interface)
            && !session.is_gone()
        {
            return Ok(session.clone());
        }
        let context = match &self.way {
            Way::Embedded(interface) => embedded(interface)?,
            Way::Daemon => {
                let device = DeviceName::Interface(interface.to_owned());
                Daemon::find()?.open(Some(&device))?
            }
        };
        let session = Session::begin(context)?;
        sessions.insert(interface.to_owned(), session.clone());
        Ok(session)
    }

    pub(crate) fn sessions(&self) -> Outcome<Vec<Arc<Session>>> {
        let devices = self.known_devices()?;
        let session = |device: &Arc<Device>| self.session(device.interface());
        devices.iter().map(session).collect()
    }

    /// The session of the device that has an address.
    pub(crate) fn session_at(&self, address: std::net::IpAddr) -> Outcome<Arc<Session>> {
        let found = self
            .sessions()?
            .into_iter()
            .find(|session| session.has_address(address));
        found.ok_or_else(|| {
            Fail::of(
                Errno::ADDRNOTAVAIL,
                format!("{address} is an address of no RNIC"),
            )
        })
    }

    /// The session of the device that leads to an address.
    pub(crate) fn session_toward(&self, address: std::net::IpAddr) -> Outcome<Arc<Session>> {
        let devices = self.known_devices()?;
        let interface = match (&self.way, devices.as_slice()) {
            (_, []) => return Err(Fail::of(Errno::NODEV, "there is no RNIC")),
            (_, [only]) => only.interface().to_owned(),
            (Way::Daemon, _) => interface_of(&DeviceName::Toward(address))?,
            (Way::Embedded(interface), _) => interface.clone(),
        };
        self.session(&interface)
    }
}

/// The interface of a device that is named otherwise.
fn interface_of(device: &DeviceName) -> Outcome<String> {
    Ok(Daemon::find()?.open(Some(device))?.device_info()?.interface)
}
