//! What makes futures run again: a thread that waits for descriptors, and lists of wakers.
//!
//! One thread for the process, begun by the first future that has to wait and asleep in
//! epoll_wait(2) ever after. It knows nothing of what it watches: a descriptor that becomes readable
//! wakes all who wait at its [`Watch`], and these look for themselves. Wakers are called and dropped
//! with no lock held: either may run code of the program's.

use std::collections::{BTreeSet, HashMap};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::task::Waker;
use std::thread::Builder;
use std::time::Instant;

use rnic_ipc::kick::Kick;
use rnic_ipc::threads;
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;

use crate::error::Error;
use crate::wait::lock;

/// Descriptors that one look reports.
const BATCH: usize = 64;

/// The token of the reactor's own descriptor.
const OWN: u64 = 0;

/// The thread's side of everything.
#[derive(Debug)]
struct Reactor {
    epoll: OwnedFd,
    kick: Kick,
    watched: Mutex<HashMap<u64, Arc<Wakers>>>,
    /// To be woken although their descriptors said nothing.
    asked: Mutex<BTreeSet<u64>>,
    next: AtomicU64,
    /// To be woken at a time, by the tokens of their timers.
    timers: Mutex<HashMap<u64, (Instant, Waker)>>,
}

impl Reactor {
    /// The process's reactor, begun if there is none.
    fn get() -> Result<Arc<Self>, Error> {
        static REACTOR: Mutex<Option<Arc<Reactor>>> = Mutex::new(None);
        let mut reactor = lock(&REACTOR);
        if let Some(reactor) = &*reactor {
            return Ok(reactor.clone());
        }
        let made = Arc::new(Self::new().map_err(|errno| Error::Io {
            call: "epoll_create1 or eventfd",
            errno,
        })?);
        let running = made.clone();
        let thread = Builder::new().name("rnic-reactor".into());
        threads::spawn(thread, move || running.run()).map_err(|error| Error::Io {
            call: "pthread_create",
            errno: Errno::from_io_error(&error).unwrap_or(Errno::AGAIN),
        })?;
        *reactor = Some(made.clone());
        Ok(made)
    }

    fn new() -> Result<Self, Errno> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let kick = Kick::new()?;
        let edges = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&epoll, &kick, epoll::EventData::new_u64(OWN), edges)?;
        Ok(Self {
            epoll,
            kick,
            watched: Mutex::default(),
            asked: Mutex::default(),
            next: AtomicU64::new(OWN + 1),
            timers: Mutex::default(),
        })
    }

    fn run(&self) {
        let mut events = Vec::with_capacity(BATCH);
        loop {
            events.clear();
            let limit = self.run_timers();
            match epoll::wait(&self.epoll, spare_capacity(&mut events), limit.as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => {
                    log::error!(
                        "the reactor can't wait any more, its futures stand still: {errno}"
                    );
                    return;
                }
            }
            for event in &events {
                match event.data.u64() {
                    OWN => {
                        let asked = std::mem::take(&mut *lock(&self.asked));
                        asked.into_iter().for_each(|token| self.wake(token));
                    }
                    token => self.wake(token),
                }
            }
        }
    }

    /// Wakes those whose time has come, and says how long the next one has.
    fn run_timers(&self) -> Option<Timespec> {
        let now = Instant::now();
        let mut timers = lock(&self.timers);
        let due: Vec<_> = timers.extract_if(|_, (at, _)| *at <= now).collect();
        let next = timers.values().map(|(at, _)| *at).min();
        drop(timers);
        due.into_iter().for_each(|(_, (_, waker))| waker.wake());
        next.and_then(|at| Timespec::try_from(at - now).ok())
    }

    fn wake(&self, token: u64) {
        let wakers = lock(&self.watched).get(&token).cloned();
        if let Some(wakers) = wakers {
            wakers.wake_all_but(None);
        }
    }
}

/// The timer of one future: runs it again at a time. Stopped when it is dropped.
#[derive(Debug)]
pub(crate) struct Timer {
    reactor: Arc<Reactor>,
    token: u64,
}

impl Timer {
    pub(crate) fn new() -> Result<Self, Error> {
        let reactor = Reactor::get()?;
        let token = reactor.next.fetch_add(1, Ordering::Relaxed);
        Ok(Self { reactor, token })
    }

    /// Has this task run at this time, and no earlier one.
    pub(crate) fn wake_at(&self, at: Instant, task: &Waker) {
        let new = (at, task.clone());
        let earlier = lock(&self.reactor.timers).insert(self.token, new);
        drop(earlier);
        self.reactor.kick.kick();
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        let waker = lock(&self.reactor.timers).remove(&self.token);
        drop(waker);
    }
}

