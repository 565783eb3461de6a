//! Memory windows of type 2B: STags that a work request binds to part of a region, under a key of the
//! client's choice, for the stream of one queue pair (RFC 5040 section 8.1.1; RFC 5042 section 2.2
//! knows STags of one stream and of a protection domain). An invalidated window can be bound again.
//!
//! A window has no memory of its own: each access finds the region again, so one that was revoked is
//! not reached through its windows either.

use rnic_ipc::control::Access;
use rnic_ipc::id::{PdId, QpNum};
use rnic_proto::{Stag, TaggedOffset};

use super::{AddRegionError, Entry, Memory, StagError, StagTable, State, User};
use crate::region::RegionMemory;

/// What part of which region a window stands for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bound {
    /// The region's index.
    region: u32,
    /// The region that had this index.
    serial: u64,
    /// Where the window begins in it, in octets.
    start: u64,
}

/// What a window is to be bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Binding {
    /// The region.
    pub region: Stag,
    /// Tagged offset of the window's first octet, in the region and in the window.
    pub base: TaggedOffset,
    /// Its length in octets.
    pub len: u64,
    /// What a peer may do.
    pub access: Access,
}

/// Why a window could not be bound: always the local client's fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CannotBind {
    /// No such window of this protection domain.
    #[error("{window} is not a window of this protection domain")]
    NoWindow {
        /// The STag.
        window: Stag,
    },
    /// It is bound: it has to be invalidated first.
    #[error("the window {window} is bound: invalidate it first")]
    Bound {
        /// The STag.
        window: Stag,
    },
    /// The STag that it is to be bound to is not that of a region that may be used here.
    #[error(transparent)]
    Region(#[from] StagError),
    /// Not within the region, or without an octet.
    #[error("{len} octets at {base} are no part of {region}")]
    Range {
        /// The region.
        region: Stag,
        /// The first octet.
        base: TaggedOffset,
        /// Octets.
        len: u64,
    },
    /// The region can't be written locally, so no peer may be allowed to.
    #[error("{region} may not be written locally, and so not by a peer through a window")]
    Rights {
        /// The region.
        region: Stag,
    },
}

impl StagTable {
    /// Adds a window, not bound.
    pub fn add_window(&mut self, stag: Stag, pd: PdId) -> Result<(), AddRegionError> {
        let entry = Entry {
            key: stag.key(),
            pd,
            stream: None,
            access: Access::default(),
            base: TaggedOffset::default(),
            len: 0,
            memory: Memory::Window(None),
            state: State::Invalidated,
        };
        self.insert(stag, entry)
    }

    /// Binds a window; the key of `window` is the one that it gets.
    pub fn bind(&mut self, window: Stag, user: User, to: &Binding) -> Result<(), CannotBind> {
        let entry = self.entries.get(&window.index());
        let entry = entry.filter(|entry| !entry.is_region() && entry.pd == user.pd);
        let entry = entry.ok_or(CannotBind::NoWindow { window })?;
        // One whose region is gone or was invalidated gives nothing, and so is not bound.
        if entry.state == State::Valid && self.memory(entry).is_some() {
            return Err(CannotBind::Bound { window });
        }
        let bound = self.part(user, to)?;
        self.unbind(window.index());
        if let Some(entry) = self.entries.get_mut(&window.index()) {
            entry.key = window.key();
            entry.stream = Some(user.qp);
            entry.access = to.access;
            entry.base = to.base;
            entry.len = to.len;
            entry.memory = Memory::Window(Some(bound));
            entry.state = State::Valid;
            let bound = self.bound.entry(user.qp.0).or_insert(0);
            *bound = bound.saturating_add(1);
        }
        Ok(())
    }

    fn part(&self, user: User, to: &Binding) -> Result<Bound, CannotBind> {
        let &Binding {
            region,
            base,
            len,
            access,
            ..
        } = to;
        let found = self.valid(region, user)?;
        let Memory::Region { serial, .. } = found.memory else {
            return Err(StagError::Invalid { stag: region }.into());
        };
        let outside = CannotBind::Range { region, base, len };
        let start = base.0.checked_sub(found.base.0).ok_or(outside)?;
        let room = found.len.checked_sub(start).ok_or(outside)?;
        if len == 0 || len > room {
            return Err(outside);
        }
        let writes = access.remote_write || access.remote_atomic;
        if writes && !found.access.local_write {
            return Err(CannotBind::Rights { region });
        }
        Ok(Bound {
            region: region.index(),
            serial,
            start,
        })
    }

    /// Where an STag's octets are: the region, and the offset in it of the STag's first octet.
    pub(super) fn memory<'a>(&'a self, entry: &'a Entry) -> Option<(&'a RegionMemory, u64)> {
        match &entry.memory {
            Memory::Region { memory, .. } => Some((memory, 0)),
            Memory::Window(bound) => {
                let bound = bound.as_ref()?;
                let region = self.entries.get(&bound.region)?;
                match &region.memory {
                    Memory::Region { memory, serial }
                        if *serial == bound.serial && region.state == State::Valid =>
                    {
                        Some((memory, bound.start))
                    }
                    _ => None,
                }
            }
        }
    }

    /// A window loses its region and its stream, if it had them.
    pub(super) fn unbind(&mut self, index: u32) {
        let stream = self.entries.get_mut(&index).and_then(Entry::unbind);
        let Some(QpNum(qp)) = stream else {
            return;
        };
        if let Some(bound) = self.bound.get_mut(&qp) {
            *bound = bound.saturating_sub(1);
            if *bound == 0 {
                self.bound.remove(&qp);
            }
        }
    }

    /// A stream has ended: its windows are no longer bound, and the next stream of the same queue
    /// pair has none of them (RFC 5040 section 8.1.1, 2). Looks for them in the whole table, but only
    /// when there are such windows.
    pub fn stream_ended(&mut self, qp: QpNum) {
        let mut left = self.bound.remove(&qp.0).unwrap_or(0);
        for entry in self.entries.values_mut() {
            if left == 0 {
                return;
            }
            if entry.stream == Some(qp) && entry.unbind().is_some() {
                left -= 1;
            }
        }
    }
}

impl Entry {
    /// Takes a window's region and its stream away; gives the stream, if it was bound.
    fn unbind(&mut self) -> Option<QpNum> {
        let Memory::Window(bound) = &mut self.memory else {
            return None;
        };
        bound.take()?;
        self.state = State::Invalidated;
        self.stream.take()
    }
}
