//! Events on their way to one client: its socket, and a bounded queue behind it.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rnic_ipc::control::Event;
use rnic_ipc::transport::{Channel, TransportError};

/// Events that wait behind a full socket. A client that lets more come together does not read
/// them, and is taken for faulty.
pub(crate) const EVENTS_MAX: usize = 1024;

/// Where a client's events go. Never blocks.
#[derive(Debug, Default)]
pub(crate) struct EventQueue {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    channel: Option<Channel>,
    waiting: VecDeque<Event>,
}

/// The client's events can't be delivered any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Undeliverable {
    /// Too many wait.
    #[error("{EVENTS_MAX} events wait and the client reads none: read the event socket")]
    Overflow,
    /// The client closed its event socket, or broke it.
    #[error("the client closed its event socket")]
    Closed,
}

impl EventQueue {
    /// Gives the queue its socket.
    pub(crate) fn open(&self, channel: Channel) {
        self.lock().channel = Some(channel);
    }

    /// Sends an event, or keeps it for [`EventQueue::flush`].
    pub(crate) fn push(&self, event: Event) -> Result<(), Undeliverable> {
        let mut inner = self.lock();
        inner.flush()?;
        if inner.waiting.len() >= EVENTS_MAX {
            return Err(Undeliverable::Overflow);
        }
        inner.waiting.push_back(event);
        inner.flush()
    }

    /// Sends what waits, as far as the socket takes it.
    pub(crate) fn flush(&self) -> Result<(), Undeliverable> {
        self.lock().flush()
    }

    /// Whether events wait.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.lock().waiting.is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn flush(&mut self) -> Result<(), Undeliverable> {
        let Some(channel) = &self.channel else {
            return Ok(());
        };
        while let Some(event) = self.waiting.front() {
            match channel.try_send(event, &[]) {
                Ok(()) => drop(self.waiting.pop_front()),
                Err(TransportError::WouldBlock) => return Ok(()),
                Err(error) => {
                    log::debug!("an event can't be sent: {error}");
                    return Err(Undeliverable::Closed);
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
