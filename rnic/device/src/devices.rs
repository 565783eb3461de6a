//! Several interfaces that are open as RNICs in one process, each a device with a shard of its own, and
//! one Privileged Resource Manager for all.
//!
//! As with the verbs, a client is of one device, and so is everything it has; a program that uses two is two
//! clients. Limits are of all devices together. Connections from an address of one to an
//! address of another are made within the process: both shards must run, so a program that drives one
//! ([`crate::Runtime::Caller`]) drives the other as well.
//!
//! Devices come and go with their interfaces ([`OnMissing::Wait`]): [`slots`] has what is to be open and
//! what is, [`reopener`] makes them the same, by [`opening`]; a reload is [`apply`].

pub(crate) mod apply;
mod check;
mod opening;
mod reopener;
pub(crate) mod slots;

use std::sync::Arc;
use std::time::{Duration, Instant};

use rnic_host::missing_features;
use rnic_ipc::control::{DeviceName, Refusal, RefusalCode};
use rnic_prm::{Credentials, Prm};

use crate::clients::shared_prm::{InterfaceState, Interfaces, SharedPrm};
use crate::device::core::Core;
use crate::device::drain;
use crate::interface::internal;
use crate::interface::open;
use crate::observe::metrics;
use crate::{Device, DeviceConfig, DeviceError, OnMissing, refuse};
use reopener::Reopener;
use slots::{Slot, Slots};

/// The most interfaces of one process: connection requests' names have so many numbers of shards.
const INTERFACES_MAX: usize = 256;
/// How long a client waits for an interface that is being opened: longer than its old connections take to end.
const OPENING_MAX: Duration = Duration::from_secs(8);
/// Between two checks whether it is open.
const OPENING_INTERVAL: Duration = Duration::from_millis(5);

/// The devices of one process, in a fixed order.
#[derive(Clone, Debug)]
pub struct Devices {
    pub(crate) slots: Arc<Slots>,
    /// None where interfaces are not waited for.
    reopener: Option<Arc<Reopener>>,
}

impl Devices {
    /// Opens interfaces of the calling thread's network namespace, all or none but for those that are waited
    /// for. The limits and administrators of the first hold for all of them together; the others' are not
    /// used.
    ///
    /// For a process that gives up privileges: `opened` is called when all that needs them is open
    /// ([`rnic_host::privileges::NEEDED`] are asked for later), and before any thread is started that
    /// would keep them.
    ///
    /// # Errors
    ///
    /// [`DeviceError`], and those of `opened`.
    pub fn open_then<T, E: From<DeviceError>>(
        mut configs: Vec<DeviceConfig>,
        on_missing: OnMissing,
        opened: impl FnOnce() -> Result<T, E>,
    ) -> Result<(Self, T), E> {
        let first = check_all(&configs)?.clone();
        if let Some(line) = missing_features() {
            log::info!("{line}");
        }
        for config in &mut configs {
            config.limits = first.limits.clone();
            config.administrators = first.administrators;
        }
        let shared_prm = Arc::new(SharedPrm::new(first.limits, first.administrators));
        let mut slots = Vec::new();
        let mut interfaces = Vec::new();
        for (shard, config) in (0..=u8::MAX).zip(configs) {
            let mut slot = Slot::new(config.clone(), shard);
            match open::open(config, shard) {
                Ok(opened) => interfaces.push(opened),
                Err(error) if on_missing == OnMissing::Wait && error.is_absence() => {
                    slot.wait_for(&error.to_string());
                }
                Err(error) => return Err(error.into()),
            }
            slots.push(slot);
        }
        let mut cores = Vec::new();
        for opened in interfaces {
            let core = Arc::new(Core::new(opened.start()?, shared_prm.clone()));
            internal::join(
                &core.served(),
                cores.iter().map(|other: &Arc<Core>| other.served()),
            );
            cores.push(core);
        }
        let reopener = match on_missing {
            OnMissing::Fail => None,
            OnMissing::Wait => {
                Some(Reopener::start().map_err(open::host("a thread that waits for interfaces"))?)
            }
        };
        // The threads of the shards and of captures are there, and have given up all of their own; the reopener
        // what it does not need.
        let opened = opened()?;
        for core in cores {
            let shard = core.interface.number;
            let device = Device::start(core)?;
            if let Some(slot) = slots.iter_mut().find(|slot| slot.shard == shard) {
                slot.open(device);
            }
        }
        let slots = Arc::new(Slots::new(shared_prm, slots));
        if let Some(reopener) = &reopener {
            reopener.begin(slots.clone());
        }
        let reopener = reopener.map(Arc::new);
        Ok((Self { slots, reopener }, opened))
    }

