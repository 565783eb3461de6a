//! Opening interfaces while others are open: by the [reopener](super::reopener), which has the privileges.

use std::io;
use std::sync::Arc;
use std::thread::Builder;
use std::time::{Duration, Instant};

use rnic_host::Netlink;
use rnic_host::privileges;
use rnic_ipc::threads;

use super::slots::{Slot, Slots};
use crate::device::core::Core;
use crate::device::drain;
use crate::interface::internal;
use crate::interface::open;
use crate::runtime::driver::Patience;
use crate::{Device, DeviceConfig, DeviceError, refuse};

/// Between two tries to open an interface that is ready, and can't be opened.
pub(super) const RETRY_INTERVAL: Duration = Duration::from_secs(5);

/// Opens interfaces that are no slots yet, all or none; those that are not ready are waited for.
///
/// # Errors
///
/// A line for each that can't be opened.
pub(super) fn open_more(
    slots: &Slots,
    configs: Vec<DeviceConfig>,
) -> Result<Vec<Slot>, Vec<String>> {
    let taken: Vec<u8> = slots.all().iter().map(|slot| slot.shard).collect();
    let free: Vec<u8> = (0..=u8::MAX)
        .filter(|shard| !taken.contains(shard))
        .collect();
    if free.len() < configs.len() {
        // Those that are to go have theirs until the others are open.
        return Err(vec![format!(
            "{} more interfaces asked, but only {} numbers are free for them: reload without those that are to go \
             first",
            configs.len(),
            free.len()
        )]);
    }
    let (mut more, mut faults) = (Vec::new(), Vec::new());
    for (shard, config) in free.into_iter().zip(configs) {
        let mut slot = Slot::new(config.clone(), shard);
        let others = slots.open().into_iter();
        let others: Vec<_> = others
            .chain(more.iter().filter_map(Slot::device).cloned())
            .collect();
        match start(slots, &others, config, shard) {
            Ok(device) => slot.open(device),
            Err(error) if error.is_absence() => slot.wait_for(&error.to_string()),
            Err(error) => faults.push(error.to_string()),
        }
        more.push(slot);
    }
    if faults.is_empty() {
        return Ok(more);
    }
    for slot in &more {
        slot.device().inspect(|device| device.shutdown());
    }
    Err(faults)
}

/// Opens the interface of a slot that is not open.
///
/// # Errors
///
/// Why it can't be opened, which the slot then has too.
pub(super) fn open_again(slots: &Slots, slot: &Slot, netlink: &Netlink) -> Result<(), DeviceError> {
    let ready = open::find(&slot.config, netlink);
    let opened = ready.and_then(|_| {
        let gone = slots.change_one(slot.shard, Slot::take_gone).flatten();
        if let Some(gone) = gone {
            gone.close(&refuse::opened_again(&slot.config.interface));
        }
        start(slots, &slots.open(), slot.next_config(), slot.shard)
    });
    match opened {
        Ok(device) => {
            let wanted = slots.change_one(slot.shard, |slot| {
                slot.open(device.clone());
                slot.config.clone()
            });
            match wanted {
                // A reload may have changed it while it was being opened.
                Some(config) => device.core().apply(&config),
                None => device.shutdown(),
            }
            Ok(())
        }
        Err(error) => {
            slots.change_one(slot.shard, |slot| {
                slot.again = (!error.is_absence()).then(|| Instant::now() + RETRY_INTERVAL);
                slot.wait_for(&error.to_string());
            });
            Err(error)
        }
    }
}

/// [`reopen`], by order.
///
/// # Errors
///
/// Why it can't be opened.
pub(super) fn reopen_now(slots: &Slots, shard: u8, patience: Duration) -> Result<(), DeviceError> {
    let netlink = Netlink::open().map_err(open::host("a netlink socket"))?;
    reopen(slots, shard, &netlink, patience)
}

/// Closes the device of a slot, if it is open, and opens it with what the slot says at present. Connections have
/// `patience` to end in order. An interface that could not be opened is not closed first.
///
/// # Errors
///
/// Why it can't be opened.
pub(super) fn reopen(
    slots: &Slots,
    shard: u8,
    netlink: &Netlink,
    patience: Duration,
) -> Result<(), DeviceError> {
    // It may have been taken away from the configuration meanwhile.
    let Some(slot) = slots.one(shard) else {
        return Ok(());
    };
    open::look_up(&slot.config)?;
    let device = slot.device().cloned();
    slots.change_one(shard, Slot::begin_opening);
    if let Some(device) = device {
        drain([&*device], refuse::opened_again, patience, || false);
    }
    slots
        .one(shard)
        .map_or(Ok(()), |slot| open_again(slots, &slot, netlink))
}

/// Opens a device beside these others.
fn start(
    slots: &Slots,
    others: &[Arc<Device>],
    config: DeviceConfig,
    shard: u8,
) -> Result<Arc<Device>, DeviceError> {
    let started = open::open(config, shard)?.start()?;
    let core = Arc::new(Core::new(started, slots.shared_prm().clone()));
    internal::join(
        &core.served(),
        others.iter().map(|other| other.core().served()),
    );
    let failed = |cause| DeviceError::Host {
        what: "threads of an interface",
        cause,
    };
    // Its threads get what a device needs that is open, and no more.
    let started = std::thread::scope(|scope| {
        let thread = Builder::new().name("rnic-start".to_owned());
        let thread = threads::spawn_scoped(thread, scope, || {
            privileges::keep(privileges::NEEDED).map_err(|errno| failed(errno.into()))?;
            Device::start(core.clone())
        });
        let panicked = || Err(failed(io::Error::other("a thread panicked")));
        thread
            .map_err(failed)?
            .join()
            .unwrap_or_else(|_| panicked())
    });
    if started.is_err() {
        core.shards.stop(Patience::default());
    }
    started
}
