//! Which shard of an interface has a flow.
//!
//! The NIC's hash, or the sender over a veth pair, decides to which queue and so to which shard a segment comes. A
//! connection is where its SYN came, or where it was begun. The two may differ: the hash of a connection that was begun
//! here isn't known, the operator changes it, and fragments have another. So all shards write their connections' flows
//! into one table, and one that finds a segment of none of its own looks there.
//!
//! An entry is a word: a part of the flow's keyed hash, and the shard. It is written when a connection begins and when
//! it is over, by its shard, and read by others only for segments of no connection of theirs. So no lock is needed, and
//! the cache lines are shared. A look that is wrong does no harm: a segment goes to a shard that knows its flow no
//! better, and is treated there as one of no connection.

#[cfg(test)]
mod tests;

use std::hash::Hasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rnic_ipc::control::Transport;
use userspace_net::FourTuple;
use userspace_net::keyed::Secret;

/// Flows in a bucket: one cache line.
const SLOTS: usize = 8;
/// Slots for each flow that there may be. Each flow has two buckets to choose from, so that a full table, of which a
/// quarter is used, has a place for each but once in a very long time.
const SPARE: usize = 4;
/// The part of an entry that says whose it is: a shard's number and 1.
const SHARD_BITS: u32 = 8;
const SHARD_MASK: u64 = (1 << SHARD_BITS) - 1;
/// Of an entry whose connection is on its way to the shard. There are at most 64 shards.
const AWAITED: u64 = 1 << (SHARD_BITS - 1);
const _: () = assert!((crate::shard::SHARDS_MAX as u64) < AWAITED);
/// No flow.
const EMPTY: u64 = 0;

#[derive(Debug)]
pub(crate) struct FlowOwners {
    secret: Secret,
    buckets: Box<[Bucket]>,
}

#[derive(Debug, Default)]
#[repr(align(64))]
struct Bucket([AtomicU64; SLOTS]);

/// A flow as the table has it.
#[derive(Clone, Copy, Debug)]
struct Key {
    /// Of an entry, without the shard.
    tag: u64,
    buckets: [usize; 2],
}

/// Enters a shard's flows where its siblings look.
#[derive(Clone, Debug)]
pub(crate) struct OwnFlows {
    shard: u8,
    owners: Arc<FlowOwners>,
}

impl FlowOwners {
    /// A table for so many flows, of which a connection has one with each address of its peer. `secret` must be random: nobody else may know which flows are in one bucket.
    pub fn new(flows: usize, secret: [u8; 16]) -> Self {
        let buckets = (flows.max(1) * SPARE).div_ceil(SLOTS);
        Self {
            secret: Secret::new(secret),
            buckets: (0..buckets).map(|_| Bucket::default()).collect(),
        }
    }

    /// A connection of this shard has this flow. Says whether there was a place for it: if not, its segments must come
    /// to its shard by themselves.
    fn enter(&self, shard: u8, transport: Transport, tuple: &FourTuple) -> bool {
        let key = self.key(transport, tuple);
        self.put(&key, key.entry(shard))
    }

    /// The same of a connection that is on its way to the shard.
    fn enter_awaited(&self, shard: u8, transport: Transport, tuple: &FourTuple) -> bool {
        let key = self.key(transport, tuple);
        self.put(&key, key.entry(shard) | AWAITED)
    }

    fn put(&self, key: &Key, entry: u64) -> bool {
        let used = |bucket: &usize| {
            let slots = &self.buckets[*bucket].0;
            slots
                .iter()
                .filter(|slot| slot.load(Ordering::Relaxed) != EMPTY)
                .count()
        };
        let mut buckets = key.buckets;
        buckets.sort_by_key(used);
        let mut slots = buckets.iter().flat_map(|bucket| &self.buckets[*bucket].0);
        slots.any(|slot| replace(slot, EMPTY, entry))
    }

    /// A connection of this shard is over. Once for each time that it was entered.
    fn remove(&self, shard: u8, transport: Transport, tuple: &FourTuple) {
        let key = self.key(transport, tuple);
        let entry = key.entry(shard);
        // It is there, unless there was no place.
        let _ = self.slots(&key).any(|slot| replace(slot, entry, EMPTY));
    }

