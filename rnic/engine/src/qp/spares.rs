//! Memory for queues that are empty most of the time. A queue borrows it while it has entries, so an idle
//! queue pair holds none. Up to a bound, memory is allocated for each queue pair when that is made. Beyond the
//! bound, memory is allocated when more queues than ever before have entries at once, and is kept for reuse.

use std::collections::VecDeque;

/// The most queues without a user whose memory is kept for the next one.
const SPARE_MAX: usize = 1024;

/// Upper bound for the elements that the pool keeps in total. Clients with long queues leave at most that
/// much memory (some 25 MB for pending work) after they are gone.
const SPARE_ELEMENTS_MAX: usize = 1 << 18;

/// Sizes of queues: the powers of two.
const SIZES: usize = usize::BITS as usize;

/// Memory for queues of one kind.
#[derive(Debug)]
pub(super) struct Spares<T> {
    /// By the exponent of their size.
    sizes: [Size<T>; SIZES],
    /// Spare queues of all sizes.
    spare: usize,
    /// Elements that those have room for.
    room: usize,
    /// Queues that have memory.
    out: usize,
}

#[derive(Debug)]
struct Size<T> {
    spare: Vec<VecDeque<T>>,
    /// Queues that there are, lent or not.
    made: usize,
    /// Queue pairs that may need one.
    users: usize,
}

impl<T> Default for Size<T> {
    fn default() -> Self {
        Self {
            spare: Vec::new(),
            made: 0,
            users: 0,
        }
    }
}

impl<T> Default for Spares<T> {
    fn default() -> Self {
        Self {
            sizes: std::array::from_fn(|_| Size::default()),
            spare: 0,
            room: 0,
            out: 0,
        }
    }
}

/// The exponent of the size of a queue that never has more than `most`.
fn exponent(most: usize) -> usize {
    let most = most.clamp(1, 1 << (SIZES - 1));
    most.next_power_of_two().trailing_zeros() as usize
}

impl<T> Size<T> {
    /// One more of room for `2^exponent`; giving it back must not allocate.
    fn make(&mut self, exponent: usize) -> VecDeque<T> {
        self.made += 1;
        self.spare.reserve(self.made - self.spare.len());
        VecDeque::with_capacity(1 << exponent)
    }
}

impl<T> Spares<T> {
    /// Queues that have memory.
    pub(super) fn lent(&self) -> usize {
        self.out
    }

    /// There is one user more of queues that never have more than `most`.
    pub(super) fn expect(&mut self, most: usize) {
        let exponent = exponent(most);
        let may_keep = self.may_keep(1 << exponent);
        let size = &mut self.sizes[exponent];
        size.users += 1;
        if may_keep && size.made < size.users {
            let queue = size.make(exponent);
            self.keep(queue);
        }
    }

    /// There is one user less.
    pub(super) fn forget(&mut self, most: usize) {
        let size = &mut self.sizes[exponent(most)];
        size.users = size.users.saturating_sub(1);
        if size.made > size.users
            && let Some(queue) = size.spare.pop()
        {
            size.made -= 1;
            self.spare -= 1;
            self.room -= queue.capacity();
        }
    }

    /// Puts an element into a queue that never has more than `most`.
    pub(super) fn push(&mut self, queue: &mut VecDeque<T>, element: T, most: usize) {
        if queue.capacity() == 0 {
            self.out += 1;
            let exponent = exponent(most);
            let size = &mut self.sizes[exponent];
            *queue = match size.spare.pop() {
                Some(spare) => {
                    self.spare -= 1;
                    self.room -= spare.capacity();
                    spare
                }
                None => size.make(exponent),
            };
        }
        queue.push_back(element);
    }

    /// Takes the memory of a queue back if nothing is in it.
    pub(super) fn release_if_empty(&mut self, queue: &mut VecDeque<T>) {
        if queue.is_empty() && queue.capacity() > 0 {
            self.out = self.out.saturating_sub(1);
            let memory = std::mem::take(queue);
            if self.may_keep(memory.capacity()) {
                self.keep(memory);
            } else {
                self.sizes[memory.capacity().ilog2() as usize].made -= 1;
            }
        }
    }

