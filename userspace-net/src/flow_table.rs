//! From the keyed hash of a flow to the connection: open addressing in buckets of one cache line.
//!
//! A lookup reads one bucket and the connection that it names; the connection knows its flow. A
//! bucket counts the flows that had to go past it, so that a lookup knows where to stop and a
//! removal leaves nothing behind: no churn ever makes lookups slower. The table never grows: it is
//! made for all connections that there may be. A bucket's eleven bytes for each of them are cheap, and
//! moving to a larger table would be a pause in the middle of traffic. The hash must be
//! keyed (SipHash): a peer that could choose colliding flows could make every lookup long.

#[cfg(test)]
mod tests;

/// Flows in a bucket.
const SLOTS: usize = 10;

/// Flows for each bucket of a full table. With this few about one lookup in a hundred sees a second
/// bucket.
const LOAD: usize = 6;

/// Marks an empty slot; no flow's tag.
const EMPTY: u16 = 0;

/// The keyed hash of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlowHash(pub(crate) u64);

impl FlowHash {
    fn tag(self) -> u16 {
        // Truncated on purpose: the bucket comes from the upper half.
        (self.0 as u16).max(EMPTY + 1)
    }
}

/// Connection indices by flow.
#[derive(Debug)]
pub struct FlowTable {
    buckets: Box<[Bucket]>,
}

#[derive(Debug, Clone)]
#[repr(C, align(64))]
struct Bucket {
    tags: [u16; SLOTS],
    indices: [u32; SLOTS],
    /// Flows that belong here or before and stand behind, because there was no place.
    passed: u32,
}

const _: () = assert!(size_of::<Bucket>() == 64, "a bucket is one cache line");

impl Bucket {
    const VACANT: Self = Self {
        tags: [EMPTY; SLOTS],
        indices: [0; SLOTS],
        passed: 0,
    };

    /// A bit for each slot with this tag.
    fn matching(&self, tag: u16) -> u32 {
        let bits = self.tags.iter().enumerate();
        bits.fold(0, |bits, (slot, &t)| bits | u32::from(t == tag) << slot)
    }
}

impl FlowTable {
    /// For at most `connections` flows.
    pub fn new(connections: usize) -> Self {
        let buckets = connections.div_ceil(LOAD).max(1);
        Self {
            buckets: vec![Bucket::VACANT; buckets].into_boxed_slice(),
        }
    }

    /// The connection with this hash for which `is_it` says so. It is asked for the right one and,
    /// rarely, for one with the same tag.
    pub fn find(&self, hash: FlowHash, is_it: impl Fn(u32) -> bool) -> Option<u32> {
        let mut at = self.home(hash);
        for _ in 0..self.buckets.len() {
            let bucket = &self.buckets[at];
            let mut matching = bucket.matching(hash.tag());
            while matching != 0 {
                let index = bucket.indices[matching.trailing_zeros() as usize];
                if is_it(index) {
                    return Some(index);
                }
                matching &= matching - 1;
            }
            if bucket.passed == 0 {
                return None;
            }
            at = self.behind(at);
        }
        None
    }

    /// Adds a flow that is not there.
    pub fn insert(&mut self, hash: FlowHash, index: u32) {
        let mut at = self.home(hash);
        for _ in 0..self.buckets.len() {
            let behind = self.behind(at);
            let bucket = &mut self.buckets[at];
            let vacant = bucket.matching(EMPTY);
            if vacant != 0 {
                let slot = vacant.trailing_zeros() as usize;
                bucket.tags[slot] = hash.tag();
                bucket.indices[slot] = index;
                return;
            }
            bucket.passed += 1;
            at = behind;
        }
        unreachable!("there are more slots than connections");
    }

    /// Takes away the flow of the connection `index`, if it is there.
    pub fn remove(&mut self, hash: FlowHash, index: u32) {
        let home = self.home(hash);
        let Some((at, slot)) = self.place(hash, index) else {
            return;
        };
        self.buckets[at].tags[slot] = EMPTY;
        let mut passed = home;
        while passed != at {
            self.buckets[passed].passed -= 1;
            passed = self.behind(passed);
        }
    }

    /// Flows, and how often they had to go past a bucket.
    pub fn marks(&self) -> usize {
        let marks = |bucket: &Bucket| {
            let flows = bucket.tags.iter().filter(|tag| **tag != EMPTY).count();
            flows + bucket.passed as usize
        };
        self.buckets.iter().map(marks).sum()
    }

    /// Where a connection stands.
    fn place(&self, hash: FlowHash, index: u32) -> Option<(usize, usize)> {
        let mut at = self.home(hash);
        for _ in 0..self.buckets.len() {
            let bucket = &self.buckets[at];
            let slots = bucket.tags.iter().zip(&bucket.indices);
            let slot = slots
                .enumerate()
                .find(|(_, (tag, i))| **tag == hash.tag() && **i == index);
            if let Some((slot, _)) = slot {
                return Some((at, slot));
            }
            if bucket.passed == 0 {
                return None;
            }
            at = self.behind(at);
        }
        None
    }

    /// Maps the hash's upper half to the buckets evenly.
    fn home(&self, hash: FlowHash) -> usize {
        (((hash.0 >> 32) * self.buckets.len() as u64) >> 32) as usize
    }

    fn behind(&self, at: usize) -> usize {
        if at + 1 == self.buckets.len() {
            0
        } else {
            at + 1
        }
    }
}