    /// Those that are open.
    pub fn all(&self) -> Vec<Arc<Device>> {
        self.slots.open()
    }

    /// The names of the interfaces that are open, or will be in a moment.
    pub fn interfaces(&self) -> Vec<String> {
        self.slots.shared_prm().open()
    }

    /// The names of all interfaces. One that is waited for has the reason with it, as much of it as a control
    /// message takes.
    pub fn all_interfaces(&self) -> Vec<(String, Option<String>)> {
        self.slots.shared_prm().interfaces_for_clients()
    }

    /// The device that a client means; without a name the first that is open. One that is being opened is
    /// waited for.
    ///
    /// # Errors
    ///
    /// `Host` when its interface is waited for. `UnknownObject`, `AddressNotLocal` or `Unreachable` when there
    /// is none such; the refusal names those there are.
    pub fn find(&self, wanted: Option<&DeviceName>) -> Result<Arc<Device>, Refusal> {
        let deadline = Instant::now() + OPENING_MAX;
        loop {
            // Read once: a device that is opened between two reads would be in neither.
            let slots = self.slots.all();
            let mut open = slots.iter().filter_map(Slot::device);
            let found = match wanted {
                None => open.next(),
                Some(wanted) => open.find(|device| is_meant(device, wanted)),
            };
            if let Some(found) = found {
                return Ok(found.clone());
            }
            let awaited = slots.iter().any(Slot::is_being_opened);
            if !awaited || Instant::now() >= deadline {
                return Err(missing(wanted, &self.slots.shared_prm().interfaces()));
            }
            std::thread::sleep(OPENING_INTERVAL);
        }
    }

    /// How long a client of this user has to wait before its next request, which counts as made.
    pub fn request_waits(&self, credentials: Credentials) -> Duration {
        self.prm(|prm| prm.request_waits(credentials, Instant::now()))
    }

    /// How long this user has to wait before its next client, which counts as made.
    pub fn client_waits(&self, credentials: Credentials) -> Duration {
        self.prm(|prm| prm.client_waits(credentials, Instant::now()))
    }

    /// How many clients there may be at one time: in all, and of this user.
    pub fn clients_max(&self, credentials: Credentials) -> (u32, u32) {
        self.prm(|prm| {
            let limits = prm.limits();
            (limits.clients, limits.users.of(credentials).clients)
        })
    }

    /// That this client is an administrator.
    ///
    /// # Errors
    ///
    /// `NotPermitted`.
    pub fn check_administrator(&self, credentials: &Credentials) -> Result<(), Refusal> {
        self.prm(|prm| prm.check_administrator(credentials))
    }

    /// Whether this client is an administrator.
    pub fn administers(&self, credentials: &Credentials) -> bool {
        self.prm(|prm| prm.administers(credentials))
    }

    fn prm<T>(&self, ask: impl FnOnce(&mut Prm) -> T) -> T {
        ask(&mut self.slots.shared_prm().prm())
    }

    /// Whether the shards of all that are open still answer.
    pub fn are_alive(&self) -> bool {
        self.all().iter().all(|device| device.counters().is_ok())
    }

    /// Everything that the devices measure, in Prometheus's text format 0.0.4.
    ///
    /// # Errors
    ///
    /// `ShuttingDown`.
    pub fn metrics(&self) -> Result<String, Refusal> {
        let all = self.all();
        let cores: Vec<&Core> = all.iter().map(|device| &**device.core()).collect();
        metrics::of(&cores, &self.slots.shared_prm().interfaces())
    }

    /// [`Device::drain`] for all of them in the same time. No interface is waited for any more.
    pub fn drain(&self, patience: Duration, give_up: impl FnMut() -> bool) -> usize {
        self.stop_waiting();
        let all = self.all();
        let devices = all.iter().map(|device| &**device);
        drain(devices, |_| refuse::shutting_down(), patience, give_up)
    }

    /// [`Device::shutdown`] for all of them.
    pub fn shutdown(&self) {
        self.stop_waiting();
        for device in self.slots.with_gone() {
            device.shutdown();
        }
    }

