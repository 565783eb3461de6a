//! Storage that connections borrow while they have something in it: send queues and sets of
//! out-of-order ranges. An idle connection has none.
//!
//! What comes back is lent first again, as it is still in the cache. A pool begins with some pieces of
//! each size, fewer of the large ones. Later it holds as many as were ever lent at once, and never more. A load up
//! to there allocates nothing, and neither does one that stays as it is.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::ops::Range;

/// Segments of the smallest send queue.
const QUEUE_MIN: usize = 4;

/// Each size of send queue is so many times the one before.
const QUEUE_GROWTH: usize = 4;

/// Pieces of a size that are made at the start, if there may be so many connections ...
const WARM: usize = 64;
/// ... and as long as they have room for no more than so much together.
const WARM_ROOM: usize = 2048;

/// Send queues of a few sizes: a connection with one segment in flight does not hold room for
/// thousands.
#[derive(Debug)]
pub struct QueuePool<T> {
    /// Ascending; the last has the limit.
    sizes: Vec<(usize, Pool<VecDeque<T>>)>,
}

impl<T> QueuePool<T> {
    /// For the queues, each of at most `limit` segments, of so many connections.
    pub fn new(limit: usize, connections: usize) -> Self {
        let smaller = std::iter::successors(Some(QUEUE_MIN), |segments| {
            Some(segments.saturating_mul(QUEUE_GROWTH))
        });
        let smaller = smaller.take_while(|segments| *segments < limit);
        let sizes = smaller.chain([limit]).map(|segments| {
            let count = connections.min(WARM).min(WARM_ROOM / segments);
            let pool = Pool::new(count, || VecDeque::with_capacity(segments));
            (segments, pool)
        });
        Self {
            sizes: sizes.collect(),
        }
    }

    /// Gives `queue` room for one more segment. A queue beyond the limit grows by itself.
    #[inline]
    pub fn make_room(&mut self, queue: &mut VecDeque<T>) {
        if queue.len() >= queue.capacity() {
            self.enlarge(queue);
        }
    }

    #[inline(never)]
    fn enlarge(&mut self, queue: &mut VecDeque<T>) {
        let next = self
            .sizes
            .iter_mut()
            .find(|(segments, _)| *segments > queue.len());
        if let Some((segments, pool)) = next {
            let mut larger = pool.take(|| VecDeque::with_capacity(*segments));
            larger.append(queue);
            self.give(std::mem::replace(queue, larger));
        }
    }

    /// Takes the storage of `queue` back if it is empty.
    pub fn settle(&mut self, queue: &mut VecDeque<T>) {
        if queue.is_empty() {
            self.give(std::mem::take(queue));
        }
    }

    /// Pieces that did not come back.
    pub fn lent(&self) -> usize {
        let lent = |(_, pool): &(usize, Pool<_>)| pool.made - pool.free.len();
        self.sizes.iter().map(lent).sum()
    }

    fn give(&mut self, queue: VecDeque<T>) {
        let capacity = queue.capacity();
        let mut sizes = self.sizes.iter_mut().rev();
        if let Some((_, pool)) = sizes.find(|(segments, _)| (1..=capacity).contains(segments)) {
            pool.give(queue);
        }
    }
}

/// Connections that may have more than [`RANGES_FEW`] ranges at the same time.
const WIDE_MAX: usize = 1024;

/// Ranges for which a connection always finds room.
const RANGES_FEW: usize = QUEUE_MIN * QUEUE_GROWTH * QUEUE_GROWTH;

/// Sets of ranges ([`crate::ranges::RangeSet`]), in a few sizes.
#[derive(Debug)]
pub struct RangePool {
    sets: QueuePool<Range<u64>>,
    limit: usize,
    /// Sets that are out and have room for more than [`RANGES_FEW`].
    wide: usize,
}

impl RangePool {
    /// For the sets, each of at most `limit` ranges, of so many connections. Only 1024 sets have more than 64 ranges at
    /// the same time.
    pub fn new(limit: usize, connections: usize) -> Self {
        Self {
            sets: QueuePool::new(limit, connections),
            limit,
            wide: 0,
        }
    }

    /// Gives `ranges` room for one more; `false` when it has had all that it can get.
    pub fn make_room(&mut self, ranges: &mut VecDeque<Range<u64>>) -> bool {
        let widens = ranges.len() == RANGES_FEW && !is_wide(ranges);
        if ranges.len() >= self.limit || (widens && self.wide >= WIDE_MAX) {
            return false;
        }
        self.wide += usize::from(widens);
        self.sets.make_room(ranges);
        true
    }

    /// Sets that did not come back.
    pub fn lent(&self) -> usize {
        self.sets.lent().max(self.wide)
    }

    /// Takes the storage of `ranges` back if it is empty.
    pub fn settle(&mut self, ranges: &mut VecDeque<Range<u64>>) {
        self.wide -= usize::from(ranges.is_empty() && is_wide(ranges));
        self.sets.settle(ranges);
    }
}

fn is_wide(ranges: &VecDeque<Range<u64>>) -> bool {
    ranges.capacity() > RANGES_FEW
}

/// Pieces of one size.
#[derive(Debug)]
struct Pool<S> {
    free: Vec<S>,
    /// Pieces there are, lent or not.
    made: usize,
}

impl<S> Pool<S> {
    /// With `count` pieces.
    fn new(count: usize, make: impl FnMut() -> S) -> Self {
        Self {
            free: std::iter::repeat_with(make).take(count).collect(),
            made: count,
        }
    }

    fn take(&mut self, make: impl FnOnce() -> S) -> S {
        self.free.pop().unwrap_or_else(|| {
            self.made += 1;
            // Giving back must not allocate either.
            self.free.reserve(self.made);
            make()
        })
    }

    /// A piece too many was not lent here and is freed.
    fn give(&mut self, piece: S) {
        if self.free.len() < self.made {
            self.free.push(piece);
        }
    }
}
