//! Ports of TCP and SCTP, taken in the kernel and in steering for as long as the RNIC uses them.
//!
//! A port is taken in the kernel by a socket that is bound and never listens, so that no program
//! of the host gets the same one. A kernel without SCTP has no ports of it. Then steering takes its frames. Both end in the opposite order
//! when all shards that used the port say that nothing of theirs does any more.
//!
//! A shard's word that a port is free may cross with a new use of the port that it has not seen
//! yet. So what a shard did and said carries a [`Stamp`], and a release counts only when no use by that shard
//! came after it.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rnic_ipc::control::{Refusal, RefusalCode, Transport};

use super::reservation::{Reservation, in_use, kernel_has};

/// Ports of our own choice: the dynamic ones (RFC 6335 section 6).
const DYNAMIC: std::ops::RangeInclusive<u16> = 49152..=65535;

/// When a shard did or said something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    pub shard: u8,
    /// Greater is later, of one shard; from 1 on.
    pub count: u64,
}

/// The last count of each shard, 0 of one that has none.
#[derive(Debug, Default)]
struct LastCounts(Vec<u64>);

impl LastCounts {
    fn note(&mut self, stamp: Stamp) {
        let shard = usize::from(stamp.shard);
        if self.0.len() <= shard {
            self.0.resize(shard + 1, 0);
        }
        let last = &mut self.0[shard];
        *last = stamp.count.max(*last);
    }

    fn of(&self, shard: usize) -> u64 {
        self.0.get(shard).copied().unwrap_or(0)
    }
}

/// Takes frames of a local address and port away from the kernel, and gives them back.
pub trait Claims: Send {
    /// Takes them.
    fn claim(&mut self, at: LocalPort) -> Result<(), String>;
    /// Gives them back.
    fn release(&mut self, at: LocalPort);
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LocalPort {
    pub transport: Transport,
    /// The address and port alone.
    pub local: SocketAddr,
}

impl LocalPort {
    /// The port of an address, whatever scope the address has.
    pub fn new(transport: Transport, local: SocketAddr) -> Self {
        let local = SocketAddr::new(local.ip(), local.port());
        Self { transport, local }
    }
}

/// Whom the RNIC shares its ports with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortSpace {
    /// The programs of the host: each port is taken in the kernel.
    Kernel,
    /// Nobody: no frame of another's ever comes to them.
    Own,
}

/// All ports that the RNIC has.
#[derive(Debug)]
pub struct Ports<C> {
    inner: Mutex<Inner<C>>,
}

#[derive(Debug)]
struct Inner<C> {
    claims: C,
    space: PortSpace,
    /// Where the next port of our own choice is looked for first.
    next: u16,
    entries: HashMap<LocalPort, Entry>,
}

#[derive(Debug)]
struct Entry {
    /// None of a port that is in no space but our own.
    _reservation: Option<Reservation>,
    /// Whether a listener has it now, or only connections.
    listener: bool,
    /// Whether it was taken to listen, and not to connect from.
    was_listener: bool,
    /// Uses asked of shards and not answered yet.
    pending: u32,
    /// When each shard last began to use it.
    used: LastCounts,
    /// When each shard last said that nothing of it does.
    released: LastCounts,
}

impl Entry {
    fn is_free(&self) -> bool {
        let mut used = self.used.0.iter().enumerate();
        self.pending == 0 && used.all(|(shard, used)| self.released.of(shard) >= *used)
    }
}

/// A port that shards are about to be asked to use.
#[derive(Debug)]
#[must_use = "say what the shards answered, or the port stays taken"]
pub struct Reserved {
    at: LocalPort,
    listener: bool,
}

impl Reserved {
    /// The address with the port that was taken.
    pub fn local(&self) -> SocketAddr {
        self.at.local
    }
}

impl<C: Claims> Ports<C> {
    /// No port is taken yet.
    pub fn new(claims: C, space: PortSpace) -> Self {
        Self {
            inner: Mutex::new(Inner {
                claims,
                space,
                next: *DYNAMIC.start(),
                entries: HashMap::new(),
            }),
        }
    }

    /// Takes a port to listen on; port 0 takes one of the kernel's choice. A port that an earlier
    /// listener left connections on may be taken again.
    pub fn listen(&self, at: LocalPort, scope: u32) -> Result<Reserved, Refusal> {
        let mut inner = self.lock();
        if let Some(entry) = inner.entries.get_mut(&at) {
            if entry.listener || !entry.was_listener {
                return Err(in_use(
                    at.local,
                    "this RNIC listens there or connects from there already",
                ));
            }
            entry.listener = true;
            entry.pending += 1;
            return Ok(Reserved { at, listener: true });
        }
        inner.take(at, scope, true)
    }

