//! Which queue pairs are joined to which, and what peers have asked. No I/O and no clock: the caller does what it says.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use rnic_ipc::control::{JoinEnd, MpaOptions};
use rnic_ipc::id::{ClientId, ConnRequestId, QpNum};

use super::hello::{End, Hello};

/// Requests that wait for a queue pair of this side to be joined.
const EARLY_MAX: usize = 64;
/// Of them those of one peer address.
const EARLY_OF_PEER_MAX: usize = 8;
/// How long one waits.
pub(super) const EARLY_WAIT: Duration = Duration::from_secs(2);
/// How long after the first attempt the next one begins, and at most after a later one.
pub(super) const RETRY_FIRST: Duration = Duration::from_millis(1);
pub(super) const RETRY_MAX: Duration = Duration::from_millis(512);

/// A queue pair that is joined.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Join {
    pub(crate) client: ClientId,
    pub(crate) local: JoinEnd,
    pub(crate) remote: JoinEnd,
    pub(crate) mpa: MpaOptions,
}

impl Join {
    /// Of two ends the one with the lesser GID and number connects, and the other listens: so connections never cross.
    pub(crate) fn connects(&self) -> bool {
        End::from(self.local) < End::from(self.remote)
    }

    /// What this side says of it.
    pub(crate) fn hello(&self) -> Hello {
        Hello {
            from: self.local.into(),
            to: self.remote.into(),
        }
    }

    /// What the peer says of it.
    pub(crate) fn answer(&self) -> Hello {
        let Hello { from, to } = self.hello();
        Hello { from: to, to: from }
    }

    /// Whether a peer from this address says so.
    fn is_asked_by(&self, ends: (IpAddr, IpAddr), hello: &Hello) -> bool {
        (self.local.address, self.remote.address) == ends && self.answer() == *hello
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The peer has to connect.
    Waiting,
    /// An attempt to connect begins then.
    Due(Instant),
    /// It connects, or has accepted.
    Begun,
    Connected,
}

#[derive(Debug)]
struct Entry {
    join: Join,
    phase: Phase,
    /// How long after a failed attempt the next one begins.
    pause: Duration,
}

impl Entry {
    fn waits_for(&self, ends: (IpAddr, IpAddr), hello: &Hello) -> bool {
        self.phase == Phase::Waiting && self.join.is_asked_by(ends, hello)
    }
}

/// A peer's request that came before the queue pair that it names was joined.
#[derive(Debug)]
struct Early {
    request: ConnRequestId,
    /// Local and remote address.
    ends: (IpAddr, IpAddr),
    hello: Hello,
    until: Instant,
}

/// What to do with a peer's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Accept(QpNum),
    /// It waits.
    Keep,
    Reject,
}

/// All joins of a device.
#[derive(Debug, Default)]
pub(crate) struct Table {
    entries: HashMap<QpNum, Entry>,
    early: Vec<Early>,
}

impl Table {
    pub(crate) fn contains(&self, qp: QpNum) -> bool {
        self.entries.contains_key(&qp)
    }

    /// A queue pair is to be joined from now on.
    pub(crate) fn add(&mut self, qp: QpNum, join: Join, now: Instant) {
        let phase = match join.connects() {
            true => Phase::Due(now),
            false => Phase::Waiting,
        };
        let pause = RETRY_FIRST;
        self.entries.insert(qp, Entry { join, phase, pause });
    }

    /// It is joined no more. Gives what it was joined to.
    pub(crate) fn remove(&mut self, qp: QpNum) -> Option<Join> {
        self.entries.remove(&qp).map(|entry| entry.join)
    }

    /// Whether a join is at this address.
    pub(crate) fn has_any_at(&self, local: IpAddr) -> bool {
        let mut all = self.entries.values();
        all.any(|entry| entry.join.local.address == local)
    }

    pub(crate) fn get(&self, qp: QpNum) -> Option<Join> {
        self.entries.get(&qp).map(|entry| entry.join)
    }