/// A descriptor that is watched, and the futures that wait for it.
#[derive(Debug)]
pub(crate) struct Watch {
    reactor: Arc<Reactor>,
    token: u64,
    /// Of its own, so that it is open as long as the reactor knows it.
    fd: OwnedFd,
    wakers: Arc<Wakers>,
}

impl Watch {
    fn new(fd: BorrowedFd<'_>) -> Result<Self, Error> {
        let io = |call| move |errno| Error::Io { call, errno };
        let reactor = Reactor::get()?;
        let fd = rustix::io::fcntl_dupfd_cloexec(fd, 0).map_err(io("fcntl(F_DUPFD_CLOEXEC)"))?;
        let token = reactor.next.fetch_add(1, Ordering::Relaxed);
        let wakers = Arc::<Wakers>::default();
        lock(&reactor.watched).insert(token, wakers.clone());
        let watch = Self {
            reactor,
            token,
            fd,
            wakers,
        };
        let edges = epoll::EventFlags::IN | epoll::EventFlags::ET;
        let data = epoll::EventData::new_u64(token);
        epoll::add(&watch.reactor.epoll, &watch.fd, data, edges).map_err(io("epoll_ctl"))?;
        Ok(watch)
    }

    /// A slot for one future's waker.
    pub(crate) fn slot(&self) -> WakerSlot<'_> {
        WakerSlot {
            wakers: &self.wakers,
            key: self.wakers.next.fetch_add(1, Ordering::Relaxed),
        }
    }

    /// Runs the waiting futures again, whatever the descriptor says.
    pub(crate) fn wake_all(&self) {
        self.wakers.wake_all_but(None);
    }

    /// As [`Self::wake_all`], from the reactor's thread: for callers that hold a lock.
    pub(crate) fn wake_all_soon(&self) {
        if lock(&self.wakers.waiting).is_empty() {
            return;
        }
        lock(&self.reactor.asked).insert(self.token);
        self.reactor.kick.kick();
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // Fails only when it never was added.
        let _ = epoll::delete(&self.reactor.epoll, &self.fd);
        lock(&self.reactor.watched).remove(&self.token);
    }
}

/// A [`Watch`] that is made when the first future needs it.
#[derive(Debug, Default)]
pub(crate) struct LazyWatch {
    watch: OnceLock<Watch>,
    making: Mutex<()>,
}

impl LazyWatch {
    /// The watch of `fd`, which must be the same descriptor each time.
    pub(crate) fn get_or_make(&self, fd: BorrowedFd<'_>) -> Result<&Watch, Error> {
        let _only_one = lock(&self.making);
        match self.watch.get() {
            Some(watch) => Ok(watch),
            None => {
                let made = Watch::new(fd)?;
                Ok(self.watch.get_or_init(|| made))
            }
        }
    }

    /// The watch, if a future ever needed it.
    pub(crate) fn get(&self) -> Option<&Watch> {
        self.watch.get()
    }
}

/// The futures that wait.
#[derive(Debug, Default)]
struct Wakers {
    waiting: Mutex<HashMap<u64, Waker>>,
    next: AtomicU64,
}

impl Wakers {
    fn wake_all_but(&self, spared: Option<u64>) {
        let woken = {
            let mut waiting = lock(&self.waiting);
            let kept = spared.and_then(|key| waiting.remove_entry(&key));
            let woken = std::mem::take(&mut *waiting);
            waiting.extend(kept);
            woken
        };
        woken.into_values().for_each(Waker::wake);
    }
}

/// One future's slot among those who wait; given up when it is dropped.
#[derive(Debug)]
pub(crate) struct WakerSlot<'a> {
    wakers: &'a Wakers,
    key: u64,
}

impl WakerSlot<'_> {
    /// Takes the slot: from now on its future is run again. Look once more afterwards.
    pub(crate) fn take(&self, waker: &Waker) {
        let waker = waker.clone();
        let earlier = lock(&self.wakers.waiting).insert(self.key, waker);
        drop(earlier);
    }

    /// Runs all the others again.
    pub(crate) fn wake_others(&self) {
        self.wakers.wake_all_but(Some(self.key));
    }
}

impl Drop for WakerSlot<'_> {
    fn drop(&mut self) {
        let waker = lock(&self.wakers.waiting).remove(&self.key);
        drop(waker);
    }
}
