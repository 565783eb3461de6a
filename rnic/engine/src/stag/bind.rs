//! STags that work of a queue pair makes valid: memory windows of type 1 and 2B, and fast registration. RFC
//! 5042 section 2.2 knows STags of one stream and of a protection domain. The client chooses the key, but it
//! must differ from the last valid one.
//!
//! Windows and fast regions have no memory of their own: each access looks up the region again, so a revoked
//! region is not reachable through them either.

use std::cell::Cell;

use rnic_ipc::control::{Access, StagKind};
use rnic_ipc::id::{PdId, QpNum};
use rnic_proto::{Stag, TaggedOffset};

use super::word::{Part, Rights};
use super::{
    AddRegionError, Content, Entry, Look, Memory, StagError, StagTable, State, User, View,
};
use crate::region::RegionMemory;

/// What part of which region a window or a fast region stands for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bound {
    pub(super) region: u32,
    /// The registration that the region had.
    pub(super) serial: u64,
    /// Where the part begins in the region's memory, in bytes.
    pub(super) start: u64,
}

/// What an STag is to be bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Binding {
    pub region: Stag,
    /// Tagged offset of the first byte, in the region and in the STag.
    pub base: TaggedOffset,
    /// Length in bytes.
    pub len: u64,
    /// What a peer may do, and for a fast region what local work may.
    pub access: Access,
}

/// Why an STag could not be made valid: always the local client's fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CannotBind {
    /// No such STag of this protection domain, or one of another kind.
    #[error("{stag} is not an STag of this protection domain that this work makes valid")]
    Unfit { stag: Stag },
    /// It is valid: it has to be invalidated first.
    #[error("{stag} is valid: invalidate it first")]
    Valid { stag: Stag },
    /// It was valid under this key before.
    #[error("{stag} was valid before: choose another key")]
    OldKey { stag: Stag },
    /// The STag that it is to be bound to is not that of a region that may be used so.
    #[error(transparent)]
    Region(#[from] StagError),
    /// Not within the region, or without a byte.
    #[error("{len} bytes at {base} are no part of {region}")]
    Range {
        region: Stag,
        /// The first byte.
        base: TaggedOffset,
        /// Bytes.
        len: u64,
    },
    /// The region can't be written locally, so no right to write can be given.
    #[error("{region} may not be written locally, and so not through what is bound to it")]
    Rights { region: Stag },
}

impl StagTable {
    /// Adds an STag without memory, not valid.
    pub fn add_unbound(
        &mut self,
        stag: Stag,
        pd: PdId,
        kind: StagKind,
    ) -> Result<(), AddRegionError> {
        let entry = Entry {
            pd,
            link: None,
            content: Cell::new(Content {
                key: stag.key(),
                key_used: false,
                state: State::Invalid,
                access: Access::default(),
                base: TaggedOffset::default(),
                len: 0,
                stream: None,
            }),
            memory: Memory::Part {
                kind,
                bound: Cell::new(None),
            },
            view: None,
        };
        self.insert(stag, entry)
    }

    /// Binds a window; the key of `window` is the one that it gets. One of type 1 may be bound
    /// before, and is not any more when the binding has no byte. Gives what is to be waited for until no other shard
    /// uses the binding before.
    pub fn bind(
        &mut self,
        window: Stag,
        user: User,
        to: &Binding,
    ) -> Result<Option<Look>, CannotBind> {
        let entry = self.unkeyed(window, user)?;
        // Others may have taken it over.
        let was_shared = entry.view.as_ref().is_some_and(View::is_valid_anywhere);
        let stream = match entry.kind() {
            Some(StagKind::WindowType1) => None,
            Some(StagKind::WindowType2B) => Some(user.qp),
            Some(StagKind::FastRegion) | None => return Err(CannotBind::Unfit { stag: window }),
        };
        if stream.is_none() && to.len == 0 {
            self.unbind(window.index());
            return Ok(was_shared.then(|| self.wait_for_others()).flatten());
        }
        if stream.is_some() && self.gives_something(entry) {
            return Err(CannotBind::Valid { stag: window });
        }
        entry.check_key(window)?;
        let writes = to
            .access
            .intersects(Access::REMOTE_WRITE | Access::REMOTE_ATOMIC);
        let bound = self.part(user, stream, to, writes)?;
        self.make_valid(window, stream, to, Some(bound))?;
        Ok(was_shared.then(|| self.wait_for_others()).flatten())
    }

    /// Ends the rights of a window of type 1, in whatever shard it was bound.
    fn unbind(&mut self, index: u32) {
        let view = self.entries.get(&index).and_then(|it| it.view.as_ref());
        if let Some(view) = view {
            view.invalidate_all();
        }
        self.end_rights(index);
    }

    /// Registers a region that is not valid, with the key of `stag`: one with memory of its own with
    /// part of it, another with part of a region.
    pub fn fast_register(
        &mut self,
        stag: Stag,
        user: User,
        stream: Option<QpNum>,
        to: &Binding,
    ) -> Result<(), CannotBind> {
        let entry = self.unkeyed(stag, user)?;
        if entry.is_window() {
            return Err(CannotBind::Unfit { stag });
        }
        if self.gives_something(entry) {
            return Err(CannotBind::Valid { stag });
        }
        entry.check_key(stag)?;
        let access = to.access;
        let writes =
            access.intersects(Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC);
        if let Memory::Own(own) = &entry.memory {
            if to.region != stag {
                return Err(StagError::Invalid { stag: to.region }.into());
            }
            within(to, own.base, own.memory.len())?;
            allow(to, own.access, writes)?;
            self.make_valid(stag, stream, to, None)
        } else {
            let bound = self.part(user, stream, to, writes)?;
            self.make_valid(stag, stream, to, Some(bound))
        }
    }

