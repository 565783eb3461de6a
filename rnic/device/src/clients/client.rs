//! What the device keeps of a client beside the PRM.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use rnic_ipc::control::{Refusal, RefusalCode};
use rnic_ipc::id::ClientId;
use rnic_ipc::ring::DoorbellConsumer;
use rnic_ipc::shm::{self, ShmError};
use rnic_prm::Credentials;

use crate::capture::LiveCapture;
use crate::clients::events::EventQueue;
use crate::sync::lock;

/// Bytes of a program's name (the kernel's TASK_COMM_LEN, less its end).
const PROGRAM_MAX: usize = 15;

/// Called once when the device evicts a client; with the reason.
pub(crate) type OnRemoval = Box<dyn FnOnce(&str) + Send>;

pub(crate) struct Client {
    pub(crate) id: ClientId,
    pub(crate) credentials: Credentials,
    /// The name of its program when it connected, for people.
    pub(crate) program: String,
    /// Its requests that were refused.
    refused: AtomicU64,
    pub(crate) events: EventQueue,
    /// Held while a request of the client is carried out, so that they come one after the other,
    /// and while its objects are removed.
    state: Mutex<SessionState>,
    /// Why the device evicted it.
    evicted: OnceLock<Refusal>,
    on_removal: Mutex<Option<OnRemoval>>,
}

/// The mapping or the descriptor by which a region's memory is reached.
pub(crate) type MemoryHandle = Arc<dyn std::fmt::Debug + Send + Sync>;

/// The client's state that changes from request to request.
#[derive(Debug, Default)]
pub(crate) struct SessionState {
    pub(crate) has_hello: bool,
    pub(crate) removed: bool,
    /// The memory of its regions, by STag, so that the thread that deregisters releases it and not the shard.
    pub(crate) memory: HashMap<u32, MemoryHandle>,
    /// Rings that it was given by its last request: those of an RNIC's own memory that it maps.
    pub(crate) rings: NewRings,
    pub(crate) capture: Option<LiveCapture>,
}

/// Rings that the client has yet to map. Its next request shows that it has: then they are sealed, so that no holes
/// can be punched into them. Until then no shard reads them.
#[derive(Debug, Default)]
pub(crate) struct NewRings {
    unsealed: Vec<OwnedFd>,
    /// The client's doorbells, for each shard.
    pub(crate) doorbells: Option<Vec<DoorbellConsumer>>,
}

impl NewRings {
    /// Takes a ring's memory to be sealed, and gives the descriptor back for the client.
    pub(crate) fn share(&mut self, memory: OwnedFd) -> std::io::Result<OwnedFd> {
        self.unsealed.push(memory.try_clone()?);
        Ok(memory)
    }

    /// Seals all of them.
    ///
    /// # Errors
    ///
    /// That the client has put a seal on one that keeps others away.
    pub(crate) fn seal(&mut self) -> Result<(), ShmError> {
        self.unsealed.drain(..).try_for_each(shm::forbid_holes)
    }
}

impl Client {
    /// `events_max`: how many events may wait.
    pub(crate) fn new(id: ClientId, credentials: Credentials, events_max: usize) -> Self {
        Self {
            id,
            credentials,
            program: program(credentials.pid),
            refused: AtomicU64::new(0),
            events: EventQueue::new(events_max),
            state: Mutex::new(SessionState::default()),
            evicted: OnceLock::new(),
            on_removal: Mutex::new(None),
        }
    }

    /// A request of it was refused.
    pub(crate) fn count_refusal(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// How many of its requests were refused.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Waits until no other request of the client is carried out.
    pub(crate) fn lock_session(&self) -> MutexGuard<'_, SessionState> {
        lock(&self.state)
    }

    /// Marks the client as evicted; `true` for the first reason.
    pub(crate) fn evict(&self, code: RefusalCode, reason: &str) -> bool {
        self.evicted
            .set(Refusal {
                code,
                message: reason.to_owned(),
            })
            .is_ok()
    }

    /// Why the client was evicted, if it was.
    pub(crate) fn evicted(&self) -> Option<&Refusal> {
        self.evicted.get()
    }

    /// Has `on_removal` called when the client is evicted.
    pub(crate) fn on_removal(&self, on_removal: OnRemoval) {
        *lock(&self.on_removal) = Some(on_removal);
        // An eviction before this line found no function to call.
        self.close_session();
    }

    /// Calls the function of [`Self::on_removal`], if the client was evicted.
    pub(crate) fn close_session(&self) {
        let Some(refusal) = self.evicted() else {
            return;
        };
        let on_removal = lock(&self.on_removal).take();
        if let Some(on_removal) = on_removal {
            on_removal(&refusal.message);
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

/// The name of a process, as the kernel has it: 15 bytes of the program's own choice, without
/// characters that a terminal or a log could take for something else. No right depends on it.
fn program(pid: u32) -> String {
    let name = std::fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    let shown = |byte: &u8| match byte {
        b'!'..=b'~' if !matches!(byte, b'"' | b'\\') => char::from(*byte),
        _ => '?',
    };
    let name = name.strip_suffix(b"\n").unwrap_or(&name);
    name.iter().take(PROGRAM_MAX).map(shown).collect()
}

#[cfg(test)]
mod tests;
