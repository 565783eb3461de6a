//! Several interfaces that are open as RNICs in one process, each a device with a shard of its own, and
//! one Privileged Resource Manager for all.
//!
//! As with the verbs, a client is of one device, and so is everything it has; a program that wants to
//! use two is two clients. Limits are of all devices together. Connections from an address of one to an
//! address of another are made within the process: both shards must run, so whoever drives one
//! ([`crate::Driving::Inline`]) drives the other as well.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rnic_ipc::control::{DeviceName, Refusal, RefusalCode};
use rnic_prm::{Credentials, Prm};

use crate::core::Core;
use crate::device::drain;
use crate::shared_prm::SharedPrm;
use crate::{Device, DeviceConfig, DeviceError, internal, metrics, open, refuse};

/// The most interfaces of one process: connection requests' names have so many numbers of shards.
const INTERFACES_MAX: usize = 256;

/// The devices of one process, in a fixed order.
#[derive(Clone, Debug)]
pub struct Devices {
    all: Vec<Arc<Device>>,
}

impl Devices {
    /// Opens interfaces of the calling thread's network namespace, all or none. The limits and
    /// administrators of the first hold for all of them together; the others' are not looked at.
    ///
    /// For a process that gives up privileges: `opened` is called when all that needs them is open
    /// ([`crate::host::privileges::NEEDED`] are asked for later), and before any thread is started that
    /// would keep them.
    ///
    /// # Errors
    ///
    /// [`DeviceError`], and those of `opened`.
    pub fn open_then<T, E: From<DeviceError>>(
        mut configs: Vec<DeviceConfig>,
        opened: impl FnOnce() -> Result<T, E>,
    ) -> Result<(Self, T), E> {
        let names: Vec<_> = configs.iter().map(|it| it.interface.clone()).collect();
        check(&names)?;
        let Some(first) = configs.first().cloned() else {
            return Err(none().into());
        };
        for config in &mut configs {
            config.limits = first.limits.clone();
            config.administrators = first.administrators;
        }
        let shared_prm = SharedPrm::new(first.limits, first.administrators, names);
        let shared_prm = Arc::new(shared_prm);
        let mut interfaces = Vec::new();
        for (shard, config) in (0..=u8::MAX).zip(configs) {
            interfaces.push(open::open(config, shard)?);
        }
        let links = internal::links(&interfaces)?;
        let mut cores = Vec::new();
        for (opened, ports) in interfaces.into_iter().zip(links) {
            let parts = opened.start(ports)?;
            cores.push(Arc::new(Core::new(parts, shared_prm.clone())));
        }
        internal::join(&cores);
        // The threads of the shards and of captures are there, and have given up all of their own.
        let opened = opened()?;
        let mut all = Vec::new();
        for core in cores {
            all.push(Device::start(core)?);
        }
        Ok((Self { all }, opened))
    }

    /// All of them.
    pub fn all(&self) -> &[Arc<Device>] {
        &self.all
    }

    /// The names of their interfaces.
    pub fn interfaces(&self) -> Vec<String> {
        let names = self.all.iter().map(|device| device.interface());
        names.map(str::to_owned).collect()
    }

    /// The device that a client means; without a name the first.
    ///
    /// # Errors
    ///
    /// `UnknownObject`, `AddressNotLocal` or `Unreachable` when there is none such; the refusal names
    /// those there are.
    pub fn find(&self, wanted: Option<&DeviceName>) -> Result<&Arc<Device>, Refusal> {
        let found = match wanted {
            None => self.all.first(),
            Some(wanted) => self.all.iter().find(|device| is_meant(device, wanted)),
        };
        found.ok_or_else(|| {
            let (code, wanted) = match wanted {
                None => (RefusalCode::Host, "a device".to_owned()),
                Some(wanted) => {
                    let code = match wanted {
                        DeviceName::Interface(_) => RefusalCode::UnknownObject,
                        DeviceName::Address(_) => RefusalCode::AddressNotLocal,
                        DeviceName::Toward(_) => RefusalCode::Unreachable,
                    };
                    (code, format!("the device of {wanted}"))
                }
            };
            let known = self.interfaces().join(", ");
            let message = format!(
                "{wanted} asked, but this RNIC has only the interfaces {known}: name one of these, or \
                 an address of one"
            );
            refuse::refusal(code, &message)
        })
    }

    /// How long a client of this user has to wait before its next request, which counts as made.
    pub fn request_waits(&self, credentials: Credentials) -> Duration {
        self.waits(|prm, now| prm.request_waits(credentials, now))
    }

    /// How long this user has to wait before its next client, which counts as made.
    pub fn client_waits(&self, credentials: Credentials) -> Duration {
        self.waits(|prm, now| prm.client_waits(credentials, now))
    }

    fn waits(&self, wait: impl FnOnce(&mut Prm, Instant) -> Duration) -> Duration {
        // The PRM is one for all devices.
        let first = self.all.first();
        first.map_or(Duration::ZERO, |device| {
            wait(&mut device.core().prm(), Instant::now())
        })
    }

    /// How many clients there may be at one time: in all, and of this user.
    pub fn clients_max(&self, credentials: Credentials) -> (u32, u32) {
        let first = self.all.first();
        first.map_or((0, 0), |device| {
            let prm = device.core().prm();
            let limits = prm.limits();
            (limits.clients, limits.users.of(credentials).clients)
        })
    }

    /// Whether this client is an administrator.
    pub fn administers(&self, credentials: &Credentials) -> bool {
        let first = self.all.first();
        first.is_some_and(|device| device.core().prm().administers(credentials))
    }

    /// Whether all shards still answer.
    pub fn are_alive(&self) -> bool {
        self.all.iter().all(|device| device.counters().is_ok())
    }

    /// Everything that the devices measure, in Prometheus's text format 0.0.4.
    ///
    /// # Errors
    ///
    /// `ShuttingDown`.
    pub fn metrics(&self) -> Result<String, Refusal> {
        let cores: Vec<&Core> = self.all.iter().map(|device| &**device.core()).collect();
        metrics::of(&cores)
    }

    /// [`Device::drain`] for all of them in the same time.
    pub fn drain(&self, patience: Duration, give_up: impl FnMut() -> bool) -> usize {
        drain(self.all.iter().map(|device| &**device), patience, give_up)
    }

    /// [`Device::shutdown`] for all of them.
    pub fn shutdown(&self) {
        self.all.iter().for_each(|device| device.shutdown());
    }
}

fn is_meant(device: &Device, wanted: &DeviceName) -> bool {
    let core = device.core();
    match wanted {
        DeviceName::Interface(name) => device.interface() == name,
        DeviceName::Address(address) => core.addresses().is_ok_and(|found| found.contains(address)),
        DeviceName::Toward(remote) => core.leads_to(*remote),
    }
}

fn check(interfaces: &[String]) -> Result<(), DeviceError> {
    if interfaces.len() > INTERFACES_MAX {
        return Err(DeviceError::BadConfig {
            what: "a number of interfaces",
            asked: interfaces.len().to_string(),
            advice: format!("at most {INTERFACES_MAX} can be opened"),
        });
    }
    let mut rest = interfaces;
    while let Some((name, others)) = rest.split_first() {
        if others.contains(name) {
            return Err(DeviceError::BadConfig {
                what: "an interface",
                asked: format!("{name}, twice,"),
                advice: "name each once".to_owned(),
            });
        }
        rest = others;
    }
    Ok(())
}

fn none() -> DeviceError {
    DeviceError::BadConfig {
        what: "a number of interfaces",
        asked: "0".to_owned(),
        advice: "name one at least".to_owned(),
    }
}