    fn may_keep(&self, capacity: usize) -> bool {
        self.spare < SPARE_MAX && self.room + capacity <= SPARE_ELEMENTS_MAX
    }

    fn keep(&mut self, memory: VecDeque<T>) {
        self.spare += 1;
        self.room += memory.capacity();
        // It may have room for more than was asked for, but not for twice as many.
        self.sizes[memory.capacity().ilog2() as usize]
            .spare
            .push(memory);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_used_again_and_an_empty_queue_has_none() {
        let mut spares = Spares::default();
        let mut queues = [VecDeque::new(), VecDeque::new()];
        for round in 0..3 {
            for queue in &mut queues {
                spares.push(queue, round, 8);
                spares.push(queue, round, 8);
                assert!(queue.capacity() >= 8);
                queue.pop_front();
                spares.release_if_empty(queue);
                assert_eq!(queue.len(), 1, "what is in use stays");
                queue.pop_front();
                spares.release_if_empty(queue);
                assert_eq!(queue.capacity(), 0);
                spares.release_if_empty(queue);
            }
            assert_eq!(spares.spare, 1, "one at a time needs one");
            assert_eq!(spares.out, 0);
        }
    }

    #[test]
    fn no_more_is_kept_than_the_most() {
        let mut spares = Spares::default();
        let mut queues: Vec<VecDeque<u8>> = Vec::new();
        queues.resize_with(SPARE_MAX + 1, VecDeque::new);
        for queue in &mut queues {
            spares.push(queue, 0, 1);
        }
        for queue in &mut queues {
            queue.clear();
            spares.release_if_empty(queue);
        }
        assert_eq!(spares.spare, SPARE_MAX);
        assert_eq!(spares.sizes[0].spare.len(), SPARE_MAX);
    }

    /// A client with many long queues can't make the daemon keep their memory after it is gone.
    #[test]
    fn long_queues_leave_no_more_behind_than_is_allowed() {
        let mut spares = Spares::default();
        let mut queues: Vec<VecDeque<u8>> = Vec::new();
        queues.resize_with(100, VecDeque::new);
        for queue in &mut queues {
            spares.push(queue, 0, 16_384);
        }
        for queue in &mut queues {
            queue.clear();
            spares.release_if_empty(queue);
        }
        let kept = |spares: &Spares<u8>| {
            let spare = spares.sizes.iter().flat_map(|size| &size.spare);
            spare.map(VecDeque::capacity).sum::<usize>()
        };
        assert_eq!(spares.spare, 16);
        assert_eq!(kept(&spares), spares.room);
        assert!(kept(&spares) <= SPARE_ELEMENTS_MAX);
        spares.push(&mut queues[0], 0, 8);
        assert_eq!(kept(&spares), spares.room);
    }

    #[test]
    fn for_each_queue_pair_there_is_memory_before_it_needs_any() {
        let mut spares = Spares::default();
        let mut queues = [VecDeque::new(), VecDeque::new(), VecDeque::new()];
        for _ in &queues {
            spares.expect(100);
        }
        assert_eq!((spares.spare, spares.room), (3, 3 * 128));
        for queue in &mut queues {
            spares.push(queue, 1, 100);
        }
        assert_eq!((spares.spare, spares.sizes[7].made), (0, 3));
        for queue in &mut queues {
            queue.clear();
            spares.release_if_empty(queue);
            spares.forget(100);
        }
        assert_eq!((spares.spare, spares.room), (0, 0), "it goes with them");
        for _ in 0..SPARE_MAX + 1 {
            spares.expect(1);
        }
        assert_eq!(spares.spare, SPARE_MAX);
        spares.expect(usize::MAX);
        spares.forget(usize::MAX);
    }
}
