//! Opens interfaces that were not ready, and those that were taken away and are back.
//!
//! A thread of its own, because opening asks of the kernel what the rest of the process gives up
//! ([`privileges::TO_OPEN`]). It takes no words from clients or peers.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use crossbeam::channel::{Receiver, Sender};
use rustix::event::{EventfdFlags, PollFd, PollFlags};

use super::slots::{Slot, Slots};
use crate::core::{Core, lock};
use crate::driver::Patience;
use crate::host::changes::Changes;
use crate::host::interface::Interface;
use crate::host::netlink::Netlink;
use crate::host::privileges;
use crate::{Device, DeviceConfig, DeviceError, open, refuse};

/// Between a change and the look at it: changes come in swarms.
const GATHERING: Duration = Duration::from_millis(100);
/// Between two tries to open an interface that is ready, and can't be opened.
const AGAIN: Duration = Duration::from_secs(5);

/// The thread. Dropping it ends it.
#[derive(Debug)]
pub(super) struct Keeper {
    begin: Sender<Arc<Slots>>,
    stop: Arc<OwnedFd>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Keeper {
    /// Starts the thread, in the calling thread's network namespace and with its privileges. It does nothing
    /// yet.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub(super) fn start() -> io::Result<Self> {
        let changes = Changes::of_interfaces()?;
        let stop = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let stop = Arc::new(stop);
        let (begin, begun) = crossbeam::channel::bounded(1);
        let its = stop.clone();
        let thread = Builder::new().name("rnic-open".to_owned());
        let thread = thread.spawn(move || {
            if let Err(errno) = privileges::keep(privileges::TO_OPEN) {
                log::warn!("the thread rnic-open keeps its capabilities: {errno}");
            }
            run(&begun, &changes, &its);
        })?;
        Ok(Self {
            begin,
            stop,
            thread: Mutex::new(Some(thread)),
        })
    }

    /// Has it keep these from now on.
    pub(super) fn begin(&self, slots: Arc<Slots>) {
        // It ends after whoever may tell it something.
        let _ = self.begin.send(slots);
    }

    /// Ends the thread; what it is about to open is opened first. A second call finds nothing to do.
    pub(super) fn stop(&self) {
        let Some(thread) = lock(&self.thread).take() else {
            return;
        };
        // A full counter stops it as well.
        let _ = rustix::io::write(&*self.stop, &1_u64.to_ne_bytes());
        if thread.join().is_err() {
            log::error!("the thread that opens interfaces panicked");
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        // Without slots the thread waits for nothing else.
        self.begin = crossbeam::channel::bounded(0).0;
        self.stop();
    }
}

fn run(begun: &Receiver<Arc<Slots>>, changes: &Changes, stop: &OwnedFd) {
    let Ok(slots) = begun.recv() else { return };
    loop {
        let again = look(&slots);
        let patience = again.map(|at| at.saturating_duration_since(Instant::now()));
        if stopped(stop, Some(changes), patience) || stopped(stop, None, Some(GATHERING)) {
            return;
        }
        // Whatever it is: the present state is looked at.
        let _ = changes.take(&[]);
    }
}

/// Waits for a change or for so long; whether it is time to end.
fn stopped(stop: &OwnedFd, changes: Option<&Changes>, patience: Option<Duration>) -> bool {
    let mut fds = vec![PollFd::new(stop, PollFlags::IN)];
    fds.extend(changes.map(|changes| PollFd::new(changes, PollFlags::IN)));
    let patience = patience.and_then(|patience| patience.try_into().ok());
    // EINTR: a look that finds nothing does no harm.
    let _ = rustix::event::poll(&mut fds, patience.as_ref());
    !fds[0].revents().is_empty()
}

/// Opens what is ready, and sees what is gone; says when to try again what failed.
fn look(slots: &Slots) -> Option<Instant> {
    let netlink = match Netlink::open() {
        Ok(netlink) => netlink,
        Err(error) => {
            log::warn!("interfaces can't be looked at: {error}");
            return Some(Instant::now() + AGAIN);
        }
    };
    for slot in slots.all() {
        let gone = match slot.device() {
            Some(device) => lose(device.core(), &netlink),
            None => Some(None),
        };
        let Some(gone) = gone else { continue };
        if let Some(why) = gone {
            slots.change_one(slot.shard, |slot| slot.wait_for(&why));
        }
        keep(slots, &slot, &netlink);
    }
    let all = slots.all();
    let waiting = all.iter().filter(|slot| slot.device().is_none());
    waiting.filter_map(|slot| slot.again).min()
}

/// Ends the connections of a device if its interface was taken away; says why it is not open then.
fn lose(core: &Core, netlink: &Netlink) -> Option<Option<String>> {
    core.netlink.as_ref()?;
    let known = core.interface();
    let why = match Interface::find(netlink, &known.name) {
        Ok(found) if found.index != known.index => {
            "it was taken away, and another is there".to_owned()
        }
        Err(error @ DeviceError::UnknownInterface { .. }) => error.to_string(),
        // Down, or the kernel does not tell.
        Ok(_) | Err(_) => return None,
    };
    core.interface_gone();
    Some(Some(why))
}

/// Opens an interface that is not open, if it is ready.
fn keep(slots: &Slots, slot: &Slot, netlink: &Netlink) {
    if slot.again.is_some_and(|at| Instant::now() < at) {
        return;
    }
    let ready = open::find(&slot.config, netlink);
    let opened = ready.and_then(|_| {
        let gone = slots.change_one(slot.shard, Slot::take_gone).flatten();
        if let Some(gone) = gone {
            gone.close(&refuse::opened_again(&slot.config.interface));
        }
        start(slots, slot.next_config(), slot.shard)
    });
    match opened {
        Ok(device) => {
            let unwanted = slots
                .change_one(slot.shard, |slot| slot.open(device.clone()))
                .is_none();
            if unwanted {
                device.shutdown();
            }
        }
        Err(error) => {
            slots.change_one(slot.shard, |slot| {
                slot.again = (!error.is_absence()).then(|| Instant::now() + AGAIN);
                slot.wait_for(&error.to_string());
            });
        }
    }
}

/// Opens a device beside others, with which it is not joined by internal links.
fn start(slots: &Slots, config: DeviceConfig, shard: u8) -> Result<Arc<Device>, DeviceError> {
    let parts = open::open(config, shard)?.start(Vec::new())?;
    let core = Arc::new(Core::new(parts, slots.shared_prm().clone()));
    let failed = |source| DeviceError::Host {
        what: "threads of an interface",
        source,
    };
    // Its threads get what a device needs that is open, and no more.
    let started = std::thread::scope(|scope| {
        let thread = Builder::new().name("rnic-start".to_owned());
        let thread = thread.spawn_scoped(scope, || {
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
        core.driver.stop(Patience::default());
    }
    started
}
