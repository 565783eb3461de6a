//! The STag table: which memory a peer or a work request may touch (RFC 5040 section 8.1.1,
//! RFC 5041 sections 7.1 and 8.3).
//!
//! Every access is checked at the moment it happens and yields a [`ReadGrant`] or a [`WriteGrant`], the only
//! things that can copy. Both borrow the table, so none outlives a revocation. From one segment to the
//! next a check is kept only in a `WriteStag`, which borrows it too: while there is one, no STag changes.

use std::cell::Cell;

use rnic_ipc::control::{Access, StagKind};
use rnic_ipc::id::{PdId, QpNum};
use rnic_ipc::work::Sge;
use rnic_proto::rdmap::atomic::OPERAND_LEN;
use rnic_proto::{Stag, TaggedOffset};

use crate::idmap::IdMap;
use crate::region::RegionMemory;

mod bind;
mod catch_up;
mod grace;
mod grant;
mod streams;
#[cfg(test)]
mod tests;
mod word;

pub use bind::{Binding, CannotBind};
pub(crate) use grant::WriteStag;
pub use grant::{ReadGrant, Target, WriteGrant};
pub use word::StagWord;

use bind::Bound;
use grace::Grace;
pub(crate) use grace::Look;
use grant::{Range, StagRange};
use streams::Link;
use word::View;

/// All the STags of a shard.
#[derive(Debug)]
pub struct StagTable {
    /// By the STags' indexes, which are random (RFC 5040 section 8.1.1).
    entries: IdMap<u32, Entry>,
    /// Streams of each protection domain.
    streams: IdMap<u32, u32>,
    /// The first STag that is of a stream, by the queue pair's number.
    first_of: IdMap<u32, u32>,
    /// What the next registration gets, so that none is taken for one that the region, or another
    /// of its index, had before.
    next_serial: Cell<u64>,
    capacity: usize,
    /// Where there are other shards.
    grace: Option<Grace>,
}

/// Who uses an STag: a queue pair's stream, in its protection domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct User {
    pub pd: PdId,
    pub qp: QpNum,
}

#[derive(Debug)]
struct Entry {
    pd: PdId,
    /// Its place in the list of a stream of this shard.
    link: Option<Link>,
    /// Changed by looking, where another shard has changed the STag ([`catch_up`]).
    content: Cell<Content>,
    memory: Memory,
    /// Where other shards have the STag too.
    view: Option<View>,
}

/// What an STag gives at present, or gave last.
#[derive(Clone, Copy, Debug)]
struct Content {
    key: u8,
    /// It is valid, or was, under this key.
    key_used: bool,
    state: State,
    access: Access,
    base: TaggedOffset,
    len: u64,
    /// The only stream that may use it, if it is limited to one.
    stream: Option<QpNum>,
}

/// What an STag gives access to.
#[derive(Debug)]
enum Memory {
    /// Bytes that were registered by a command.
    Own(Registered),
    /// Part of a region, when it is bound to one.
    Part {
        kind: StagKind,
        bound: Cell<Option<Bound>>,
    },
}

/// A region's memory, all of it, whatever part is registered at the time.
#[derive(Debug)]
struct Registered {
    memory: RegionMemory,
    /// The present registration, or the last.
    serial: Cell<u64>,
    /// Tagged offset of its first byte.
    base: TaggedOffset,
    /// The rights that the command gave.
    access: Access,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Valid,
    /// It gives nobody anything; work may make it valid.
    Invalid,
}

/// Why an access was refused, in the order of the checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StagError {
    /// No such STag, or it was invalidated.
    #[error("{stag} is not a valid STag")]
    Invalid { stag: Stag },
    /// The STag is of another protection domain.
    #[error("{stag} is not associated with the stream's protection domain")]
    NotAssociated { stag: Stag },
    /// The region does not give this right.
    #[error("{stag} does not allow this access")]
    AccessRights { stag: Stag },
    /// The tagged offset plus the length leaves the 64-bit space.
    #[error("{len} bytes at {to} wrap around the tagged offsets of {stag}")]
    Wrap {
        stag: Stag,
        /// The first byte.
        to: TaggedOffset,
        /// Bytes.
        len: u32,
    },
    /// Before the region's first byte or after its last.
    #[error("{len} bytes at {to} are not within the bounds of {stag}")]
    Bounds {
        stag: Stag,
        /// The first byte.
        to: TaggedOffset,
        /// Bytes.
        len: u32,
    },
    /// The memory of an Atomic Operation is not aligned to 64 bits.
    #[error("the memory at {to} of {stag} is not aligned to 64 bits")]
    Misaligned {
        stag: Stag,
        /// The first byte.
        to: TaggedOffset,
    },
}

