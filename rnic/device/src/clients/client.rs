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

/// Called once when the device takes a client away by itself; with the reason.
pub(crate) type HangUp = Box<dyn FnOnce(&str) + Send>;

/// A client of the device.
pub(crate) struct Client {
    pub(crate) id: ClientId,
    pub(crate) credentials: Credentials,
    /// The name of its program when it connected, for people.
    pub(crate) program: String,
    /// Its requests that were refused.
    refused: AtomicU64,
    /// Where its events go.
    pub(crate) events: EventQueue,
    /// Held while a request of the client is carried out, so that they come one after the other,
    /// and while its objects are taken away.
    turn: Mutex<Turn>,
    /// Why the device took it away.
    condemned: OnceLock<Refusal>,
    hang_up: Mutex<Option<HangUp>>,
}

/// A mapping or a descriptor, kept.
pub(crate) type Held = Arc<dyn std::fmt::Debug + Send + Sync>;

/// The client's state that changes from request to request.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    /// It said Hello.
    pub(crate) greeted: bool,
    /// Its objects are gone.
    pub(crate) gone: bool,
    /// What the memory of its regions is reached by, by STag, so that it is let go by the thread that
    /// deregisters and not by the shard.
    pub(crate) memory: HashMap<u32, Held>,
    /// Rings that it was given by its last request: those of an RNIC's own memory that it maps.
    pub(crate) rings: NewRings,
    /// The capture that it asked for.
    pub(crate) capture: Option<LiveCapture>,
}

/// Rings that the client has yet to map. Then they are sealed, so that nobody can punch holes into
/// them: the client's next request says that it has. Until then no shard looks into them.
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
            turn: Mutex::new(Turn::default()),
            condemned: OnceLock::new(),
            hang_up: Mutex::new(None),
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

/// The name of a process, as the kernel has it: 15 bytes of the program's own choice, of which
/// nothing is left that a terminal or a log could take for something else. It says nothing that
/// rights could depend on.
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