    /// The STag of this index, whatever its key, for work of its protection domain.
    fn unkeyed(&self, stag: Stag, user: User) -> Result<&Entry, CannotBind> {
        let entry = self.entries.get(&stag.index());
        let entry = entry.filter(|entry| entry.pd == user.pd);
        entry
            .map(|entry| self.present(entry))
            .ok_or(CannotBind::Unfit { stag })
    }

    /// A window whose region is gone grants nothing and counts as invalidated.
    fn gives_something(&self, entry: &Entry) -> bool {
        // One that is behind now is being changed.
        let changes = entry.view.as_ref().is_some_and(View::is_behind);
        changes || entry.is_valid() && self.memory(entry).is_some()
    }

    /// Finds the part of a region that something is to be bound to, which will be of `stream` or of
    /// the whole domain.
    fn part(
        &self,
        user: User,
        stream: Option<QpNum>,
        to: &Binding,
        writes: bool,
    ) -> Result<Bound, CannotBind> {
        let region = to.region;
        let found = self.valid(region, user)?;
        let Memory::Own(own) = &found.memory else {
            return Err(StagError::Invalid { stag: region }.into());
        };
        if found.stream().is_some() && stream.is_none() {
            return Err(StagError::NotAssociated { stag: region }.into());
        }
        let Content {
            base, len, access, ..
        } = found.content.get();
        within(to, base, len)?;
        allow(to, access, writes)?;
        Ok(Bound {
            region: region.index(),
            serial: own.serial.get(),
            // The registration that is valid is part of the memory, and this one of that.
            start: to.base.0.saturating_sub(own.base.0),
        })
    }

    /// `bound`: to what part of a region; none for an STag with memory of its own.
    fn make_valid(
        &mut self,
        stag: Stag,
        stream: Option<QpNum>,
        to: &Binding,
        bound: Option<Bound>,
    ) -> Result<(), CannotBind> {
        let index = stag.index();
        self.dissociate(index);
        if let Some(entry) = self.entries.get(&index) {
            if let Some(view) = &entry.view {
                let rights = Rights {
                    access: to.access,
                    base: to.base,
                    len: to.len,
                    stream,
                    part: bound.map(|bound| self.shared_part(bound)),
                };
                if !view.make_valid(stag.key(), &rights) {
                    return Err(CannotBind::Valid { stag });
                }
            }
            match (&entry.memory, bound) {
                (Memory::Part { bound, .. }, to) => bound.set(to),
                // Nothing that was bound to it before is any more.
                (Memory::Own(own), _) => own.serial.set(self.take_serial()),
            }
            entry.content.set(Content {
                key: stag.key(),
                key_used: true,
                state: State::Valid,
                access: to.access,
                base: to.base,
                len: to.len,
                stream: None,
            });
        }
        if let Some(qp) = stream {
            self.associate(index, qp);
        }
        Ok(())
    }

    /// A part of a region as other shards know it, which have the region too.
    fn shared_part(&self, bound: Bound) -> Part {
        let region = self.entries.get(&bound.region);
        let view = region.and_then(|region| region.view.as_ref());
        Part {
            region: bound.region,
            word: view.map_or(0, View::word),
            start: bound.start,
        }
    }

    /// Where an STag's bytes are: the region, and the offset in its memory of the STag's first byte.
    #[inline]
    pub(super) fn memory<'a>(&'a self, entry: &'a Entry) -> Option<(&'a RegionMemory, u64)> {
        let bound = match &entry.memory {
            Memory::Own(own) => {
                let base = entry.content.get().base;
                return Some((&own.memory, base.0.checked_sub(own.base.0)?));
            }
            Memory::Part { bound, .. } => bound.get()?,
        };
        let region = self.present(self.entries.get(&bound.region)?);
        match &region.memory {
            Memory::Own(own) if own.serial.get() == bound.serial && region.is_valid() => {
                Some((&own.memory, bound.start))
            }
            _ => None,
        }
    }
}

impl Entry {
    fn check_key(&self, stag: Stag) -> Result<(), CannotBind> {
        let key = stag.key();
        let content = self.content.get();
        let was_here = content.key_used && content.key == key;
        let was_elsewhere = self.view.as_ref().is_some_and(|view| view.had_key(key));
        if was_here || was_elsewhere {
            return Err(CannotBind::OldKey { stag });
        }
        Ok(())
    }
}

/// That it has a byte, and all of them are among the `len` from `base` on.
fn within(to: &Binding, base: TaggedOffset, len: u64) -> Result<(), CannotBind> {
    let outside = CannotBind::Range {
        region: to.region,
        base: to.base,
        len: to.len,
    };
    let start = to.base.0.checked_sub(base.0).ok_or(outside)?;
    let room = len.checked_sub(start).ok_or(outside)?;
    if to.len == 0 || to.len > room {
        return Err(outside);
    }
    Ok(())
}

fn allow(to: &Binding, granted: Access, writes: bool) -> Result<(), CannotBind> {
    if writes && !granted.contains(Access::LOCAL_WRITE) {
        return Err(CannotBind::Rights { region: to.region });
    }
    Ok(())
}
