//! Completion queues of a shard: where finished work is reported to the clients.
//!
//! A completion is visible to a polling client at once; a client that sleeps is woken once per
//! batch, in [`CqTable::flush_wakeups`]. Nothing here ever blocks: a wake-up that finds the
//! client's socket full is one the client already has. A CQ that overflows is dead, and with it
//! the queue pairs that use it, and nothing else (RFC 5040 section 8.1.1, requirement 10).

use std::os::fd::OwnedFd;
use std::sync::Arc;

use rnic_ipc::id::{ClientId, CqId};
use rnic_ipc::ring::{CqProducer, CqPushError};
use rnic_ipc::work::Completion;

use crate::prefetch::fetch_line;
use crate::slot_table::SlotTable;

#[cfg(test)]
mod tests;

/// All the CQs of a shard.
#[derive(Debug, Default)]
pub struct CqTable {
    queues: SlotTable<Cq>,
    /// CQs that got completions since the last flush; each at most once.
    dirty: Vec<CqId>,
    /// CQs that died and were not reported yet; each at most once.
    failed: Vec<CqId>,
}

#[derive(Debug)]
struct Cq {
    client: ClientId,
    ring: CqProducer,
    notify: Arc<OwnedFd>,
    dirty: bool,
    solicited: bool,
    failed: Option<CqPushError>,
}

/// A CQ that can't take completions any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CqFailure {
    pub client: ClientId,
    pub cq: CqId,
    pub error: CqPushError,
}

/// The completion could not be reported: the CQ is dead or does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("completion queue {cq} takes no completions any more")]
pub struct CqDead {
    pub cq: CqId,
}

impl CqTable {
    /// An empty table that tells of up to `capacity` CQs without allocating.
    pub fn new(capacity: usize) -> Self {
        Self {
            queues: SlotTable::new(capacity),
            dirty: Vec::with_capacity(capacity),
            failed: Vec::with_capacity(capacity),
        }
    }

    /// Adds a CQ. `notify` gets one byte, without blocking, when the armed CQ gets a completion.
    /// False, and nothing done, when there is one of this name already.
    pub fn add(
        &mut self,
        client: ClientId,
        cq: CqId,
        ring: CqProducer,
        notify: Arc<OwnedFd>,
    ) -> bool {
        if self.queues.contains(cq.0) {
            return false;
        }
        let entry = Cq {
            client,
            ring,
            notify,
            dirty: false,
            solicited: false,
            failed: None,
        };
        self.queues.insert(cq.0, entry);
        true
    }

    /// Gives a CQ another ring, which takes its completions from now on. False, and nothing done, when there
    /// is none of this name or it has failed.
    pub fn replace_ring(&mut self, cq: CqId, mut ring: CqProducer) -> bool {
        match self.queues.get_mut(cq.0) {
            Some(entry) if entry.failed.is_none() => {
                let looks = ring.follow(&entry.ring);
                entry.ring = ring;
                if looks {
                    entry.solicited = true;
                    if !std::mem::replace(&mut entry.dirty, true) {
                        self.dirty.push(cq);
                    }
                }
                true
            }
            _ => false,
        }
    }

    /// A CQ takes nothing any more, because it does not in another shard. False when there is none.
    pub fn fail(&mut self, cq: CqId) -> bool {
        let Some(entry) = self.queues.get_mut(cq.0) else {
            return false;
        };
        if entry.failed.is_none() {
            let depth = entry.ring.depth();
            entry.failed = Some(CqPushError::Overflow { depth });
            self.failed.push(cq);
        }
        true
    }

    /// Takes a CQ away. False when there is none.
    pub fn remove(&mut self, cq: CqId) -> bool {
        self.dirty.retain(|other| *other != cq);
        self.failed.retain(|other| *other != cq);
        self.queues.remove(cq.0).is_some()
    }

    /// Whether a CQ takes completions: it is there and has not failed.
    pub fn is_usable(&self, cq: CqId) -> bool {
        let entry = self.queues.get(cq.0);
        entry.is_some_and(|entry| entry.failed.is_none())
    }

    /// CQs in the table.
    pub fn len(&self) -> usize {
        self.queues.len()
    }

    /// Are there none?
    pub fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    /// Puts a completion. `solicited`: it wakes also a client that waits for solicited ones only,
    /// as errors do.
    #[inline(always)]
    pub fn push(
        &mut self,
        cq: CqId,
        completion: &Completion,
        solicited: bool,
    ) -> Result<(), CqDead> {
        let entry = self.queues.get_mut(cq.0).ok_or(CqDead { cq })?;
        if entry.failed.is_some() {
            return Err(CqDead { cq });
        }
        if let Err(error) = entry.ring.push(completion) {
            entry.failed = Some(error);
            self.failed.push(cq);
            return Err(CqDead { cq });
        }
        // Of a deep CQ each line is in no cache any more when its turn comes.
        fetch_line(entry.ring.memory_ahead());
        entry.solicited |= solicited;
        if !entry.dirty {
            entry.dirty = true;
            self.dirty.push(cq);
        }
        Ok(())
    }

    /// Whether [`Self::flush_wakeups`] or [`Self::poll_failure`] has something to do.
    pub fn has_notifications(&self) -> bool {
        !self.dirty.is_empty() || !self.failed.is_empty()
    }

    /// Wakes the clients that wait for what was pushed since the last call. Called once per batch.
    pub fn flush_wakeups(&mut self) {
        for cq in self.dirty.drain(..) {
            let Some(entry) = self.queues.get_mut(cq.0) else {
                continue;
            };
            entry.dirty = false;
            let solicited = std::mem::take(&mut entry.solicited);
            if entry.ring.take_armed(solicited) {
                wake(&entry.notify);
            }
        }
    }

    /// CQs whose memory is gone, and whose they are.
    pub fn broken(&self) -> impl Iterator<Item = (ClientId, CqId)> {
        let broken = self.queues.iter().filter(|(_, cq)| cq.ring.is_broken());
        broken.map(|(name, cq)| (cq.client, CqId(name)))
    }

    /// The next CQ that died. Its queue pairs must go to Error ([`crate::qp::Qp::cq_failed`]) and
    /// its client be told.
    pub fn poll_failure(&mut self) -> Option<CqFailure> {
        while let Some(cq) = self.failed.pop() {
            if let Some(entry) = self.queues.get(cq.0)
                && let Some(error) = entry.failed
            {
                return Some(CqFailure {
                    client: entry.client,
                    cq,
                    error,
                });
            }
        }
        None
    }
}

/// One byte is enough, and a full socket already holds one. If the other end is closed, nobody waits for the
/// wake-up. So the result does not matter.
fn wake(notify: &OwnedFd) {
    let flags = rustix::net::SendFlags::DONTWAIT | rustix::net::SendFlags::NOSIGNAL;
    let _ = rustix::net::send(notify, &[1], flags);
}
