//! Memory of queues that are empty most of the time: lent to a queue pair while it has something in
//! them, so that one at rest holds none. It is allocated when more queues than ever before have
//! something at once, and used again ever after.

use std::collections::VecDeque;

use rnic_ipc::ring::WorkRequest;

use super::pending::Entry;
use super::respond::Response;

/// The most queues without a user whose memory is kept for the next one.
const SPARE_MAX: usize = 1024;

/// The most elements that the memory so kept may have room for, all together: long queues whose
/// client is gone leave no more than that behind (some 25 MB for pending work).
const SPARE_ELEMENTS_MAX: usize = 1 << 18;

/// What the queue pairs of a shard are lent.
#[derive(Debug, Default)]
pub struct Lent {
    pub(super) pending: Lender<Entry>,
    pub(super) responses: Lender<Response>,
    /// A receive that is looked at and not taken.
    pub(super) receive: WorkRequest,
}

/// Memory for queues of one kind.
#[derive(Debug)]
pub(super) struct Lender<T> {
    spare: Vec<VecDeque<T>>,
    /// Elements that `spare` has room for.
    room: usize,
    /// Queues that have memory.
    out: usize,
}

impl<T> Default for Lender<T> {
    fn default() -> Self {
        Self {
            spare: Vec::with_capacity(SPARE_MAX),
            room: 0,
            out: 0,
        }
    }
}

impl Lent {
    /// Queues whose memory is lent.
    pub fn count(&self) -> usize {
        self.pending.out + self.responses.out
    }
}

impl<T> Lender<T> {
    /// Puts an element into a queue that never has more than `most`.
    pub(super) fn push(&mut self, queue: &mut VecDeque<T>, element: T, most: usize) {
        if queue.capacity() == 0 {
            self.out += 1;
            *queue = self.spare.pop().unwrap_or_default();
            self.room -= queue.capacity();
        }
        // Once: the same memory then does for every queue that is no longer.
        queue.reserve_exact(most.saturating_sub(queue.len()));
        queue.push_back(element);
    }

    /// Takes the memory of a queue back if nothing is in it.
    pub(super) fn settle(&mut self, queue: &mut VecDeque<T>) {
        if queue.is_empty() && queue.capacity() > 0 {
            self.out = self.out.saturating_sub(1);
            let memory = std::mem::take(queue);
            let room = self.room + memory.capacity();
            if self.spare.len() < SPARE_MAX && room <= SPARE_ELEMENTS_MAX {
                self.spare.push(memory);
                self.room = room;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_used_again_and_an_empty_queue_has_none() {
        let mut lender = Lender::default();
        let mut queues = [VecDeque::new(), VecDeque::new()];
        for round in 0..3 {
            for queue in &mut queues {
                lender.push(queue, round, 8);
                lender.push(queue, round, 8);
                assert!(queue.capacity() >= 8);
                queue.pop_front();
                lender.settle(queue);
                assert_eq!(queue.len(), 1, "what is in use stays");
                queue.pop_front();
                lender.settle(queue);
                assert_eq!(queue.capacity(), 0);
                lender.settle(queue);
            }
            assert_eq!(lender.spare.len(), 1, "one at a time needs one");
            assert_eq!(lender.out, 0);
        }
    }

    #[test]
    fn no_more_is_kept_than_the_most() {
        let mut lender = Lender::default();
        let mut queues: Vec<VecDeque<u8>> = Vec::new();
        queues.resize_with(SPARE_MAX + 1, VecDeque::new);
        for queue in &mut queues {
            lender.push(queue, 0, 1);
        }
        for queue in &mut queues {
            queue.clear();
            lender.settle(queue);
        }
        assert_eq!(lender.spare.len(), SPARE_MAX);
        assert_eq!(lender.spare.capacity(), SPARE_MAX);
    }

    /// A client with many long queues can't leave their memory behind in the daemon.
    #[test]
    fn long_queues_leave_no_more_behind_than_is_allowed() {
        let mut lender = Lender::default();
        let mut queues: Vec<VecDeque<u8>> = Vec::new();
        queues.resize_with(100, VecDeque::new);
        for queue in &mut queues {
            lender.push(queue, 0, 16_384);
        }
        for queue in &mut queues {
            queue.clear();
            lender.settle(queue);
        }
        let kept = |lender: &Lender<u8>| lender.spare.iter().map(VecDeque::capacity).sum::<usize>();
        assert_eq!(lender.spare.len(), 16);
        assert_eq!(kept(&lender), lender.room);
        assert!(kept(&lender) <= SPARE_ELEMENTS_MAX);
        lender.push(&mut queues[0], 0, 8);
        assert_eq!(kept(&lender), lender.room);
    }
}
