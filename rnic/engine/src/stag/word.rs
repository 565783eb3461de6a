//! What the shards of a device have in common of an STag: a word that says whether it is valid, and with which key.
//!
//! Each shard has an entry of its own for the STag. A command changes all of them. Work changes that of its shard only:
//! so it changes the word too, and an entry that was made for an older word gives nothing. An STag that work has
//! invalidated is valid in no shard from then on. One that work has made valid is so in the shard of that work: that is
//! narrower than the verbs, where it is valid for its whole protection domain.
//!
//! Bit 0 says whether the STag is valid, and bit 1 whether it ever was. Bits 8 to 15 are the last valid key. The bits
//! from 16 on count the changes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rnic_proto::Stag;

const VALID: u64 = 1;
const KEY_USED: u64 = 2;
const KEY_SHIFT: u32 = 8;
const CHANGE: u64 = 1 << 16;

/// The word of one STag. Clones are the same one, for each shard.
#[derive(Clone, Debug)]
pub struct StagWord(Arc<AtomicU64>);

/// A shard's view of it: the word for which its entry is right.
#[derive(Clone, Debug)]
pub(super) struct View {
    word: StagWord,
    seen: u64,
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
        Self(Arc::new(AtomicU64::new(word)))
    }
}

impl View {
    /// Of a new entry.
    pub(super) fn new(word: StagWord) -> Self {
        let seen = word.0.load(Ordering::Acquire);
        Self { word, seen }
    }

    /// Whether the entry may give something: no shard has changed the STag since.
    // By itself, so that a check takes no more where there is one shard.
    #[inline(never)]
    pub(super) fn is_current(&self) -> bool {
        self.now() == self.seen && self.seen & VALID != 0
    }

    /// Whether another shard's entry may give something.
    pub(super) fn is_valid_elsewhere(&self) -> bool {
        let now = self.now();
        now & VALID != 0 && now != self.seen
    }

    /// Whether the STag was last valid with this key, in any shard.
    pub(super) fn had_key(&self, key: u8) -> bool {
        let now = self.now();
        now & KEY_USED != 0 && (now >> KEY_SHIFT) as u8 == key
    }

    /// Nothing is valid any more that this entry was right for. What another shard has made valid since stays.
    pub(super) fn invalidate(&mut self) {
        let _ = self.change(self.seen, self.seen & !VALID);
    }

    /// The STag is valid in no shard any more.
    pub(super) fn invalidate_all(&mut self) {
        let now = self.now();
        // Another shard that is faster has made it valid after this, or invalid too.
        let _ = self.change(now, now & !VALID);
    }

    /// From now on the STag is valid with this key, by this entry, and by no other's. `false` when another shard has
    /// changed it in this moment.
    pub(super) fn make_valid(&mut self, key: u8) -> bool {
        self.change(self.now(), keyed(key))
    }

    /// Gives the word these low bits, if it still is `before`.
    fn change(&mut self, before: u64, low: u64) -> bool {
        let after = (before & !(CHANGE - 1)).wrapping_add(CHANGE) | low & (CHANGE - 1);
        let word = &self.word.0;
        let changed = word.compare_exchange(before, after, Ordering::AcqRel, Ordering::Acquire);
        if changed.is_ok() {
            self.seen = after;
        }
        changed.is_ok()
    }

    #[inline]
    fn now(&self) -> u64 {
        self.word.0.load(Ordering::Acquire)
    }
}

fn keyed(key: u8) -> u64 {
    u64::from(key) << KEY_SHIFT | KEY_USED | VALID
}