    /// The shard that a segment of this flow is for, if it is another than this one.
    fn other_than(&self, shard: u8, transport: Transport, tuple: &FourTuple) -> Option<u8> {
        let key = self.key(transport, tuple);
        let mut found = None;
        for slot in self.slots(&key) {
            match key.owner(slot.load(Ordering::Acquire)) {
                Some(owner) if owner == shard => return None,
                Some(owner) => found = Some(owner),
                None => {}
            }
        }
        found
    }

    /// The connection has come, or does not come.
    fn leave_awaited(&self, shard: u8, transport: Transport, tuple: &FourTuple) {
        let key = self.key(transport, tuple);
        let entry = key.entry(shard) | AWAITED;
        let _ = self.slots(&key).any(|slot| replace(slot, entry, EMPTY));
    }

    /// Whether a connection with this flow is on its way to the shard.
    fn expects(&self, shard: u8, transport: Transport, tuple: &FourTuple) -> bool {
        let key = self.key(transport, tuple);
        let entry = key.entry(shard) | AWAITED;
        let mut slots = self.slots(&key);
        slots.any(|slot| slot.load(Ordering::Acquire) == entry)
    }

    fn slots(&self, key: &Key) -> impl Iterator<Item = &AtomicU64> {
        key.buckets
            .into_iter()
            .flat_map(|bucket| &self.buckets[bucket].0)
    }

    fn key(&self, transport: Transport, tuple: &FourTuple) -> Key {
        let purpose = match transport {
            Transport::Tcp => b"tcp",
            Transport::Sctp => b"sct",
        };
        let hash = self.secret.hasher(purpose, tuple).finish();
        let bucket =
            |bits: u64| (((bits & 0xffff_ffff) * self.buckets.len() as u64) >> 32) as usize;
        Key {
            tag: hash & !SHARD_MASK,
            buckets: [bucket(hash), bucket(hash >> 32)],
        }
    }
}

impl OwnFlows {
    pub fn new(shard: u8, owners: &Arc<FlowOwners>) -> Self {
        Self {
            shard,
            owners: Arc::clone(owners),
        }
    }

    /// The shard that a segment of this flow is for, if it is another one.
    pub fn other_owner(&self, transport: Transport, tuple: &FourTuple) -> Option<u8> {
        self.owners.other_than(self.shard, transport, tuple)
    }

    /// A connection has this flow from now on. Says whether others can know.
    pub fn enter(&self, transport: Transport, tuple: &FourTuple) -> bool {
        self.owners.enter(self.shard, transport, tuple)
    }

    /// A connection with this flow is about to go to another shard, which awaits it. Says whether others can know.
    pub fn send_to(&self, shard: u8, transport: Transport, tuple: &FourTuple) -> bool {
        self.owners.enter_awaited(shard, transport, tuple)
    }

    /// It does not go there.
    pub fn keep_from(&self, shard: u8, transport: Transport, tuple: &FourTuple) {
        self.owners.leave_awaited(shard, transport, tuple);
    }

    /// Whether a connection with this flow is on its way to this shard.
    pub fn expects(&self, transport: Transport, tuple: &FourTuple) -> bool {
        self.owners.expects(self.shard, transport, tuple)
    }

    /// It has come, or does not come.
    pub fn stop_expecting(&self, transport: Transport, tuple: &FourTuple) {
        self.owners.leave_awaited(self.shard, transport, tuple);
    }

    /// It is over. Once for each [`Self::enter`].
    pub fn remove(&self, transport: Transport, tuple: &FourTuple) {
        self.owners.remove(self.shard, transport, tuple);
    }
}

impl Key {
    fn entry(&self, shard: u8) -> u64 {
        self.tag | (u64::from(shard) + 1)
    }

    fn owner(&self, entry: u64) -> Option<u8> {
        let shard = (entry & SHARD_MASK & !AWAITED).checked_sub(1)?;
        // The mask leaves it so many bits.
        (entry & !SHARD_MASK == self.tag).then_some(shard as u8)
    }
}

fn replace(slot: &AtomicU64, old: u64, new: u64) -> bool {
    slot.load(Ordering::Relaxed) == old
        && slot
            .compare_exchange(old, new, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
}
