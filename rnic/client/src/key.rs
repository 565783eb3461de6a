//! Keys of STags (RFC 5040 section 1.1): the 8 bits that change with work of ours, each time to
//! something that nobody can know before (RFC 5040 section 8.1.1, 8).

use std::hash::{BuildHasher, RandomState};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::wait::lock;

/// The bits of an STag that are its key.
const KEY: u32 = 0xff;

/// A key comes again after so many others at the earliest. The RNIC refuses the one that was valid
/// last; which that is can't be told from here, because work may be flushed.
const OTHERS: usize = 32;

/// An STag whose key changes.
#[derive(Debug)]
pub(crate) struct Keyed {
    /// The STag that it came with.
    name: u32,
    /// With the key that it was last given.
    stag: AtomicU32,
    /// Keys that it had, and the place of the oldest.
    recent: Mutex<([u8; OTHERS], usize)>,
}

impl Keyed {
    pub(crate) fn new(name: u32) -> Self {
        let key = name.to_be_bytes()[3];
        Self {
            name,
            stag: AtomicU32::new(name),
            recent: Mutex::new(([key; OTHERS], 0)),
        }
    }

    /// As it came: the RNIC knows it by that.
    pub(crate) fn name(&self) -> u32 {
        self.name
    }

    /// With the key that it was last given.
    pub(crate) fn now(&self) -> u32 {
        self.stag.load(Ordering::Relaxed)
    }

    /// Gives it this key, whether it had it before or not.
    pub(crate) fn set(&self, key: u8) -> u32 {
        let mut recent = lock(&self.recent);
        self.note(&mut recent, key)
    }

    /// Gives it another key.
    pub(crate) fn next(&self) -> u32 {
        // Keyed by the kernel's random numbers, anew in each process and for each state.
        let random = RandomState::new().hash_one(self.name);
        let mut recent = lock(&self.recent);
        let (keys, _) = &*recent;
        let free = || (0..=u8::MAX).filter(|key| !keys.contains(key));
        let count = free().count().max(1) as u64;
        // At most 32 of 256 are taken, so there is one.
        let key = free().nth((random % count) as usize).unwrap_or_default();
        self.note(&mut recent, key)
    }

    fn note(&self, (keys, oldest): &mut ([u8; OTHERS], usize), key: u8) -> u32 {
        keys[*oldest % OTHERS] = key;
        *oldest = (*oldest + 1) % OTHERS;
        let stag = self.name & !KEY | u32::from(key);
        self.stag.store(stag, Ordering::Relaxed);
        stag
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_comes_again_after_many_others_and_all_of_them_come() {
        let keyed = Keyed::new(0x1234_5677);
        let mut given = vec![0x77];
        for _ in 0..8000 {
            let stag = keyed.next();
            assert_eq!((stag & !KEY, stag), (0x1234_5600, keyed.now()));
            given.push(stag as u8);
        }
        for window in given.windows(OTHERS) {
            let (last, before) = window.split_last().unwrap();
            assert!(!before.contains(last));
        }
        assert!((0..=u8::MAX).all(|key| given.contains(&key)));
        assert_eq!(keyed.name(), 0x1234_5677);
    }
}
