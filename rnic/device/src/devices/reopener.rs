//! Opens interfaces that were not ready, and those that were taken away and are back.
//!
//! A thread of its own, because opening asks of the kernel what the rest of the process gives up
//! ([`privileges::TO_OPEN`]). It takes no input from clients or peers.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use crossbeam::channel::{Receiver, Sender, TryRecvError};
use rnic_host::changes::Changes;
use rnic_host::{HostError, privileges};
use rnic_host::{Interface, Netlink};
use rnic_ipc::threads;
use rustix::event::{EventfdFlags, PollFd, PollFlags};

use super::opening::{self, RETRY_INTERVAL};
use super::slots::{Slot, Slots};
use crate::Device;
use crate::device::core::Core;
use crate::sync::lock;

/// Between a change and the reaction to it: changes come in bursts.
const GATHERING: Duration = Duration::from_millis(100);
/// Work that waits for the thread; beyond it, the thread that has more waits.
const WORK_MAX: usize = 16;

/// The thread. Dropping it ends it.
#[derive(Debug)]
pub(super) struct Reopener {
    inbox: Sender<Message>,
    waker: Arc<OwnedFd>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

enum Message {
    /// Keep these from now on.
    Keep(Arc<Slots>),
    Work(Box<dyn FnOnce(&Slots) + Send>),
    Stop,
}

impl Reopener {
    /// Starts the thread, in the calling thread's network namespace and with its privileges. It does nothing
    /// yet.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub(super) fn start() -> io::Result<Self> {
        let changes = Changes::of_interfaces()?;
        let waker = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let waker = Arc::new(waker);
        let (inbox, messages) = crossbeam::channel::bounded(WORK_MAX);
        let its = waker.clone();
        let thread = Builder::new().name("rnic-open".to_owned());
        let thread = threads::spawn(thread, move || {
            if let Err(errno) = privileges::keep(privileges::TO_OPEN) {
                log::warn!("the thread rnic-open keeps its capabilities: {errno}");
            }
            if let Ok(Message::Keep(slots)) = messages.recv() {
                run(&slots, &messages, &changes, &its);
            }
        })?;
        Ok(Self {
            inbox,
            waker,
            thread: Mutex::new(Some(thread)),
        })
    }

    /// Has it keep these from now on.
    pub(super) fn begin(&self, slots: Arc<Slots>) {
        self.send(Message::Keep(slots));
    }

    /// Has the thread do this, with the privileges that it has, and waits for it. None: it has ended.
    pub(super) fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Slots) -> T + Send + 'static,
    ) -> Option<T> {
        let (reply, done) = crossbeam::channel::bounded(1);
        self.send(Message::Work(Box::new(move |slots| {
            // The thread that asked waits for it.
            let _ = reply.send(work(slots));
        })));
        done.recv().ok()
    }

    /// Ends the thread; what it is about to open is opened first. A second call finds nothing to do.
    pub(super) fn stop(&self) {
        let Some(thread) = lock(&self.thread).take() else {
            return;
        };
        self.send(Message::Stop);
        if thread.join().is_err() {
            log::error!("the thread that opens interfaces panicked");
        }
    }

    fn send(&self, message: Message) {
        // One that has ended does nothing more.
        let _ = self.inbox.send(message);
        // A full counter wakes it as well.
        let _ = rustix::io::write(&*self.waker, &1_u64.to_ne_bytes());
    }
}

impl Drop for Reopener {
    fn drop(&mut self) {
        self.stop();
    }
}

fn run(slots: &Slots, messages: &Receiver<Message>, changes: &Changes, waker: &OwnedFd) {
    loop {
        let again = update(slots);
        loop {
            match messages.try_recv() {
                Ok(Message::Work(work)) => work(slots),
                Ok(Message::Keep(_)) => {}
                Ok(Message::Stop) | Err(TryRecvError::Disconnected) => return,
                Err(TryRecvError::Empty) => break,
            }
        }
        let patience = again.map(|at| at.saturating_duration_since(Instant::now()));
        wait(waker, Some(changes), patience);
        wait(waker, None, Some(GATHERING));
        let mut count = [0; 8];
        // EAGAIN: no message woke it.
        let _ = rustix::io::read(waker, &mut count);
        // What changed does not matter: the present state is read.
        let _ = changes.take(&[]);
    }
}

