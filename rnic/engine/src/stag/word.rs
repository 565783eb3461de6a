//! What the shards of a device have in common of an STag: a word that says whether it is valid, and with which key; and
//! what work of one of them has made valid last.
//!
//! Each shard has an entry of its own for the STag. A command changes all of them. Work changes that of its shard only:
//! so it changes the word too, and an entry that was made for an older word gives nothing. An STag that work has
//! invalidated is valid in no shard from then on. One that work has made valid is so in all: a shard whose entry is behind
//! takes over the rights that are written here ([`super::catch_up`]).
//!
//! Bit 0 says whether the STag is valid, bit 1 whether it ever was, bit 2 that the rights are being written. Bits 8 to 15
//! are the last valid key. The bits from 16 on count the changes.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use rnic_ipc::control::Access;
use rnic_ipc::id::QpNum;
use rnic_proto::{Stag, TaggedOffset};

const VALID: u64 = 1;
const KEY_USED: u64 = 2;
const BEING_WRITTEN: u64 = 4;
const KEY_SHIFT: u32 = 8;
const CHANGE: u64 = 1 << 16;

/// The word of one STag, and its rights. Clones are the same one, for each shard.
#[derive(Clone, Debug)]
pub struct StagWord(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    word: AtomicU64,
    rights: [AtomicU64; FIELDS],
}

/// What work has made an STag valid for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rights {
    pub(super) access: Access,
    pub(super) base: TaggedOffset,
    pub(super) len: u64,
    /// The only stream that may use it, if it is limited to one.
    pub(super) stream: Option<QpNum>,
    /// Of a window or a fast region: what it is bound to. None: the memory is the STag's own.
    pub(super) part: Option<Part>,
}

/// A part of a region, as all shards know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) region: u32,
    /// The region's word while it had the registration that is meant.
    pub(super) word: u64,
    /// Where the part begins in the region's memory, in bytes.
    pub(super) start: u64,
}

const FIELDS: usize = 6;
const IS_LIMITED: u64 = 1 << 32;
const HAS_PART: u64 = 1 << 33;

impl Rights {
    fn to_fields(self) -> [u64; FIELDS] {
        let part = self.part.unwrap_or(Part {
            region: 0,
            word: 0,
            start: 0,
        });
        let mut flags = u64::from(self.access.bits());
        if self.stream.is_some() {
            flags |= IS_LIMITED;
        }
        if self.part.is_some() {
            flags |= HAS_PART;
        }
        let stream = self.stream.map_or(0, |qp| qp.0);
        let region = u64::from(part.region) | u64::from(stream) << 32;
        [flags, self.base.0, self.len, region, part.word, part.start]
    }

    fn of_fields([flags, base, len, region, word, start]: [u64; FIELDS]) -> Self {
        let part = Part {
            // They were two halves when they were written.
            region: region as u32,
            word,
            start,
        };
        Self {
            access: Access::from_bits(flags as u32),
            base: TaggedOffset(base),
            len,
            stream: (flags & IS_LIMITED != 0).then_some(QpNum((region >> 32) as u32)),
            part: (flags & HAS_PART != 0).then_some(part),
        }
    }
}

/// A shard's view of it: the word for which its entry is right.
#[derive(Clone, Debug)]
pub(super) struct View {
    shared: StagWord,
    seen: Cell<u64>,
}

/// What other shards' work has made of an STag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WordState {
    Valid {
        word: u64,
        key: u8,
        rights: Rights,
    },
    /// It is valid in no shard.
    Invalid {
        word: u64,
    },
    /// It is being changed in this moment, and gives nothing before.
    Changing,
}

impl StagWord {
    /// Of an STag that a command makes valid, in all shards.
    pub fn valid(stag: Stag) -> Self {
        Self::new(keyed(stag.key()))
    }

    /// Of one without memory, which work makes valid.
    pub fn unbound() -> Self {
        Self::new(0)
    }

    fn new(word: u64) -> Self {
        Self(Arc::new(Shared {
            word: AtomicU64::new(word),
            ..Shared::default()
        }))
    }
}

