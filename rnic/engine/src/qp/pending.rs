//! Work requests of the send queue that were taken and have not completed yet, in posting order. They
//! complete in that order (RFC 5040 section 5.5, rule 15). Their number is bounded by the depth of the send
//! queue; the memory is borrowed from a pool while there are any.
//!
//! After the first request that fails, no later one succeeds. What was handed to the LLP after it is flushed
//! too, because its outcome is unknown (RFC 5040 section 6.2.1).

use std::collections::VecDeque;

use super::spares::Spares;
use rnic_ipc::work::{Sge, WcStatus};
use rnic_proto::{Msn, Qn};
use userspace_net::Instant;

/// The ring of pending work requests.
#[derive(Debug)]
pub(super) struct Pending {
    /// One before all others that was sent: nothing more is to be remembered of it, and no memory is
    /// lent for it.
    sent: Option<Posted>,
    entries: VecDeque<Entry>,
    /// The ticket of the front entry.
    first: u64,
    depth: usize,
    /// One completed otherwise than with success.
    broken: bool,
}

/// Names a pending work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ticket(pub u64);

/// What a work request's completion says of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Posted {
    pub wr_id: u64,
    /// When it was taken off the send queue.
    pub taken: Instant,
    /// As the client wrote it.
    pub opcode: u8,
    /// A completion is wanted also on success.
    pub signaled: bool,
    /// Flags that the completion has in any case.
    pub flags: u16,
}

/// A work request that is under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    posted: Posted,
    /// Bytes that a Read or an atomic brings.
    pub read_len: u32,
    /// Where an atomic's original value goes.
    pub sink: Option<Sge>,
    /// Responses that a Read still waits for: one for each of its Read Requests.
    pub reads_left: u8,
    /// The untagged messages that it became.
    pub messages: Option<Messages>,
    /// How it ended, when it has.
    pub outcome: Option<Outcome>,
}

impl Entry {
    pub(super) fn new(posted: Posted) -> Self {
        Self {
            posted,
            read_len: 0,
            sink: None,
            reads_left: 0,
            messages: None,
            outcome: None,
        }
    }

    /// It became this message; one after the other when there are several.
    pub(super) fn became(&mut self, qn: Qn, msn: Msn) {
        let messages = self.messages.get_or_insert(Messages {
            qn,
            first: msn,
            count: 0,
        });
        messages.count += 1;
    }
}

/// Consecutive messages of one queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Messages {
    qn: Qn,
    first: Msn,
    count: u32,
}

impl Messages {
    fn contains(&self, qn: Qn, msn: Msn) -> bool {
        qn == self.qn && msn.0.wrapping_sub(self.first.0) < self.count
    }
}

/// How a work request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Outcome {
    pub status: WcStatus,
    /// Bytes read.
    pub byte_len: u32,
}

impl Outcome {
    /// It was handed to the LLP, and needs no answer.
    pub(super) const SENT: Self = Self {
        status: WcStatus::Success,
        byte_len: 0,
    };

    /// The peer's RNIC is gone.
    pub(super) const LOST: Self = Self {
        status: WcStatus::RetryExceeded,
        byte_len: 0,
    };

    /// It was not done, or nobody knows.
    pub(super) const FLUSHED: Self = Self {
        status: WcStatus::WorkRequestFlushed,
        byte_len: 0,
    };
}

impl Pending {
    pub(super) fn new(depth: usize) -> Self {
        Self {
            sent: None,
            entries: VecDeque::new(),
            first: 0,
            depth,
            broken: false,
        }
    }

    /// Nothing is pending, and nothing went wrong yet.
    pub(super) fn reset(&mut self) {
        debug_assert!(self.is_empty());
        self.broken = false;
    }

    pub(super) fn is_full(&self) -> bool {
        self.entries.len() + usize::from(self.sent.is_some()) >= self.depth
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.sent.is_none()
    }

    /// Appends a work request that was sent, and of which nothing more is to be remembered, if none is
    /// pending.
    #[inline]
    pub(super) fn push_sent(&mut self, posted: Posted) -> bool {
        let first = self.is_empty();
        if first {
            self.sent = Some(posted);
        }
        first
    }

    /// Appends a work request; the caller has looked that there is room.
    pub(super) fn push(&mut self, entry: Entry, spares: &mut Spares<Entry>) -> Ticket {
        debug_assert!(!self.is_full());
        let ticket = Ticket(self.first.wrapping_add(self.entries.len() as u64));
        spares.push(&mut self.entries, entry, self.depth);
        ticket
    }

    /// Gives its memory back if nothing is pending.
    pub(super) fn release_if_empty(&mut self, spares: &mut Spares<Entry>) {
        spares.release_if_empty(&mut self.entries);
    }

    /// Work requests that may be pending.
    pub(super) fn depth(&self) -> usize {
        self.depth
    }

    /// The work request with this ticket, if it is still here.
    pub(super) fn get_mut(&mut self, ticket: Ticket) -> Option<&mut Entry> {
        let index = usize::try_from(ticket.0.wrapping_sub(self.first)).ok()?;
        self.entries.get_mut(index)
    }

    /// The work request that became this message, if it is still here.
    pub(super) fn find(&self, qn: Qn, msn: Msn) -> Option<Ticket> {
        let index = self.entries.iter().position(|entry| {
            let messages = entry.messages.as_ref();
            messages.is_some_and(|messages| messages.contains(qn, msn))
        })?;
        Some(Ticket(self.first.wrapping_add(index as u64)))
    }

    /// Says how a work request ended. It completes when those before it have.
    pub(super) fn end(&mut self, ticket: Ticket, outcome: Outcome) {
        if let Some(entry) = self.get_mut(ticket) {
            entry.outcome = Some(outcome);
        }
    }

