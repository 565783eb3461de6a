//! Whether all shards of an interface have let go of what they looked up before a change.
//!
//! A shard that polls may have looked something up that another shard then changes for all. It holds on to that until
//! its next pass. So each shard counts its passes where the others see it, and says when it sleeps. Who has made a
//! change looks at all counts, and may rely on it when each has moved on, or was that of a sleeping shard.
//!
//! Both sides have a `SeqCst` fence: the one who changes between the change and the look at the counts, a shard between
//! its count and its next lookup. So at least one sees the other's write: either the look finds the new count, and
//! what the shard looked up before it is done with; or the shard's lookup finds the change.

use std::sync::Arc;

use crate::sync::{AtomicUsize, Ordering, fence};

#[cfg(all(test, loom))]
mod models;
#[cfg(test)]
#[cfg(not(loom))]
mod tests;

/// The lowest bit of a count says that its shard sleeps.
const ASLEEP: usize = 1;
const PASS: usize = 2;

/// One shard's count, and the others'.
#[derive(Clone, Debug)]
pub struct Passes {
    own: usize,
    counts: Arc<[Count]>,
}

#[derive(Debug)]
#[repr(align(64))]
struct Count(AtomicUsize);

impl Passes {
    /// Those of so many shards. None sleeps.
    pub fn among(shards: usize) -> Vec<Self> {
        let counts: Arc<[Count]> = (0..shards).map(|_| Count(AtomicUsize::new(0))).collect();
        let of = |own| Self {
            own,
            counts: Arc::clone(&counts),
        };
        (0..shards).map(of).collect()
    }

    /// What was looked up before is done with. Before the first lookup of each pass, and after sleep.
    #[inline]
    pub fn begin(&self) {
        let count = &self.counts[self.own].0;
        // Only this shard writes it.
        let next = (count.load(Ordering::Relaxed) & !ASLEEP).wrapping_add(PASS);
        count.store(next, Ordering::Release);
        fence(Ordering::SeqCst);
    }

    /// Nothing is looked up until [`Self::begin`].
    pub fn sleep(&self) {
        let count = &self.counts[self.own].0;
        let now = count.load(Ordering::Relaxed);
        count.store(now | ASLEEP, Ordering::Release);
    }

    /// All counts at this moment, after a change, for [`Self::have_moved_on`].
    pub fn look(&self, counts: &mut Vec<usize>) {
        fence(Ordering::SeqCst);
        counts.clear();
        counts.extend(self.counts.iter().map(|it| it.0.load(Ordering::Acquire)));
    }

    /// Whether all other shards have begun a new pass since that look, or slept then.
    pub fn have_moved_on(&self, counts: &[usize]) -> bool {
        let mut all = self.counts.iter().zip(counts).enumerate();
        all.all(|(shard, (count, then))| {
            shard == self.own || then & ASLEEP != 0 || count.0.load(Ordering::Acquire) != *then
        })
    }
}
