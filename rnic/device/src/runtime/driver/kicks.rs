//! The descriptors by which clients kick a sleeping shard, behind one epoll descriptor, so that a
//! sleep costs the same for any number of clients. The shard takes no lock here, and does nothing
//! to a client's descriptor but wait for its edges (see [`rnic_ipc::kick`]).

use std::collections::HashMap;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, MutexGuard};

use rnic_ipc::id::ClientId;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};

use crate::sync::lock;

/// Kicks taken in one go; further ones are found at the next sleep.
const BATCH: usize = 64;

#[derive(Debug)]
pub(crate) struct Kicks {
    epoll: OwnedFd,
    watched: Mutex<HashMap<ClientId, OwnedFd>>,
}

impl Kicks {
    pub(crate) fn new() -> std::io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        Ok(Self {
            epoll,
            watched: Mutex::new(HashMap::new()),
        })
    }

    /// Watches a client's kick from now on.
    pub(crate) fn add(&self, client: ClientId, kick: OwnedFd) -> std::io::Result<()> {
        self.remove(client);
        epoll::add(
            &self.epoll,
            &kick,
            EventData::new_u64(client.0.into()),
            EventFlags::IN | EventFlags::ET,
        )?;
        self.lock().insert(client, kick);
        Ok(())
    }

    /// Forgets a client's kick.
    pub(crate) fn remove(&self, client: ClientId) {
        let Some(kick) = self.lock().remove(&client) else {
            return;
        };
        // Closing alone does not end the watch: the client has the same eventfd.
        if let Err(error) = epoll::delete(&self.epoll, &kick) {
            log::warn!(
                "the eventfd by which client {client} wakes the shard can't be removed from epoll: {error}"
            );
        }
    }

    /// Takes the kicks that came. Never blocks.
    pub(crate) fn take(&self) {
        let mut events = [MaybeUninit::<Event>::uninit(); BATCH];
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // Whose they are does not matter: the shard reads all doorbells. An edge that an error
        // left here wakes the next sleep.
        let _ = epoll::wait(&self.epoll, &mut events, Some(&now));
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ClientId, OwnedFd>> {
        lock(&self.watched)
    }
}

impl AsFd for Kicks {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

#[cfg(test)]
mod tests;
