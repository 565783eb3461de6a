//! Events that a program waits for on a descriptor: the descriptor counts what waits, a list has it.

use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::{Condvar, Mutex, PoisonError};

use rustix::event::EventfdFlags;
use rustix::io::{Errno, ReadWriteFlags};

use crate::ffi::{Fail, Outcome};
use crate::lock;

/// Events, and a descriptor of which each takes one read of 8 bytes.
#[derive(Debug)]
pub(crate) struct EventQueue<T> {
    counter: OwnedFd,
    events: Mutex<VecDeque<T>>,
    /// Which made it: [`rnic::process::forks`].
    process: u64,
}

impl<T> EventQueue<T> {
    pub(crate) fn new() -> Outcome<Self> {
        let flags = EventfdFlags::SEMAPHORE | EventfdFlags::CLOEXEC;
        Ok(Self {
            counter: rustix::event::eventfd(0, flags)?,
            events: Mutex::default(),
            process: rnic::process::watch_forks(),
        })
    }

    /// Whether a parent of this process made it. Then the descriptor counts the parent's events.
    pub(crate) fn is_parents(&self) -> bool {
        self.process != rnic::process::forks()
    }

    /// The descriptor that a thread waits on for an event.
    pub(crate) fn fd_to_wait_on(&self) -> Outcome<RawFd> {
        match self.is_parents() {
            true => Err(Fail::of(
                Errno::IO,
                "its events are for this process's parent (fork(2)): make another here",
            )),
            false => Ok(self.fd()),
        }
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.counter.as_raw_fd()
    }

    pub(crate) fn counter(&self) -> BorrowedFd<'_> {
        self.counter.as_fd()
    }

    pub(crate) fn push(&self, event: T) {
        if self.is_parents() {
            return;
        }
        lock(&self.events).push_back(event);
        // It counts to 2^64 - 2.
        if let Err(errno) = rustix::io::write(&self.counter, &1_u64.to_ne_bytes()) {
            log::error!("an event is lost, its descriptor can't be written: {errno}");
        }
    }

    /// The oldest event, for a caller that has read the descriptor. None when it was taken back meanwhile.
    /// `count` notes that it is to be acknowledged, before [`Self::take_back`] could miss it.
    pub(crate) fn take(&self, count: impl FnOnce(&T)) -> Option<T> {
        let mut events = lock(&self.events);
        let event = events.pop_front()?;
        count(&event);
        Some(event)
    }

    /// The oldest event, for who has not read the descriptor.
    pub(crate) fn take_unread(&self) -> Option<T> {
        let event = lock(&self.events).pop_front()?;
        self.forget_one();
        Some(event)
    }

    /// Takes back what `is_meant` picks.
    pub(crate) fn take_back(&self, mut is_meant: impl FnMut(&T) -> bool) -> Vec<T> {
        let mut events = lock(&self.events);
        let all = std::mem::take(&mut *events);
        let (meant, others): (Vec<T>, VecDeque<T>) = {
            let mut meant = Vec::new();
            let mut others = VecDeque::new();
            for event in all {
                match is_meant(&event) {
                    true => meant.push(event),
                    false => others.push_back(event),
                }
            }
            (meant, others)
        };
        *events = others;
        for _ in &meant {
            self.forget_one();
        }
        meant
    }

    /// Counts one less, unless somebody has read it already and will find nothing.
    fn forget_one(&self) {
        if self.is_parents() {
            return;
        }
        let mut count = [0; 8];
        let mut parts = [std::io::IoSliceMut::new(&mut count)];
        let at_no_offset = u64::MAX;
        let read = rustix::io::preadv2(
            &self.counter,
            &mut parts,
            at_no_offset,
            ReadWriteFlags::NOWAIT,
        );
        if let Err(errno) = read
            && errno != Errno::AGAIN
        {
            log::debug!("an event was taken back, but its descriptor can't be read: {errno}");
        }
    }
}

/// Events that a program has been notified of and has not acknowledged.
#[derive(Debug, Default)]
pub(crate) struct Unacknowledged {
    counts: Mutex<Counts>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Counts {
    told: u64,
    acknowledged: u64,
}

impl Unacknowledged {
    pub(crate) fn add_one(&self) {
        lock(&self.counts).told += 1;
    }

    pub(crate) fn acknowledge(&self, events: u32) {
        let mut counts = lock(&self.counts);
        counts.acknowledged = counts.told.min(counts.acknowledged + u64::from(events));
        self.changed.notify_all();
    }

    /// Of how many the program has been told so far.
    pub(crate) fn told(&self) -> u64 {
        lock(&self.counts).told
    }

    /// Waits until so many are acknowledged.
    pub(crate) fn wait_for(&self, events: u64) {
        let counts = lock(&self.counts);
        let waited = self
            .changed
            .wait_while(counts, |counts| counts.acknowledged < events);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    /// Waits until all of now are acknowledged, as the destruction of what they are about does.
    pub(crate) fn wait_for_all(&self) {
        self.wait_for(self.told());
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use rustix::event::{PollFd, PollFlags, poll};

    use super::*;

    fn is_readable<T>(queue: &EventQueue<T>) -> bool {
        let counter = queue.counter();
        let mut fds = [PollFd::new(&counter, PollFlags::IN)];
        poll(&mut fds, Some(&Default::default())).unwrap() > 0
    }

    #[test]
    fn the_descriptor_is_readable_once_for_each_event_that_waits() {
        let queue = EventQueue::new().unwrap();
        assert!(!is_readable(&queue));
        (1..=3).for_each(|event| queue.push(event));
        assert_eq!(queue.take_back(|event| *event == 2), [2]);
        for expected in [1, 3] {
            assert!(is_readable(&queue));
            rustix::io::read(queue.counter(), &mut [0; 8]).unwrap();
            assert_eq!(queue.take(|_| ()), Some(expected));
        }
        assert!(!is_readable(&queue));
    }

    #[test]
    fn destruction_waits_until_events_are_acknowledged() {
        let unacknowledged = Unacknowledged::default();
        unacknowledged.wait_for_all();
        unacknowledged.add_one();
        unacknowledged.add_one();
        unacknowledged.acknowledge(1);
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| unacknowledged.wait_for_all());
            std::thread::sleep(std::time::Duration::from_millis(50));
            assert!(!waiter.is_finished());
            unacknowledged.acknowledge(1);
        });
    }
}