    pub(crate) fn is_connected(&self, qp: QpNum) -> bool {
        self.entries
            .get(&qp)
            .is_some_and(|entry| entry.phase == Phase::Connected)
    }

    /// A peer asked. A queue pair that is to be accepted is begun.
    pub(crate) fn requested(
        &mut self,
        request: ConnRequestId,
        ends: (IpAddr, IpAddr),
        hello: Hello,
        now: Instant,
    ) -> Verdict {
        let mut all = self.entries.iter_mut();
        if let Some((qp, entry)) = all.find(|(_, entry)| entry.waits_for(ends, &hello)) {
            entry.phase = Phase::Begun;
            return Verdict::Accept(*qp);
        }
        let of_peer = self.early.iter().filter(|early| early.ends.1 == ends.1);
        if self.early.len() >= EARLY_MAX || of_peer.count() >= EARLY_OF_PEER_MAX {
            return Verdict::Reject;
        }
        let until = now + EARLY_WAIT;
        self.early.push(Early {
            request,
            ends,
            hello,
            until,
        });
        Verdict::Keep
    }

    /// A request that waits for a queue pair which waits for it, and has begun now.
    pub(crate) fn next_match(&mut self) -> Option<(ConnRequestId, QpNum)> {
        let entries = &mut self.entries;
        let found = self.early.iter().enumerate().find_map(|(at, early)| {
            let mut all = entries.iter_mut();
            let (qp, entry) = all.find(|(_, entry)| entry.waits_for(early.ends, &early.hello))?;
            entry.phase = Phase::Begun;
            Some((at, *qp))
        });
        let (at, qp) = found?;
        Some((self.early.remove(at).request, qp))
    }

    /// A request's peer went away.
    pub(crate) fn request_gone(&mut self, request: ConnRequestId) {
        self.early.retain(|early| early.request != request);
    }

    /// A request that has waited long enough.
    pub(crate) fn next_expired(&mut self, now: Instant) -> Option<ConnRequestId> {
        let at = self.early.iter().position(|early| early.until <= now)?;
        Some(self.early.remove(at).request)
    }

    /// A queue pair that is to connect now. Another attempt begins later, if nothing else is said meanwhile.
    pub(crate) fn next_due(&mut self, now: Instant) -> Option<(QpNum, Join)> {
        let mut all = self.entries.iter_mut();
        let is_due = |entry: &Entry| matches!(entry.phase, Phase::Due(at) if at <= now);
        let (qp, entry) = all.find(|(_, entry)| is_due(entry))?;
        entry.put_off(now);
        Some((*qp, entry.join))
    }

    /// An attempt has begun.
    pub(crate) fn begun(&mut self, qp: QpNum) {
        self.set(qp, Phase::Begun);
    }

    pub(crate) fn connected(&mut self, qp: QpNum) {
        self.set(qp, Phase::Connected);
    }

    /// An attempt has failed.
    pub(crate) fn failed(&mut self, qp: QpNum, now: Instant) {
        let Some(entry) = self.entries.get_mut(&qp) else {
            return;
        };
        match entry.join.connects() {
            true => entry.put_off(now),
            false => entry.phase = Phase::Waiting,
        }
    }

    /// When there is something to do.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let attempts = self.entries.values().filter_map(|entry| match entry.phase {
            Phase::Due(at) => Some(at),
            _ => None,
        });
        let early = self.early.iter().map(|early| early.until);
        attempts.chain(early).min()
    }

    fn set(&mut self, qp: QpNum, phase: Phase) {
        if let Some(entry) = self.entries.get_mut(&qp) {
            entry.phase = phase;
        }
    }
}

impl Entry {
    fn put_off(&mut self, now: Instant) {
        self.phase = Phase::Due(now + self.pause);
        self.pause = (self.pause * 2).min(RETRY_MAX);
    }
}

#[cfg(test)]
mod tests;
