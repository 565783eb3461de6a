//! What the device keeps of a client beside the PRM's books.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use rnic_ipc::control::{Refusal, RefusalCode};
use rnic_ipc::id::ClientId;
use rnic_ipc::shm::SharedMemory;
use rnic_prm::Credentials;

use crate::events::EventQueue;

/// Called once when the device takes a client away by itself; with the reason.
pub(crate) type HangUp = Box<dyn FnOnce(&str) + Send>;

/// A client of the device.
pub(crate) struct Client {
    pub(crate) id: ClientId,
    pub(crate) credentials: Credentials,
    /// Where its events go.
    pub(crate) events: EventQueue,
    /// Held while a request of the client is carried out, so that they come one after the other,
    /// and while its objects are taken away.
    turn: Mutex<Turn>,
    /// Why the device took it away.
    condemned: OnceLock<Refusal>,
    hang_up: Mutex<Option<HangUp>>,
}

/// The client's state that changes from request to request.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    /// It said Hello.
    pub(crate) greeted: bool,
    /// Its objects are gone.
    pub(crate) gone: bool,
    /// The memory of its regions by STag, so that it is unmapped by the thread that deregisters
    /// and not by the shard.
    pub(crate) memory: HashMap<u32, Arc<SharedMemory>>,
}

impl Client {
    pub(crate) fn new(id: ClientId, credentials: Credentials) -> Self {
        Self {
            id,
            credentials,
            events: EventQueue::default(),
            turn: Mutex::new(Turn::default()),
            condemned: OnceLock::new(),
            hang_up: Mutex::new(None),
        }
    }

    /// Waits for the client's turn.
    pub(crate) fn turn(&self) -> MutexGuard<'_, Turn> {
        lock(&self.turn)
    }

    /// Marks the client as one to take away; `true` for the first reason.
    pub(crate) fn condemn(&self, code: RefusalCode, reason: &str) -> bool {
        self.condemned
            .set(Refusal {
                code,
                message: reason.to_owned(),
            })
            .is_ok()
    }

    /// Why the client was taken away.
    pub(crate) fn condemned(&self) -> Option<&Refusal> {
        self.condemned.get()
    }

    pub(crate) fn on_removal(&self, hang_up: HangUp) {
        *lock(&self.hang_up) = Some(hang_up);
        // Whoever condemned the client before this line found nobody to tell.
        self.hang_up();
    }

    /// Tells who holds the session, if the client was condemned.
    pub(crate) fn hang_up(&self) {
        let Some(refusal) = self.condemned() else {
            return;
        };
        let hang_up = lock(&self.hang_up).take();
        if let Some(hang_up) = hang_up {
            hang_up(&refusal.message);
        }
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client")
            .field("id", &self.id)
            .field("credentials", &self.credentials)
            .finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
