//! Events for one client: its socket, and a bounded queue for what the socket does not take yet.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard};

use rnic_ipc::control::Event;
use rnic_ipc::id::ConnRequestId;
use rnic_ipc::transport::{Channel, TransportError};
use rnic_prm::{Quota, Resource};

use crate::sync::lock;

/// Events that a client's own requests cause and that may wait for a full socket, beside those that peers cause.
const OWN_EVENTS: usize = 1024;

/// Takes a client's events. Never blocks.
#[derive(Debug)]
pub(crate) struct EventQueue {
    most: usize,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    channel: Option<Channel>,
    waiting: VecDeque<Event>,
    /// Of these, those that are bounded.
    counted: usize,
}

/// How many events may wait of a client that may hold so much, beside those of requests. Peers can end each
/// of its connections and fail each of its completion queues once while it reads nothing. All other events
/// result from its own requests. A client that causes more and reads nothing is taken for faulty.
pub(crate) fn events_max(held: &Quota) -> usize {
    let of = |resource| usize::try_from(held.get(resource)).unwrap_or(usize::MAX);
    OWN_EVENTS
        .saturating_add(of(Resource::QueuePairs))
        .saturating_add(of(Resource::CompletionQueues))
}

/// Whether an event is one of those that are bounded here. Peers' requests are bounded by the limit of those that wait
/// for an answer, as is the event that one is gone.
fn is_counted(event: &Event) -> bool {
    !matches!(
        event,
        Event::ConnectRequest { .. } | Event::RequestGone { .. }
    )
}

/// The client's events can't be delivered any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Undeliverable {
    /// Too many wait.
    #[error("{most} events wait and the client reads none: read the event socket")]
    Overflow {
        /// That may wait.
        most: usize,
    },
    /// The client closed its event socket, or broke it.
    #[error("the client closed its event socket")]
    Closed,
}

impl EventQueue {
    /// `most`: events that may wait for a full socket.
    pub(crate) fn new(most: usize) -> Self {
        Self {
            most,
            inner: Mutex::default(),
        }
    }

    /// Gives the queue its socket.
    pub(crate) fn open(&self, channel: Channel) {
        self.lock().channel = Some(channel);
    }

    /// Sends an event, or keeps it for [`EventQueue::flush`]. That a request is gone takes back the event that it
    /// came, if that still waits: else peers that ask and go away would fill the queue.
    pub(crate) fn push(&self, event: Event) -> Result<(), Undeliverable> {
        let mut inner = self.lock();
        inner.flush()?;
        if let Event::RequestGone { request, .. } = &event
            && inner.take_back(*request)
        {
            return Ok(());
        }
        if is_counted(&event) {
            if inner.counted >= self.most {
                return Err(Undeliverable::Overflow { most: self.most });
            }
            inner.counted += 1;
        }
        inner.waiting.push_back(event);
        inner.flush()
    }

    /// Sends what waits, as far as the socket takes it.
    pub(crate) fn flush(&self) -> Result<(), Undeliverable> {
        self.lock().flush()
    }

    pub(crate) fn is_waiting(&self) -> bool {
        !self.lock().waiting.is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        lock(&self.inner)
    }
}

impl Inner {
    /// Removes the event of a request that was not sent yet. Returns whether there was one.
    fn take_back(&mut self, gone: ConnRequestId) -> bool {
        let is_it = |event: &Event| matches!(event, Event::ConnectRequest { request, .. } if *request == gone);
        let found = self.waiting.iter().position(is_it);
        found.and_then(|at| self.waiting.remove(at)).is_some()
    }

    fn flush(&mut self) -> Result<(), Undeliverable> {
        let Some(channel) = &self.channel else {
            return Ok(());
        };
        while let Some(event) = self.waiting.front() {
            match channel.try_send(event, &[]) {
                Ok(()) => {
                    self.counted -= usize::from(is_counted(event));
                    self.waiting.pop_front();
                }
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
