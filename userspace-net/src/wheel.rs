//! One deadline per connection: a hierarchical timing wheel (Varghese and Lauck, 1987).
//!
//! Time is cut into ticks of about 16 µs. A level has 64 slots, each as long as the whole level
//! below. A deadline stands on the lowest level on which it and the present tick share a lap. It comes down a level
//! when the present reaches its slot. To set, move and cancel takes a constant
//! time; connections without a deadline cost nothing, those with a far one are touched once per
//! level. Deadlines are kept to the nanosecond: no entry comes up before its time, or later than
//! the first [`Wheel::pop`] at or after it.
//!
//! A deadline that moves to later leaves its entry where it is; the entry then comes up early and
//! is set again. So a busy connection, whose timeout moves with every acknowledgment, costs nothing
//! here.

#[cfg(test)]
mod tests;

use crate::Instant;

/// A tick is 2^14 nanoseconds.
const TICK_BITS: u32 = 14;

/// 2^6 slots in a level: one word of bits.
const LEVEL_BITS: u32 = 6;
const SLOTS: usize = 1 << LEVEL_BITS;

/// Enough for every [`Instant`].
const LEVELS: usize = (u64::BITS - TICK_BITS).div_ceil(LEVEL_BITS) as usize;

/// The list of those whose time has come, behind the lists of all slots.
const DUE: usize = LEVELS * SLOTS;

/// No index.
const NONE: u32 = u32::MAX;

/// No list.
const NOWHERE: u16 = u16::MAX;

/// Deadlines by connection index.
#[derive(Debug)]
pub struct Wheel {
    /// The present tick. Nothing in a slot of level 0 is before it, nothing on a higher level
    /// stands in the slot that holds it.
    tick: u64,
    /// Which levels are not empty, and which slots of each.
    levels: u16,
    occupied: [u64; LEVELS],
    lists: Box<[List]>,
    nodes: Vec<Node>,
}

/// The entries of one slot.
#[derive(Debug, Clone, Copy)]
struct List {
    first: u32,
    /// No entry is earlier; an entry that has left may have been.
    earliest: Instant,
}

impl List {
    const EMPTY: Self = Self {
        first: NONE,
        earliest: Instant::from_nanos(u64::MAX),
    };
}

#[derive(Debug, Clone, Copy)]
struct Node {
    at: Instant,
    previous: u32,
    next: u32,
    list: u16,
}

impl Node {
    const ABSENT: Self = Self {
        at: Instant::ZERO,
        previous: NONE,
        next: NONE,
        list: NOWHERE,
    };
}

impl Wheel {
    /// With place for `connections`.
    pub fn new(now: Instant, connections: usize) -> Self {
        Self {
            tick: tick_of(now),
            levels: 0,
            occupied: [0; LEVELS],
            lists: vec![List::EMPTY; DUE + 1].into_boxed_slice(),
            nodes: Vec::with_capacity(connections),
        }
    }

    /// The next moment at which an entry wants attention; it may be earlier than needed.
    pub fn next(&self) -> Option<Instant> {
        if self.lists[DUE].first != NONE {
            return Some(self.lists[DUE].earliest);
        }
        self.first_slot().map(|list| self.lists[list].earliest)
    }

    /// Sets, moves or takes away the deadline of `index`.
    pub fn set(&mut self, index: u32, deadline: Option<Instant>) {
        let present = self.nodes.get(index as usize).copied();
        let present = present.filter(|node| node.list != NOWHERE);
        match (present, deadline) {
            (None, None) => {}
            (Some(_), None) => self.unlink(index),
            (Some(node), Some(at)) if at >= node.at => {}
            (present, Some(at)) => {
                if present.is_some() {
                    self.unlink(index);
                }
                self.link(index, at);
            }
        }
    }

    pub fn memory_at(&self, index: usize) -> Option<&impl Sized> {
        self.nodes.get(index)
    }

