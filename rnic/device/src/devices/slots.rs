//! What is to be open, and what is.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use crate::clients::shared_prm::{InterfaceState, SharedPrm};
use crate::sync::lock;
use crate::{Device, DeviceConfig};

#[derive(Clone, Debug)]
pub(crate) struct Slot {
    pub(crate) config: DeviceConfig,
    /// The number of its shard. It is no other slot's.
    pub(crate) shard: u8,
    state: State,
    /// It was open: what it captured is not to be written over.
    was_open: bool,
    /// The RX queues that were not served when it was opened again for their sake.
    pub(crate) reopened_for: u32,
    /// When to try again, after what is no matter of an interface that is absent.
    pub(crate) again: Option<Instant>,
}

#[derive(Clone, Debug)]
enum State {
    Open(Arc<Device>),
    /// Not open; the reason, and the device whose interface was taken away, until another is opened.
    NotOpen(NotOpen, Option<Arc<Device>>),
}

/// Why an interface is not open.
#[derive(Clone, Debug, PartialEq, Eq)]
enum NotOpen {
    /// It will be in a moment.
    Opening,
    Waiting(String),
}

impl Slot {
    /// Not open yet.
    pub(crate) fn new(config: DeviceConfig, shard: u8) -> Self {
        Self {
            config,
            shard,
            state: State::NotOpen(NotOpen::Opening, None),
            was_open: false,
            reopened_for: 0,
            again: None,
        }
    }

    pub(crate) fn open(&mut self, device: Arc<Device>) {
        self.state = State::Open(device);
        self.was_open = true;
        self.again = None;
    }

    /// It is not open for this reason. A new one is logged.
    pub(crate) fn wait_for(&mut self, why: &str) {
        let waiting = NotOpen::Waiting(why.to_owned());
        if !matches!(&self.state, State::NotOpen(known, _) if *known == waiting) {
            log::warn!("waiting for interface {}: {why}", self.config.interface);
        }
        self.close(waiting);
    }

    /// It is open no more, and will be in a moment.
    pub(crate) fn begin_opening(&mut self) {
        log::info!("interface {} is being opened again", self.config.interface);
        self.close(NotOpen::Opening);
    }

    fn close(&mut self, why: NotOpen) {
        let device = self.any_device().cloned();
        self.state = State::NotOpen(why, device);
    }

    /// Whether it will be open in a moment.
    pub(crate) fn is_being_opened(&self) -> bool {
        matches!(&self.state, State::NotOpen(NotOpen::Opening, _))
    }

    /// What clients learn of it.
    fn interface_state(&self) -> InterfaceState {
        match &self.state {
            State::Open(_) => InterfaceState::Open,
            State::NotOpen(NotOpen::Opening, _) => InterfaceState::Opening,
            State::NotOpen(NotOpen::Waiting(why), _) => InterfaceState::Waiting(why.clone()),
        }
    }

    /// The device, if it is open.
    pub(crate) fn device(&self) -> Option<&Arc<Device>> {
        match &self.state {
            State::Open(device) => Some(device),
            State::NotOpen(..) => None,
        }
    }

    /// The device, open or not.
    pub(crate) fn any_device(&self) -> Option<&Arc<Device>> {
        match &self.state {
            State::Open(device) => Some(device),
            State::NotOpen(_, gone) => gone.as_ref(),
        }
    }

    /// The device whose interface was taken away, which is the caller's to close.
    pub(crate) fn take_gone(&mut self) -> Option<Arc<Device>> {
        match &mut self.state {
            State::Open(_) => None,
            State::NotOpen(_, gone) => gone.take(),
        }
    }

    /// What its next device is opened with.
    pub(crate) fn next_config(&self) -> DeviceConfig {
        let mut config = self.config.clone();
        if self.was_open
            && let Some(file) = config.capture.take()
        {
            log::warn!(
                "interface {}: the capture {} is not continued",
                config.interface,
                file.display()
            );
        }
        config
    }
}

/// All interfaces, in the order of the configuration.
#[derive(Debug)]
pub(crate) struct Slots {
    shared_prm: Arc<SharedPrm>,
    /// Not to be held while waiting for anything.
    all: Mutex<Vec<Slot>>,
}

impl Slots {
    pub(crate) fn new(shared_prm: Arc<SharedPrm>, all: Vec<Slot>) -> Self {
        let slots = Self {
            shared_prm,
            all: Mutex::new(all),
        };
        slots.change(|_| ());
        slots
    }

    /// What the devices have in common.
    pub(crate) fn shared_prm(&self) -> &Arc<SharedPrm> {
        &self.shared_prm
    }

    /// All of them, as they are at this moment.
    pub(crate) fn all(&self) -> Vec<Slot> {
        lock(&self.all).clone()
    }

    /// The one of this shard, as it is at this moment.
    pub(crate) fn one(&self, shard: u8) -> Option<Slot> {
        self.all().into_iter().find(|slot| slot.shard == shard)
    }

    /// Changes some of them, and what clients learn of interfaces.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut Vec<Slot>) -> T) -> T {
        let mut all = lock(&self.all);
        let result = change(&mut all);
        let mut cores = all
            .iter()
            .filter_map(Slot::device)
            .map(|device| device.core());
        // The device that has them keeps them, and its connections between them, until it is closed.
        if !cores
            .clone()
            .any(|core| core.interface.has_loopback_addresses())
            && let Some(first) = cores.next()
        {
            first.interface.take_loopback_addresses();
        }
        let state = |slot: &Slot| (slot.config.interface.clone(), slot.interface_state());
        let interfaces = all.iter().map(state).collect();
        self.shared_prm.set_interfaces(interfaces);
        result
    }

    /// Changes the one of this shard, if it is still there.
    pub(crate) fn change_one<T>(
        &self,
        shard: u8,
        change: impl FnOnce(&mut Slot) -> T,
    ) -> Option<T> {
        self.change(|all| all.iter_mut().find(|slot| slot.shard == shard).map(change))
    }

    pub(crate) fn open(&self) -> Vec<Arc<Device>> {
        lock(&self.all)
            .iter()
            .filter_map(Slot::device)
            .cloned()
            .collect()
    }

    /// The same, and those whose interfaces were taken away.
    pub(crate) fn with_gone(&self) -> Vec<Arc<Device>> {
        lock(&self.all)
            .iter()
            .filter_map(Slot::any_device)
            .cloned()
            .collect()
    }
}