    /// Says that one of a Read's responses, or an atomic's, is here, all of it. With the last one the
    /// work has ended.
    pub(super) fn responded(&mut self, ticket: Ticket) {
        if let Some(entry) = self.get_mut(ticket) {
            entry.reads_left = entry.reads_left.saturating_sub(1);
            if entry.reads_left > 0 {
                return;
            }
            let outcome = Outcome {
                status: WcStatus::Success,
                byte_len: entry.read_len,
            };
            entry.outcome = Some(outcome);
        }
    }

    /// Says how a work request ended and that those before it will never end by themselves.
    pub(super) fn end_up_to(&mut self, ticket: Ticket, outcome: Outcome) {
        let Ok(index) = usize::try_from(ticket.0.wrapping_sub(self.first)) else {
            return;
        };
        if index >= self.entries.len() {
            return;
        }
        for entry in self.entries.iter_mut().take(index) {
            entry.outcome.get_or_insert(Outcome::FLUSHED);
        }
        self.end(ticket, outcome);
    }

    /// Says how the oldest that has not ended does.
    pub(super) fn end_first(&mut self, outcome: Outcome) {
        if let Some(entry) = (self.entries.iter_mut()).find(|entry| entry.outcome.is_none()) {
            entry.outcome = Some(outcome);
        }
    }

    #[cfg(test)]
    pub(super) fn memory(&self) -> usize {
        self.entries.capacity()
    }

    /// Takes the oldest work request when it has ended.
    pub(super) fn pop_ended(&mut self) -> Option<(Posted, Outcome)> {
        if self.sent.is_none() {
            self.entries.front()?.outcome?;
        }
        self.pop()
    }

    /// Takes the oldest work request, ended or not: then it is flushed.
    pub(super) fn pop(&mut self) -> Option<(Posted, Outcome)> {
        let (posted, ended) = match self.sent.take() {
            Some(sent) => (sent, Outcome::SENT),
            None => {
                let entry = self.entries.pop_front()?;
                self.first = self.first.wrapping_add(1);
                (entry.posted, entry.outcome.unwrap_or(Outcome::FLUSHED))
            }
        };
        let success = ended.status == WcStatus::Success;
        let outcome = match success && self.broken {
            true => Outcome::FLUSHED,
            false => ended,
        };
        self.broken |= !success;
        Some((posted, outcome))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn posted(wr_id: u64) -> Posted {
        Posted {
            wr_id,
            taken: Instant::ZERO,
            opcode: 0,
            signaled: true,
            flags: 0,
        }
    }

    fn entry(wr_id: u64) -> Entry {
        Entry::new(posted(wr_id))
    }

    const DONE: Outcome = Outcome {
        status: WcStatus::Success,
        byte_len: 0,
    };

    #[test]
    fn work_completes_in_the_order_of_posting() {
        let mut pending = Pending::new(2);
        let spares = &mut Spares::default();
        let first = pending.push(entry(1), spares);
        let second = pending.push(entry(2), spares);
        assert!(pending.is_full());
        pending.end(second, DONE);
        assert!(pending.pop_ended().is_none());
        pending.end(first, DONE);
        assert_eq!(pending.pop_ended().unwrap().0.wr_id, 1);
        assert_eq!(pending.pop_ended().unwrap().0.wr_id, 2);
        assert!(pending.pop_ended().is_none());
    }

    #[test]
    fn behind_what_did_not_succeed_only_an_error_of_its_own_is_told() {
        let failed = |status| Outcome {
            status,
            byte_len: 0,
        };
        let spares = &mut Spares::default();
        let mut pending = Pending::new(8);
        let tickets: Vec<_> = (0..6).map(|id| pending.push(entry(id), spares)).collect();
        for index in [0, 2, 4] {
            pending.end(tickets[index], DONE);
        }
        pending.end_up_to(tickets[3], failed(WcStatus::RemoteAccess));
        let ended: Vec<_> = std::iter::from_fn(|| pending.pop_ended())
            .map(|(entry, outcome)| (entry.wr_id, outcome.status))
            .collect();
        let flushed = WcStatus::WorkRequestFlushed;
        let expected = [
            (0, WcStatus::Success),
            (1, flushed),
            (2, flushed),
            (3, WcStatus::RemoteAccess),
            (4, flushed),
        ];
        assert_eq!(ended, expected);
        let (last, outcome) = pending.pop().unwrap();
        assert_eq!((last.wr_id, outcome.status), (5, flushed));
        pending.reset();
        let ticket = pending.push(entry(6), spares);
        pending.end(ticket, DONE);
        assert_eq!(pending.pop_ended().unwrap().1, DONE);
    }

    #[test]
    fn what_was_sent_comes_first_and_takes_a_place() {
        let mut pending = Pending::new(2);
        let spares = &mut Spares::default();
        assert!(pending.push_sent(posted(1)));
        assert!(!pending.is_empty());
        assert!(!pending.push_sent(posted(2)), "one is enough");
        let second = pending.push(entry(2), spares);
        assert!(pending.is_full());
        assert_eq!(pending.pop_ended().map(|(sent, _)| sent.wr_id), Some(1));
        assert!(pending.pop_ended().is_none());
        assert!(!pending.push_sent(posted(3)), "it would overtake another");
        pending.end(second, DONE);
        assert_eq!(pending.pop_ended().map(|(sent, _)| sent.wr_id), Some(2));
        assert!(pending.is_empty());
    }

    #[test]
    fn a_ticket_of_work_that_is_gone_names_nothing() {
        let mut pending = Pending::new(2);
        let spares = &mut Spares::default();
        let first = pending.push(entry(1), spares);
        pending.pop();
        pending.push(entry(2), spares);
        pending.end(first, DONE);
        assert!(pending.pop_ended().is_none());
    }
}