/// Why an STag could not be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddRegionError {
    #[error("the STag table holds {capacity} STags, and all are in use")]
    Full { capacity: usize },
    /// The STag is in the table already.
    #[error("{stag} is in use")]
    InUse { stag: Stag },
    /// The region's last byte would have no tagged offset.
    #[error("a region of {len} bytes at {base} wraps around the tagged offsets")]
    Wrap {
        /// Its first byte.
        base: TaggedOffset,
        len: u64,
    },
}

/// What an operator may see of an STag: nothing by which it could be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StagStatus {
    pub window: bool,
    /// It is not invalidated; and bound, if it is a window.
    pub valid: bool,
    /// The only stream that may use it.
    pub qp: Option<QpNum>,
    pub access: Access,
    /// Its bytes.
    pub len: u64,
}

impl StagTable {
    /// An empty table for `capacity` STags.
    pub fn new(capacity: usize) -> Self {
        let mut first_of = IdMap::default();
        first_of.reserve(capacity);
        let mut entries = IdMap::default();
        entries.reserve(capacity);
        Self {
            entries,
            streams: IdMap::default(),
            first_of,
            next_serial: Cell::new(0),
            capacity,
            grace: None,
        }
    }

    /// Adds a region that is valid, for its whole protection domain.
    pub fn add(
        &mut self,
        stag: Stag,
        pd: PdId,
        access: Access,
        base: TaggedOffset,
        memory: RegionMemory,
    ) -> Result<(), AddRegionError> {
        let len = memory.len();
        if base.checked_add(len).is_none() {
            return Err(AddRegionError::Wrap { base, len });
        }
        let registered = Registered {
            memory,
            serial: Cell::new(self.take_serial()),
            base,
            access,
        };
        self.insert(
            stag,
            Entry {
                pd,
                link: None,
                content: Cell::new(Content {
                    key: stag.key(),
                    key_used: true,
                    state: State::Valid,
                    access,
                    base,
                    len,
                    stream: None,
                }),
                memory: Memory::Own(registered),
                view: None,
            },
        )
    }

    /// Other shards have this STag too, which was just added here: they have this word in common.
    pub fn share(&mut self, stag: Stag, word: StagWord) {
        if let Some(entry) = self.entries.get_mut(&stag.index()) {
            entry.view = Some(View::new(word));
        }
    }

    /// Adds a region that is valid, for one stream.
    pub fn add_for_stream(
        &mut self,
        stag: Stag,
        user: User,
        access: Access,
        base: TaggedOffset,
        memory: RegionMemory,
    ) -> Result<(), AddRegionError> {
        self.add(stag, user.pd, access, base, memory)?;
        self.associate(stag.index(), user.qp);
        Ok(())
    }

    fn take_serial(&self) -> u64 {
        let serial = self.next_serial.get();
        self.next_serial.set(serial.wrapping_add(1));
        serial
    }

    fn insert(&mut self, stag: Stag, entry: Entry) -> Result<(), AddRegionError> {
        if self.entries.contains_key(&stag.index()) {
            return Err(AddRegionError::InUse { stag });
        }
        if self.entries.len() >= self.capacity {
            return Err(AddRegionError::Full {
                capacity: self.capacity,
            });
        }
        self.entries.insert(stag.index(), entry);
        Ok(())
    }

    /// Revokes an STag, whatever its key is now. When this returns no byte of its memory is touched
    /// any more, by nothing that was bound to it either. False when there is none.
    pub fn remove(&mut self, stag: Stag) -> bool {
        self.dissociate(stag.index());
        self.entries.remove(&stag.index()).is_some()
    }