    /// Entries, those included that come up for nothing.
    pub fn count(&self) -> usize {
        self.nodes
            .iter()
            .filter(|node| node.list != NOWHERE)
            .count()
    }

    /// Takes out an entry whose time has come.
    pub fn pop(&mut self, now: Instant) -> Option<u32> {
        let present = tick_of(now);
        while self.lists[DUE].first == NONE {
            let list = self.first_slot();
            let start = list.map_or(u64::MAX, |list| self.start_of(list));
            let Some(list) = list.filter(|_| start <= present) else {
                self.tick = self.tick.max(present);
                return None;
            };
            if list < SLOTS && self.lists[list].earliest > now {
                return None;
            }
            self.tick = start;
            self.sort(list, now);
        }
        let index = self.lists[DUE].first;
        self.unlink(index);
        Some(index)
    }

    /// Sorts the entries of a slot that the present has come to: those whose time has come are due,
    /// others go further down.
    fn sort(&mut self, list: usize, now: Instant) {
        let mut index = self.lists[list].first;
        self.forget(list);
        while index != NONE {
            let Node { at, next, .. } = self.nodes[index as usize];
            if at <= now {
                self.link_to(DUE, index, at);
            } else {
                self.link(index, at);
            }
            index = next;
        }
    }

    /// The first occupied slot: what is on a lower level is earlier.
    fn first_slot(&self) -> Option<usize> {
        let level = self.levels.trailing_zeros() as usize;
        let slot = self.occupied.get(level)?.trailing_zeros() as usize;
        Some(level * SLOTS + slot)
    }

    /// The first tick of a slot.
    fn start_of(&self, list: usize) -> u64 {
        let (level, slot) = (list / SLOTS, list % SLOTS);
        let shift = level as u32 * LEVEL_BITS;
        let lap = self.tick >> shift >> LEVEL_BITS << LEVEL_BITS;
        (lap | slot as u64) << shift
    }

    fn link(&mut self, index: u32, at: Instant) {
        let tick = tick_of(at).max(self.tick);
        // The highest bit in which it differs from the present.
        let level = (tick ^ self.tick).checked_ilog2().unwrap_or(0) / LEVEL_BITS;
        let slot = (tick >> (level * LEVEL_BITS)) as usize % SLOTS;
        let level = level as usize;
        self.levels |= 1 << level;
        self.occupied[level] |= 1 << slot;
        self.link_to(level * SLOTS + slot, index, at);
    }

    fn link_to(&mut self, list: usize, index: u32, at: Instant) {
        let place = index as usize;
        if self.nodes.len() <= place {
            self.nodes.resize(place + 1, Node::ABSENT);
        }
        let head = &mut self.lists[list];
        self.nodes[place] = Node {
            at,
            previous: NONE,
            next: head.first,
            list: list as u16,
        };
        if let Some(next) = self.nodes.get_mut(head.first as usize) {
            next.previous = index;
        }
        head.first = index;
        head.earliest = head.earliest.min(at);
    }

    fn unlink(&mut self, index: u32) {
        let node = std::mem::replace(&mut self.nodes[index as usize], Node::ABSENT);
        if let Some(next) = self.nodes.get_mut(node.next as usize) {
            next.previous = node.previous;
        }
        let list = usize::from(node.list);
        match self.nodes.get_mut(node.previous as usize) {
            Some(previous) => previous.next = node.next,
            None => self.lists[list].first = node.next,
        }
        if self.lists[list].first == NONE {
            self.forget(list);
        }
    }

    /// A list is empty.
    fn forget(&mut self, list: usize) {
        self.lists[list] = List::EMPTY;
        if list != DUE {
            let (level, slot) = (list / SLOTS, list % SLOTS);
            self.occupied[level] &= !(1 << slot);
            if self.occupied[level] == 0 {
                self.levels &= !(1 << level);
            }
        }
    }
}

fn tick_of(at: Instant) -> u64 {
    at.as_nanos() >> TICK_BITS
}
