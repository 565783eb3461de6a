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

use crate::config::Config;
use crate::outbound::Slot;
use crate::ranges::RANGES_MAX;
use crate::seq::Position;

/// Segments of the smallest send queue.
const QUEUE_MIN: usize = 4;

/// Each size of send queue is so many times the one before.
const QUEUE_GROWTH: usize = 4;

/// Pieces of a size that are made at the start, if there may be so many connections ...
const WARM: usize = 64;
/// ... and as long as they have room for no more than so much together.
const WARM_ROOM: usize = 2048;

/// Everything that one stack lends.
#[derive(Debug)]
pub(crate) struct Pools<B> {
    pub(crate) queues: QueuePool<Slot<B>>,
    pub(crate) ranges: RangePool,
}

impl<B> Pools<B> {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            queues: QueuePool::new(config.send_queue_segments, config.connections),
            ranges: RangePool::new(config.connections),
        }
    }
}

/// Send queues of a few sizes: a connection with one segment in flight does not hold room for
/// thousands.
#[derive(Debug)]
pub(crate) struct QueuePool<T> {
    /// Ascending; the last has [`Config::send_queue_segments`].
    sizes: Vec<(usize, Pool<VecDeque<T>>)>,
}

impl<T> QueuePool<T> {
    /// For the queues, each of at most `limit` segments, of so many connections.
    pub(crate) fn new(limit: usize, connections: usize) -> Self {
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
    pub(crate) fn make_room(&mut self, queue: &mut VecDeque<T>) {
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
    pub(crate) fn settle(&mut self, queue: &mut VecDeque<T>) {
        if queue.is_empty() {
            self.give(std::mem::take(queue));
        }
    }

    /// Pieces that did not come back.
    pub(crate) fn lent(&self) -> usize {
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

/// Sets of at most [`RANGES_MAX`] ranges, in a few sizes.
#[derive(Debug)]
pub(crate) struct RangePool {
    sets: QueuePool<Range<Position>>,
    /// Sets that are out and have room for more than [`RANGES_FEW`].
    wide: usize,
}

impl RangePool {
    /// For the sets of so many connections.
    pub(crate) fn new(connections: usize) -> Self {
        Self {
            sets: QueuePool::new(RANGES_MAX, connections),
            wide: 0,
        }
    }

    /// Gives `ranges` room for one more; `false` when it has had all that it can get.
    pub(crate) fn make_room(&mut self, ranges: &mut VecDeque<Range<Position>>) -> bool {
        let widens = ranges.len() == RANGES_FEW && !is_wide(ranges);
        if ranges.len() >= RANGES_MAX || (widens && self.wide >= WIDE_MAX) {
            return false;
        }
        self.wide += usize::from(widens);
        self.sets.make_room(ranges);
        true
    }

    /// Sets that did not come back.
    pub(crate) fn lent(&self) -> usize {
        self.sets.lent().max(self.wide)
    }

    /// Takes the storage of `ranges` back if it is empty.
    pub(crate) fn settle(&mut self, ranges: &mut VecDeque<Range<Position>>) {
        self.wide -= usize::from(ranges.is_empty() && is_wide(ranges));
        self.sets.settle(ranges);
    }
}

fn is_wide(ranges: &VecDeque<Range<Position>>) -> bool {
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
