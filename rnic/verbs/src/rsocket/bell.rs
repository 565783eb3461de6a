//! Waking those that wait for an rsocket when it is not its completion queue that does.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};

use rnic::{EventSource, ListenerId, QpNum};
use rustix::event::EventfdFlags;

use super::socket::Socket;
use crate::ffi::Outcome;
use crate::lock;
use crate::session::Part;

/// A descriptor that stays readable from a ring until it is silenced.
#[derive(Debug)]
pub(crate) struct Bell {
    fd: OwnedFd,
    rung: AtomicBool,
    /// There are events to be taken.
    news: AtomicBool,
}

impl Bell {
    pub(crate) fn new() -> Outcome<Self> {
        let flags = EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC;
        Ok(Self {
            fd: rustix::event::eventfd(0, flags)?,
            rung: AtomicBool::new(false),
            news: AtomicBool::new(false),
        })
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    pub(crate) fn ring(&self) {
        if let Err(errno) = rustix::io::write(&self.fd, &1_u64.to_ne_bytes()) {
            log::debug!("an rsocket's waiters can't be woken: {errno}");
        }
        // After the write: a silence in between leaves it rung once more.
        self.rung.store(true, Ordering::SeqCst);
    }

    pub(crate) fn ring_for_news(&self) {
        self.news.store(true, Ordering::SeqCst);
        self.ring();
    }

    pub(crate) fn take_news(&self) -> bool {
        self.news.load(Ordering::Relaxed) && self.news.swap(false, Ordering::SeqCst)
    }

    pub(crate) fn silence(&self) {
        if self.rung.swap(false, Ordering::SeqCst) {
            // It may have been silenced already.
            let _ = rustix::io::read(&self.fd, &mut [0; 8]);
        }
    }
}

/// Who is notified of peers.
type Listening = (Weak<Bell>, Weak<Socket>);

/// The rsockets of a session: whose connection or listener an event is about.
#[derive(Debug, Default)]
pub(crate) struct Watchers {
    connections: Mutex<HashMap<QpNum, Weak<Bell>>>,
    listeners: Mutex<HashMap<ListenerId, Listening>>,
}

impl Watchers {
    pub(crate) fn watch_connection(&self, num: QpNum, bell: &Arc<Bell>) {
        let mut connections = lock(&self.connections);
        connections.retain(|_, bell| bell.strong_count() > 0);
        connections.insert(num, Arc::downgrade(bell));
    }

    /// What came before is not told.
    pub(crate) fn watch_listener(&self, id: ListenerId, bell: &Arc<Bell>, socket: &Weak<Socket>) {
        let mut listeners = lock(&self.listeners);
        listeners.retain(|_, (bell, _)| bell.strong_count() > 0);
        listeners.insert(id, (Arc::downgrade(bell), socket.clone()));
    }

    fn tell_connection(&self, num: QpNum) {
        if let Some(bell) = lock(&self.connections).get(&num).and_then(Weak::upgrade) {
            bell.ring_for_news();
        }
    }

    /// A peer has come. For the session's thread, which holds no rsocket's lock.
    fn tell_listener(&self, id: ListenerId) {
        let watcher = lock(&self.listeners).get(&id).cloned();
        if let Some(socket) = watcher.and_then(|(_, socket)| socket.upgrade()) {
            socket.take_peers();
        }
    }
}

impl Part for Watchers {
    fn tell(&self, source: EventSource) {
        match source {
            EventSource::QueuePair(num) => self.tell_connection(num),
            EventSource::Listener(id) => self.tell_listener(id),
            _ => {}
        }
    }

    fn device_gone(&self) {
        let connections = lock(&self.connections);
        let listeners = lock(&self.listeners);
        let of_listeners = listeners.values().map(|(bell, _)| bell);
        for bell in connections.values().chain(of_listeners) {
            if let Some(bell) = bell.upgrade() {
                bell.ring_for_news();
            }
        }
    }
}