    /// Takes the rights of all regions whose memory is gone; gives them, and their domains.
    pub fn revoke_broken(&mut self) -> Vec<(Stag, PdId)> {
        let broken = |(index, entry): (&u32, &Entry)| match &entry.memory {
            Memory::Own(own) if own.memory.is_broken() => {
                Some((Stag::from_parts(*index, entry.key()), entry.pd))
            }
            _ => None,
        };
        let found: Vec<_> = self.entries.iter().filter_map(broken).collect();
        for (stag, _) in &found {
            self.end_rights(stag.index());
        }
        found
    }

    /// STags in the table.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Are there none?
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// What there is under an index, whatever its key is now.
    pub fn look(&self, index: u32) -> Option<StagStatus> {
        let entry = self.present(self.entries.get(&index)?);
        let Content { access, len, .. } = entry.content.get();
        Some(StagStatus {
            window: entry.is_window(),
            valid: entry.is_valid(),
            qp: entry.stream(),
            access,
            len,
        })
    }

    /// Checks a peer's RDMA Read of `len` bytes at `to`. Zero bytes are no access and not to be
    /// asked for (RFC 5040 section 5.2.1).
    pub fn remote_read(
        &self,
        stag: Stag,
        to: TaggedOffset,
        len: u32,
        user: User,
    ) -> Result<ReadGrant<'_>, StagError> {
        let entry = self.valid(stag, user)?;
        self.range(
            entry,
            stag,
            to,
            len,
            entry.access().contains(Access::REMOTE_READ),
        )
        .map(ReadGrant)
    }

    /// Checks a peer's RDMA Write of `len` bytes to `to`. Zero bytes are no access and not to be
    /// asked for (RFC 5041 section 7.1).
    pub fn remote_write(
        &self,
        stag: Stag,
        to: TaggedOffset,
        len: u32,
        user: User,
    ) -> Result<WriteGrant<'_>, StagError> {
        let reach = self.remote_write_reach(stag, user)?;
        reach.range(to, len).map(WriteGrant)
    }

    /// The same for several consecutive Writes by one STag: checks that do not depend on the offset are made
    /// once.
    #[inline]
    pub(crate) fn remote_write_stag(
        &self,
        stag: Stag,
        user: User,
    ) -> Result<WriteStag<'_>, StagError> {
        WriteStag::new(self.remote_write_reach(stag, user)?)
    }

    #[inline]
    fn remote_write_reach(&self, stag: Stag, user: User) -> Result<StagRange<'_>, StagError> {
        let entry = self.valid(stag, user)?;
        self.reach(entry, stag, entry.access().contains(Access::REMOTE_WRITE))
    }

    /// Checks a peer's Atomic Operation at `to` (RFC 7306 section 8.2). What has to be aligned is the
    /// memory there; the tagged offset may be any.
    pub fn remote_atomic(
        &self,
        stag: Stag,
        to: TaggedOffset,
        user: User,
    ) -> Result<Target<'_>, StagError> {
        let entry = self.valid(stag, user)?;
        let range = self.range(
            entry,
            stag,
            to,
            OPERAND_LEN,
            entry.access().contains(Access::REMOTE_ATOMIC),
        )?;
        let memory = range.memory;
        let word = memory.word(range.start);
        let word = word.ok_or(StagError::Misaligned { stag, to })?;
        Ok(Target { word, memory })
    }

    /// Checks the bytes that a Send or an RDMA Write takes. Every region allows it, no window does.
    #[inline]
    pub fn local_read(&self, sge: &Sge, user: User) -> Result<ReadGrant<'_>, StagError> {
        let stag = Stag(sge.lkey);
        let entry = self.valid(stag, user)?;
        let allowed = !entry.is_window();
        self.range(entry, stag, TaggedOffset(sge.addr), sge.length, allowed)
            .map(ReadGrant)
    }

    /// Checks where a Send or an RDMA Read Response is placed.
    pub fn local_write(&self, sge: &Sge, user: User) -> Result<WriteGrant<'_>, StagError> {
        let stag = Stag(sge.lkey);
        let entry = self.valid(stag, user)?;
        let allowed = entry.access().contains(Access::LOCAL_WRITE) && !entry.is_window();
        self.range(entry, stag, TaggedOffset(sge.addr), sge.length, allowed)
            .map(WriteGrant)
    }

    /// Invalidates an STag on the peer's own request (RFC 5040 section 5.3). A peer may not invalidate an
    /// STag that more than one stream can use (RFC 5040 section 8.1.1, 7). It may if the STag is associated
    /// with the peer's stream, or if its protection domain has no other stream. A window of type 1 is never
    /// invalidated so.
    pub fn invalidate(&mut self, stag: Stag, user: User) -> Result<(), StagError> {
        let own = self.valid(stag, user)?.stream() == Some(user.qp);
        if !own && self.streams.get(&user.pd.0) != Some(&1) {
            return Err(StagError::NotAssociated { stag });
        }
        // No stream of another shard could use it.
        self.local_invalidate(stag, user).map(|_| ())
    }

    /// Takes the rights away for the queue pair's own work; those of a window of type 1 end by
    /// [`Self::bind`]. Gives what is to be waited for until no other shard uses them any more.
    pub fn local_invalidate(&mut self, stag: Stag, user: User) -> Result<Option<Look>, StagError> {
        let entry = self.valid(stag, user)?;
        if entry.kind() == Some(StagKind::WindowType1) {
            return Err(StagError::AccessRights { stag });
        }
        let is_shared = entry.view.is_some() && entry.stream().is_none();
        self.end_rights(stag.index());
        Ok(is_shared.then(|| self.wait_for_others()).flatten())
    }

    #[inline]
    fn valid(&self, stag: Stag, user: User) -> Result<&Entry, StagError> {
        let entry = self.entries.get(&stag.index());
        let entry = entry.ok_or(StagError::Invalid { stag })?;
        let checked = entry.check(stag, user);
        match &entry.view {
            Some(view) if view.is_behind() => self.check_again(entry, view, stag, user),
            _ => checked,
        }?;
        Ok(entry)
    }

    /// After what another shard's work has done to the STag.
    #[cold]
    #[inline(never)]
    fn check_again(
        &self,
        entry: &Entry,
        view: &View,
        stag: Stag,
        user: User,
    ) -> Result<(), StagError> {
        self.catch_up(entry, view);
        entry.check(stag, user)
    }

    #[inline(always)]
    fn range<'a>(
        &'a self,
        entry: &'a Entry,
        stag: Stag,
        to: TaggedOffset,
        len: u32,
        allowed: bool,
    ) -> Result<Range<'a>, StagError> {
        self.reach(entry, stag, allowed)?.range(to, len)
    }

    #[inline(always)]
    fn reach<'a>(
        &'a self,
        entry: &'a Entry,
        stag: Stag,
        allowed: bool,
    ) -> Result<StagRange<'a>, StagError> {
        if !allowed {
            return Err(StagError::AccessRights { stag });
        }
        let Content { base, len, .. } = entry.content.get();
        Ok(StagRange {
            stag,
            base,
            len,
            memory: self.memory(entry),
        })
    }
}

