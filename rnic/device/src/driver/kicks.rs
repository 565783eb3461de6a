//! The sockets on which clients wake a sleeping shard, behind one epoll descriptor, so that a
//! sleep costs the same for any number of clients.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rnic_ipc::id::ClientId;
use rnic_ipc::wake::{Drained, WakeReceiver};
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};

/// Kicks looked at in one go; further ones are found at the next sleep.
const BATCH: usize = 64;

/// The kick sockets of all clients.
#[derive(Debug)]
pub(crate) struct Kicks {
    epoll: OwnedFd,
    receivers: Mutex<HashMap<ClientId, WakeReceiver>>,
}

impl Kicks {
    pub(crate) fn new() -> std::io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        Ok(Self {
            epoll,
            receivers: Mutex::new(HashMap::new()),
        })
    }

    /// Watches a client's socket from now on.
    pub(crate) fn add(&self, client: ClientId, receiver: WakeReceiver) -> std::io::Result<()> {
        epoll::add(
            &self.epoll,
            &receiver,
            EventData::new_u64(client.0.into()),
            EventFlags::IN,
        )?;
        self.lock().insert(client, receiver);
        Ok(())
    }

    /// Forgets a client's socket; closing it takes it out of the epoll set.
    pub(crate) fn remove(&self, client: ClientId) {
        self.lock().remove(&client);
    }

    /// Takes the kicks that wait. Never blocks.
    pub(crate) fn take(&self) {
        let mut events = Vec::with_capacity(BATCH);
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let spare = rustix::buffer::spare_capacity(&mut events);
        if epoll::wait(&self.epoll, spare, Some(&now)).is_err() {
            return;
        }
        let mut receivers = self.lock();
        for event in events {
            let id = event.data.u64();
            let Ok(client) = u32::try_from(id).map(ClientId) else {
                continue;
            };
            let gone = receivers
                .get(&client)
                .is_some_and(|kick| kick.drain() == Drained::Gone);
            if gone {
                // The client hung up: a socket that stays readable would keep the shard awake.
                // What else the client has goes with its session.
                receivers.remove(&client);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ClientId, WakeReceiver>> {
        self.receivers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl AsFd for Kicks {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}