    /// Opens an interface again: with its present MTU and queues, and settings that hold from its opening on. Its
    /// clients are notified, and its connections have `patience` to end in order. One that is not ready stays open
    /// as it is.
    ///
    /// # Errors
    ///
    /// `UnknownObject` when it is none of these devices'; `Host` when it can't be opened, and then it is tried again
    /// by itself; `WrongState` when interfaces are not waited for ([`OnMissing::Fail`]).
    pub fn reopen(&self, interface: &str, patience: Duration) -> Result<(), Refusal> {
        let all = self.slots.all();
        let Some(slot) = all.iter().find(|slot| slot.config.interface == interface) else {
            let wanted = DeviceName::Interface(interface.to_owned());
            return Err(missing(
                Some(&wanted),
                &self.slots.shared_prm().interfaces(),
            ));
        };
        let shard = slot.shard;
        let reopener = self.reopener.as_ref().ok_or_else(|| {
            refuse::refusal(
                RefusalCode::WrongState,
                &format!(
                    "interface {interface} can't be opened again, because the RNIC was started without waiting for \
                     interfaces, and has given up what that needs: start it again"
                ),
            )
        })?;
        let done = reopener.run(move |slots| opening::reopen_now(slots, shard, patience));
        let refused = |error: DeviceError| refuse::refusal(RefusalCode::Host, &error.to_string());
        done.ok_or_else(refuse::shutting_down)?.map_err(refused)
    }

    /// What all devices have in common, as it was when the first was opened: tables stay as large.
    pub(crate) fn with_common(&self, config: DeviceConfig) -> DeviceConfig {
        match self.slots.all().first() {
            None => config,
            Some(slot) => DeviceConfig {
                limits: slot.config.limits.clone(),
                administrators: slot.config.administrators,
                ..config
            },
        }
    }

    /// Opens interfaces beside those there are, without taking them among these.
    pub(crate) fn open_more(&self, configs: Vec<DeviceConfig>) -> Result<Vec<Slot>, Vec<String>> {
        if configs.is_empty() {
            return Ok(Vec::new());
        }
        let fault = |message: &str| vec![message.to_owned()];
        let reopener = self.reopener.as_ref().ok_or_else(|| {
            fault(
                "other interfaces asked, but the RNIC was started without waiting for interfaces, and has given up \
                 what opening them needs: start it again",
            )
        })?;
        let opened = reopener.run(move |slots| opening::open_more(slots, configs));
        opened.ok_or_else(|| fault(&refuse::shutting_down().message))?
    }

    fn stop_waiting(&self) {
        if let Some(reopener) = &self.reopener {
            reopener.stop();
        }
    }
}

/// Why no open device is meant.
fn missing(wanted: Option<&DeviceName>, interfaces: &Interfaces) -> Refusal {
    let all = interfaces.iter();
    let waiting = all.filter_map(|(name, state)| Some((name.as_str(), state.why_not_open()?)));
    let named = match wanted {
        // None is open: the first that is to be.
        None => waiting.clone().next(),
        Some(DeviceName::Interface(wanted)) => waiting.clone().find(|(name, _)| name == wanted),
        Some(_) => None,
    };
    if let Some((name, why)) = named {
        return refuse::waited_for(name, why);
    }
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
    let open = interfaces
        .iter()
        .filter(|(_, state)| *state == InterfaceState::Open);
    let open: Vec<_> = open.map(|(name, _)| name.as_str()).collect();
    let waiting: Vec<_> = waiting.map(|(name, _)| name).collect();
    let known = match open.is_empty() {
        true => "none".to_owned(),
        false => open.join(", "),
    };
    let more = match waiting.is_empty() {
        true => String::new(),
        false => format!(", and waits for {}", waiting.join(", ")),
    };
    let message = format!(
        "{wanted} asked, but this RNIC has only the interfaces {known}{more}: name one of these, or an address \
         of one"
    );
    refuse::refusal(code, &message)
}

fn is_meant(device: &Device, wanted: &DeviceName) -> bool {
    let core = device.core();
    match wanted {
        DeviceName::Interface(name) => device.interface() == name,
        DeviceName::Address(address) => core
            .interface
            .addresses()
            .is_ok_and(|found| found.contains(address)),
        DeviceName::Toward(remote) => core.interface.leads_to(*remote),
    }
}

/// That these can be the configurations of one process; gives the first.
pub(crate) fn check_all(configs: &[DeviceConfig]) -> Result<&DeviceConfig, DeviceError> {
    let bad = |what, asked, advice: &str| DeviceError::BadConfig {
        what,
        asked,
        advice: advice.to_owned(),
    };
    let Some(first) = configs.first() else {
        return Err(bad(
            "a number of interfaces",
            "0".to_owned(),
            "name one at least",
        ));
    };
    if configs.len() > INTERFACES_MAX {
        return Err(bad(
            "a number of interfaces",
            configs.len().to_string(),
            &format!("at most {INTERFACES_MAX} can be opened"),
        ));
    }
    let mut rest = configs;
    while let Some((one, others)) = rest.split_first() {
        if others.iter().any(|other| other.interface == one.interface) {
            let asked = format!("{}, twice,", one.interface);
            return Err(bad("an interface", asked, "name each once"));
        }
        rest = others;
    }
    Ok(first)
}