impl Entry {
    /// That this STag is valid for this user, if it is [present](StagTable::present).
    #[inline(always)]
    fn check(&self, stag: Stag, user: User) -> Result<(), StagError> {
        if self.key() != stag.key() {
            return Err(StagError::Invalid { stag });
        }
        // Another domain's STag says nothing about itself, not even that it was invalidated.
        let other_stream = self.stream().is_some_and(|stream| stream != user.qp);
        if self.pd != user.pd || other_stream {
            return Err(StagError::NotAssociated { stag });
        }
        if !self.is_valid() {
            return Err(StagError::Invalid { stag });
        }
        Ok(())
    }

    /// It is valid, if it is [present](StagTable::present).
    #[inline(always)]
    fn is_valid(&self) -> bool {
        self.content.get().state == State::Valid
    }

    #[inline(always)]
    fn key(&self) -> u8 {
        self.content.get().key
    }

    #[inline(always)]
    fn access(&self) -> Access {
        self.content.get().access
    }

    /// What it is for, unless it has memory of its own.
    fn kind(&self) -> Option<StagKind> {
        match self.memory {
            Memory::Own(_) => None,
            Memory::Part { kind, .. } => Some(kind),
        }
    }

    /// It gives rights to peers only.
    fn is_window(&self) -> bool {
        match self.kind() {
            Some(StagKind::WindowType1 | StagKind::WindowType2B) => true,
            Some(StagKind::FastRegion) | None => false,
        }
    }
}
