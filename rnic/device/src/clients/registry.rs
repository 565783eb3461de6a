//! The clients of a device: all of them, their events, and how one is evicted.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use crossbeam::channel::{Receiver, Sender};
use log::Level;
use rnic_ipc::control::{Event, RefusalCode};
use rnic_ipc::id::ClientId;

use super::client::Client;
use super::events::Undeliverable;
use crate::sync::lock;

#[derive(Debug, Default)]
pub(crate) struct Clients {
    all: Mutex<HashMap<ClientId, Arc<Client>>>,
    /// To the thread that removes evicted clients, until the device closes.
    evicted: Mutex<Option<Sender<Arc<Client>>>>,
    /// Events of some client wait for its full socket.
    events_wait: AtomicBool,
}

impl Clients {
    pub(crate) fn add(&self, client: Arc<Client>) {
        lock(&self.all).insert(client.id, client);
    }

    pub(crate) fn remove(&self, id: ClientId) {
        lock(&self.all).remove(&id);
    }

    pub(crate) fn all(&self) -> Vec<Arc<Client>> {
        lock(&self.all).values().cloned().collect()
    }

    pub(crate) fn are_none(&self) -> bool {
        lock(&self.all).is_empty()
    }

    pub(crate) fn get(&self, id: ClientId) -> Option<Arc<Client>> {
        lock(&self.all).get(&id).cloned()
    }

    pub(crate) fn has(&self, id: ClientId) -> bool {
        lock(&self.all).contains_key(&id)
    }

    /// Sends an event to a client, or keeps it until its socket has space. A client that takes no events is
    /// evicted.
    pub(crate) fn send(&self, client: &Arc<Client>, event: Event) {
        match client.events.push(event) {
            Ok(()) => {
                if client.events.is_waiting() {
                    self.events_wait.store(true, Ordering::Relaxed);
                }
            }
            Err(error) => self.evict_undeliverable(client, error),
        }
    }

    /// Sends the events that wait for full sockets, if any do. Returns whether some still do.
    #[inline]
    pub(crate) fn flush_events(&self) -> bool {
        // Read before it is written: this is part of each poll, and events hardly ever wait.
        self.events_wait.load(Ordering::Relaxed) && self.flush_waiting_events()
    }

    #[inline(never)]
    fn flush_waiting_events(&self) -> bool {
        if !self.events_wait.swap(false, Ordering::Relaxed) {
            return false;
        }
        let mut waiting = false;
        for client in self.all() {
            match client.events.flush() {
                Ok(()) => waiting |= client.events.is_waiting(),
                Err(error) => self.evict_undeliverable(&client, error),
            }
        }
        self.events_wait.fetch_or(waiting, Ordering::Relaxed);
        waiting
    }

    /// The channel by which evicted clients come, to be removed, from now on.
    pub(crate) fn take_evicted(&self) -> Receiver<Arc<Client>> {
        // A client is evicted once, so that no more wait than there are clients.
        let (sender, evicted) = crossbeam::channel::unbounded();
        *lock(&self.evicted) = Some(sender);
        evicted
    }

    /// The channel of [`Self::take_evicted`] ends after what is in it.
    pub(crate) fn end_evictions(&self) {
        drop(lock(&self.evicted).take());
    }

    /// Evicts a client for a fault of its own: another thread removes it. Never waits, because the caller may be
    /// what the shard waits for.
    pub(crate) fn evict(&self, client: &Arc<Client>, code: RefusalCode, reason: &str) {
        self.evict_at(Level::Warn, client, code, reason);
    }

    fn evict_undeliverable(&self, client: &Arc<Client>, error: Undeliverable) {
        let level = match error {
            Undeliverable::Overflow { .. } => Level::Warn,
            // Nearly always the program has ended: the kernel closes its sockets one after the other, and its
            // connections' ends are sent in between.
            Undeliverable::Closed => Level::Info,
        };
        self.evict_at(level, client, RefusalCode::Malformed, &error.to_string());
    }

    fn evict_at(&self, level: Level, client: &Arc<Client>, code: RefusalCode, reason: &str) {
        if !client.evict(code, reason) {
            return;
        }
        log::log!(
            level,
            "client {} ({}) is removed: {reason}",
            client.id,
            client.credentials
        );
        if let Some(refusal) = client.evicted() {
            // One that reads no events, or has no socket for them, learns it by its next request.
            let _ = client.events.push(Event::SessionEnded(refusal.clone()));
        }
        if let Some(evicted) = lock(&self.evicted).as_ref() {
            // The receiver ends after the last sender.
            let _ = evicted.send(client.clone());
        }
    }
}