impl View {
    pub(super) fn new(shared: StagWord) -> Self {
        let seen = Cell::new(shared.0.word.load(Ordering::Acquire));
        Self { shared, seen }
    }

    /// Whether another shard has changed the STag since.
    #[inline(always)]
    pub(super) fn is_behind(&self) -> bool {
        self.now() != self.seen.get()
    }

    /// The word for which the entry is right.
    pub(super) fn word(&self) -> u64 {
        self.seen.get()
    }

    /// Whether any shard's entry may give something.
    pub(super) fn is_valid_anywhere(&self) -> bool {
        self.now() & (VALID | BEING_WRITTEN) != 0
    }

    /// Whether the STag was last valid with this key, in any shard.
    pub(super) fn had_key(&self, key: u8) -> bool {
        let now = self.now();
        now & KEY_USED != 0 && (now >> KEY_SHIFT) as u8 == key
    }

    /// Nothing is valid any more that this entry was right for. What another shard has made valid since stays.
    pub(super) fn invalidate(&self) {
        let seen = self.seen.get();
        let _ = self.change(seen, seen & !VALID);
    }

    /// The STag is valid in no shard any more.
    pub(super) fn invalidate_all(&self) {
        let now = self.now();
        // Another shard that is faster has made it valid after this, or invalid too.
        let _ = self.change(now, now & !(VALID | BEING_WRITTEN));
    }

    /// From now on the STag is valid with this key and these rights, by this entry, and by those that take them over.
    /// `false` when another shard has changed it since it was seen.
    pub(super) fn make_valid(&self, key: u8, rights: &Rights) -> bool {
        if !self.begin_change() {
            return false;
        }
        self.write(rights);
        self.end_change(key)
    }

    /// Of two that would write at once one comes first, and the other finds the word changed.
    fn begin_change(&self) -> bool {
        let seen = self.seen.get();
        self.change(seen, seen & !VALID | BEING_WRITTEN)
    }

    fn write(&self, rights: &Rights) {
        // Who reads one of these sees the change before it.
        fence(Ordering::Release);
        for (to, from) in self.shared.0.rights.iter().zip(rights.to_fields()) {
            to.store(from, Ordering::Relaxed);
        }
    }

    /// Another shard may have invalidated the STag meanwhile: then it stays invalid.
    fn end_change(&self, key: u8) -> bool {
        self.change(self.seen.get(), keyed(key))
    }

    /// What has become of the STag.
    pub(super) fn state(&self) -> WordState {
        let now = self.now();
        match now & (VALID | BEING_WRITTEN) {
            VALID => {}
            0 => return WordState::Invalid { word: now },
            _ => return WordState::Changing,
        }
        let mut fields = [0; FIELDS];
        for (to, from) in fields.iter_mut().zip(&self.shared.0.rights) {
            *to = from.load(Ordering::Relaxed);
        }
        // If one of these was of a later change, so is the word.
        fence(Ordering::Acquire);
        let key = (now >> KEY_SHIFT) as u8;
        match self.shared.0.word.load(Ordering::Relaxed) == now {
            true => WordState::Valid {
                word: now,
                key,
                rights: Rights::of_fields(fields),
            },
            false => WordState::Changing,
        }
    }

    /// The entry is right for this word from now on.
    pub(super) fn has_seen(&self, word: u64) {
        self.seen.set(word);
    }

    /// Gives the word these low bits, if it still is `before`.
    fn change(&self, before: u64, low: u64) -> bool {
        let after = (before & !(CHANGE - 1)).wrapping_add(CHANGE) | low & (CHANGE - 1);
        let word = &self.shared.0.word;
        let changed = word.compare_exchange(before, after, Ordering::AcqRel, Ordering::Acquire);
        if changed.is_ok() {
            self.seen.set(after);
        }
        changed.is_ok()
    }

    #[inline]
    fn now(&self) -> u64 {
        self.shared.0.word.load(Ordering::Acquire)
    }
}

fn keyed(key: u8) -> u64 {
    u64::from(key) << KEY_SHIFT | KEY_USED | VALID
}

#[cfg(test)]
mod tests;