    /// Takes a port to connect from, that nothing else has; port 0 takes one of the kernel's choice.
    pub fn connect(&self, at: LocalPort, scope: u32) -> Result<Reserved, Refusal> {
        let mut inner = self.lock();
        if inner.entries.contains_key(&at) {
            return Err(in_use(
                at.local,
                "this RNIC listens there, or has or had a connection from there",
            ));
        }
        inner.take(at, scope, false)
    }

    /// Whether a port is free at this moment.
    pub fn is_free(&self, at: LocalPort, scope: u32) -> bool {
        let inner = self.lock();
        let is_free = || Reservation::take(at.transport, at.local, scope).is_ok();
        !inner.entries.contains_key(&at) && (inner.space == PortSpace::Own || is_free())
    }

    /// Shards use the port since these stamps of theirs, of which there is one at least.
    pub fn used(&self, reserved: Reserved, stamps: &[Stamp]) {
        self.answered(reserved, stamps);
    }

    /// The use was refused.
    pub fn failed(&self, reserved: Reserved) {
        self.answered(reserved, &[]);
    }

    fn answered(&self, reserved: Reserved, used: &[Stamp]) {
        let mut inner = self.lock();
        if let Some(entry) = inner.entries.get_mut(&reserved.at) {
            entry.pending = entry.pending.saturating_sub(1);
            used.iter().for_each(|stamp| entry.used.note(*stamp));
            if used.is_empty() && reserved.listener {
                entry.listener = false;
            }
        }
        inner.release_if_unused(reserved.at);
    }

    /// A listener is gone; connections may still have the port.
    pub fn unlistened(&self, at: LocalPort) {
        if let Some(entry) = self.lock().entries.get_mut(&at) {
            entry.listener = false;
        }
    }

    /// A shard says that at `stamp` nothing of it used the port.
    pub fn released(&self, at: LocalPort, stamp: Stamp) {
        let mut inner = self.lock();
        if let Some(entry) = inner.entries.get_mut(&at) {
            entry.released.note(stamp);
        }
        inner.release_if_unused(at);
    }

    pub fn with_claims<T>(&self, f: impl FnOnce(&mut C) -> T) -> T {
        f(&mut self.lock().claims)
    }

    /// How many ports are taken.
    pub fn count(&self) -> usize {
        self.lock().entries.len()
    }

    fn lock(&self) -> MutexGuard<'_, Inner<C>> {
        // Every change to an entry is whole before anything that could panic.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<C: Claims> Inner<C> {
    fn take(&mut self, at: LocalPort, scope: u32, listener: bool) -> Result<Reserved, Refusal> {
        let (at, reservation) = match self.space {
            PortSpace::Kernel if kernel_has(at.transport) => {
                let reservation = Reservation::take(at.transport, at.local, scope)?;
                let at = LocalPort::new(at.transport, reservation.local());
                (at, Some(reservation))
            }
            PortSpace::Kernel | PortSpace::Own => (self.named(at)?, None),
        };
        self.claims.claim(at).map_err(|found| Refusal {
            code: RefusalCode::Host,
            message: format!(
                "the frames to {} asked of the steering program, but it refused: {found}",
                at.local
            ),
        })?;
        let entry = Entry {
            _reservation: reservation,
            listener,
            was_listener: listener,
            pending: 1,
            used: LastCounts::default(),
            released: LastCounts::default(),
        };
        self.entries.insert(at, entry);
        Ok(Reserved { at, listener })
    }

    /// The address with a port that nothing of ours has, if it names none.
    fn named(&mut self, at: LocalPort) -> Result<LocalPort, Refusal> {
        let LocalPort { transport, local } = at;
        if local.port() != 0 {
            return Ok(at);
        }
        for _ in DYNAMIC {
            let port = LocalPort::new(transport, SocketAddr::new(local.ip(), self.next));
            self.next = match self.next < *DYNAMIC.end() {
                true => self.next + 1,
                false => *DYNAMIC.start(),
            };
            if !self.entries.contains_key(&port) {
                return Ok(port);
            }
        }
        Err(in_use(local, "this RNIC has no free port there"))
    }

    /// Gives the port back when nothing uses it, or is about to.
    fn release_if_unused(&mut self, at: LocalPort) {
        if self.entries.get(&at).is_some_and(Entry::is_free) {
            self.claims.release(at);
            self.entries.remove(&at);
        }
    }
}

#[cfg(test)]
mod tests;
