//! The connections whose streams wait for a receive to be posted ([`crate::qp`]), in the order in which they began
//! to wait.
//!
//! In each poll the shard looks at the queues of some of them. The doorbell of a queue pair wakes it when that one's
//! own queue is posted to. Nobody rings for a shared receive queue: so a shard that sleeps looks again by itself, after
//! ever longer times.

use std::collections::VecDeque;
use std::time::Duration;

use rnic_ipc::id::{QpNum, SrqId};
use userspace_net::Instant;
use userspace_tcp::ConnId;

use crate::srq::SrqTable;

/// How soon a shard that sleeps looks again after a hold began, at first and at last.
const SOONEST: Duration = Duration::from_micros(250);
const LATEST: Duration = Duration::from_millis(8);

/// A connection whose stream waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Holder {
    pub id: ConnId,
    pub qp: QpNum,
    /// The shared queue that it waits for.
    pub srq: Option<SrqId>,
}

/// Those that there are. Each connection is there once; one that has ended is until it is looked at.
#[derive(Debug)]
pub(super) struct Holds {
    queue: VecDeque<Holder>,
    /// When the last began.
    begun: Instant,
}

impl Holds {
    /// Room for so many without allocating.
    pub fn new(connections: usize, now: Instant) -> Self {
        Self {
            queue: VecDeque::with_capacity(connections),
            begun: now,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub fn len(&self) -> usize {
        self.queue.len()
    }

    pub fn begin(&mut self, srqs: &mut SrqTable, holder: Holder, now: Instant) {
        self.begun = now;
        self.wait_on(srqs, holder);
    }

    /// One waits on, behind all others.
    pub fn wait_on(&mut self, srqs: &mut SrqTable, holder: Holder) {
        if let Some(srq) = holder.srq {
            srqs.wait(srq);
        }
        self.queue.push_back(holder);
    }

    /// Takes the one that has waited longest.
    pub fn take_first(&mut self, srqs: &mut SrqTable) -> Option<Holder> {
        let holder = self.queue.pop_front()?;
        if let Some(srq) = holder.srq {
            srqs.end_wait(srq);
        }
        Some(holder)
    }

    /// All of them, the one that has waited longest first.
    pub fn iter(&self) -> impl Iterator<Item = &Holder> {
        self.queue.iter()
    }

    /// When to look at the queues again at the latest.
    pub fn next_look(&self, now: Instant) -> Option<Instant> {
        if self.is_empty() {
            return None;
        }
        let age = now.saturating_duration_since(self.begun);
        Some(now + (age / 4).clamp(SOONEST, LATEST))
    }
}
