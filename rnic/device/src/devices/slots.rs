//! What is to be open, and what is.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use crate::clients::shared_prm::SharedPrm;
use crate::sync::lock;
use crate::{Device, DeviceConfig};

/// Why an interface is not open that will be in a moment.
pub(crate) const BEING_OPENED: &str = "it is being opened";

/// One interface.
#[derive(Clone, Debug)]
pub(crate) struct Slot {
    /// What its device is opened with.
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
    /// Not open; why, and the device whose interface was taken away, until another is opened.
    Waiting(String, Option<Arc<Device>>),
}

impl Slot {
    /// Not open yet.
    pub(crate) fn new(config: DeviceConfig, shard: u8) -> Self {
        Self {
            config,
            shard,
            state: State::Waiting(BEING_OPENED.to_owned(), None),
            was_open: false,
            reopened_for: 0,
            again: None,
        }
    }

    /// It is open as this device.
    pub(crate) fn open(&mut self, device: Arc<Device>) {
        self.state = State::Open(device);
        self.was_open = true;
        self.again = None;
    }

    /// It is not open for this reason. What is new is logged.
    pub(crate) fn wait_for(&mut self, why: &str) {
        let known = matches!(&self.state, State::Waiting(known, _) if known == why);
        if why == BEING_OPENED {
            log::info!("interface {} is being opened again", self.config.interface);
        } else if !known {
            log::warn!("waiting for interface {}: {why}", self.config.interface);
        }
        let device = match std::mem::replace(&mut self.state, State::Waiting(why.to_owned(), None))
        {
            State::Open(device) => Some(device),
            State::Waiting(_, gone) => gone,
        };
        self.state = State::Waiting(why.to_owned(), device);
    }

    /// It is open no more, and will be in a moment.
    pub(crate) fn begin_opening(&mut self) {
        self.wait_for(BEING_OPENED);
    }

    /// Whether it will be open in a moment.
    pub(crate) fn is_being_opened(&self) -> bool {
        matches!(&self.state, State::Waiting(why, _) if why == BEING_OPENED)
    }

    /// The device, if it is open.
    pub(crate) fn device(&self) -> Option<&Arc<Device>> {
        match &self.state {
            State::Open(device) => Some(device),
            State::Waiting(..) => None,
        }
    }

    /// The device, open or not.
    pub(crate) fn any_device(&self) -> Option<&Arc<Device>> {
        match &self.state {
            State::Open(device) => Some(device),
            State::Waiting(_, gone) => gone.as_ref(),
        }
    }

    /// The device whose interface was taken away, which is the caller's to close.
    pub(crate) fn take_gone(&mut self) -> Option<Arc<Device>> {
        match &mut self.state {
            State::Open(_) => None,
            State::Waiting(_, gone) => gone.take(),
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
    /// These.
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

    /// Changes some of them. What clients are told of interfaces changes with them.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut Vec<Slot>) -> T) -> T {
        let mut all = lock(&self.all);
        let result = change(&mut all);
        let mut cores = all
            .iter()
            .filter_map(Slot::device)
            .map(|device| device.core());
        // Whoever has them keeps them until it is closed, and its connections between them.
        if !cores.clone().any(|core| core.has_loopback_addresses())
            && let Some(first) = cores.next()
        {
            first.take_loopback_addresses();
        }
        let state = |slot: &Slot| {
            let why = match &slot.state {
                State::Open(_) => None,
                State::Waiting(why, _) => Some(why.clone()),
            };
            (slot.config.interface.clone(), why)
        };
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

    /// The devices that are open.
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