/// Waits for a message, for a change, or for so long.
fn wait(waker: &OwnedFd, changes: Option<&Changes>, patience: Option<Duration>) {
    let mut fds = vec![PollFd::new(waker, PollFlags::IN)];
    fds.extend(changes.map(|changes| PollFd::new(changes, PollFlags::IN)));
    let patience = patience.and_then(|patience| patience.try_into().ok());
    // EINTR: an update that finds nothing does no harm.
    let _ = rustix::event::poll(&mut fds, patience.as_ref());
}

/// Opens what is ready, and finds what is gone. Returns when to do so again even if nothing changes.
fn update(slots: &Slots) -> Option<Instant> {
    let netlink = match Netlink::open() {
        Ok(netlink) => netlink,
        Err(error) => {
            log::warn!("interfaces can't be looked up: {error}");
            return Some(Instant::now() + RETRY_INTERVAL);
        }
    };
    let again = slots.all().into_iter().map(|slot| {
        let why = match slot.device() {
            None => None,
            Some(device) => match state(device.core(), &netlink) {
                // The kernel does not report channels.
                State::Good => {
                    return device
                        .core()
                        .interface
                        .members
                        .is_some()
                        .then(|| Instant::now() + RETRY_INTERVAL);
                }
                State::Outgrown if device.core().clients.are_none() => {
                    let reopened = opening::reopen(slots, slot.shard, &netlink, Duration::ZERO);
                    return reopened.is_err().then(|| Instant::now() + RETRY_INTERVAL);
                }
                State::Outgrown => return Some(Instant::now() + RETRY_INTERVAL),
                State::Unserved(queues) => {
                    reopen_for(slots, &slot, device, queues, &netlink);
                    return Some(Instant::now() + RETRY_INTERVAL);
                }
                State::Gone(why) => Some(why),
            },
        };
        if let Some(why) = why {
            slots.change_one(slot.shard, |slot| slot.wait_for(&why));
        }
        let waits = slot.again.is_some_and(|at| Instant::now() < at);
        if !waits {
            // The reason is with the slot.
            let _ = opening::open_again(slots, &slot, &netlink);
        }
        slots.one(slot.shard)?.again
    });
    again.flatten().min()
}

/// Opens an interface again that has as many queues which are not served, when no client is there. Once: where that
/// leads to as many, it would do so again.
fn reopen_for(slots: &Slots, slot: &Slot, device: &Device, unserved: u32, netlink: &Netlink) {
    if slot.reopened_for == unserved || !device.core().clients.are_none() {
        return;
    }
    slots.change_one(slot.shard, |slot| slot.reopened_for = unserved);
    if let Err(error) = opening::reopen(slots, slot.shard, netlink, Duration::ZERO) {
        log::warn!(
            "interface {} has {unserved} RX queues that are not served, and can't be opened again for them: {error}",
            slot.config.interface
        );
    }
}

/// How the interface of an open device is now.
enum State {
    Good,
    /// It has so many RX queues that are not served.
    Unserved(u32),
    /// Its MTU was raised above what the device's frames carry.
    Outgrown,
    /// It was taken away, for this reason. The device's connections have ended.
    Gone(String),
}

fn state(core: &Core, netlink: &Netlink) -> State {
    if core.interface.netlink.is_none() {
        return State::Good;
    }
    let known = core.interface.interface();
    let why = match Interface::find(netlink, &known.name) {
        Ok(found) if found.index != known.index => {
            "it was taken away, and another is there".to_owned()
        }
        Err(error)
            if core.interface.is_gone() || matches!(error, HostError::UnknownInterface { .. }) =>
        {
            error.to_string()
        }
        Ok(found) if core.interface.outgrown_by(&found) => return State::Outgrown,
        // Down, or the kernel does not answer.
        Ok(_) | Err(_) => {
            return match core.interface.unserved_queues() {
                0 => State::Good,
                queues => State::Unserved(queues),
            };
        }
    };
    core.served().interface_gone();
    State::Gone(why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_thread_ends_with_its_owner() {
        let reopener = Reopener::start().unwrap();
        let shared_prm = crate::clients::shared_prm::SharedPrm::new(
            crate::Limits::default(),
            crate::Administrators::default(),
        );
        reopener.begin(Arc::new(Slots::new(Arc::new(shared_prm), Vec::new())));
        assert_eq!(reopener.run(|slots| slots.all().len()), Some(0));
        let waker = Arc::downgrade(&reopener.waker);
        drop(reopener);
        assert!(waker.upgrade().is_none(), "the thread has it still");
    }
}
