//! A list through segments of the queue, in the order in which they were put in. A segment is in
//! one list at most; it is taken out from anywhere in constant time.

#[cfg(test)]
mod tests;

use super::ring::Ring;

/// Ends of the list; the links are in the segments.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct List {
    first: u32,
    last: u32,
    len: u32,
}

impl List {
    /// The name of the first segment.
    pub(super) fn first(&self) -> Option<u32> {
        (self.len > 0).then_some(self.first)
    }

    /// Puts a segment of `ring` that is in no list at the end.
    pub(super) fn push<B>(&mut self, ring: &mut Ring<B>, name: u32) {
        let before = if self.len == 0 { name } else { self.last };
        if let Some(slot) = ring.get_mut(before) {
            slot.next = name;
        }
        if let Some(slot) = ring.get_mut(name) {
            slot.previous = before;
            slot.next = name;
        }
        if self.len == 0 {
            self.first = name;
        }
        self.last = name;
        self.len += 1;
    }

    /// Puts a segment of `ring` that is in no list behind those that were sent before it, in a list
    /// in the order of time. It looks at all that were sent later.
    pub(super) fn insert<B>(&mut self, ring: &mut Ring<B>, name: u32) {
        let sent_at = |ring: &Ring<B>, name| ring.get(name).map(|slot| slot.sent_at);
        let own = sent_at(ring, name);
        let mut after = name;
        let mut at = self.last;
        for _ in 0..self.len {
            if sent_at(ring, at) <= own {
                break;
            }
            after = at;
            at = ring.get(at).map_or(at, |slot| slot.previous);
        }
        if after == name {
            self.push(ring, name);
            return;
        }
        let first = after == self.first;
        let before = if first { name } else { at };
        if let Some(slot) = ring.get_mut(name) {
            (slot.previous, slot.next) = (before, after);
        }
        if let Some(slot) = ring.get_mut(after) {
            slot.previous = name;
        }
        if first {
            self.first = name;
        } else if let Some(slot) = ring.get_mut(before) {
            slot.next = name;
        }
        self.len += 1;
    }

    /// Takes out a segment of this list.
    pub(super) fn remove<B>(&mut self, ring: &mut Ring<B>, name: u32) {
        let Some(slot) = ring.get(name) else {
            return;
        };
        let (previous, next) = (slot.previous, slot.next);
        debug_assert!(self.len > 0, "removed from an empty list");
        self.len -= 1;
        if previous == name {
            self.first = next;
        } else if let Some(slot) = ring.get_mut(previous) {
            slot.next = if next == name { previous } else { next };
        }
        if next == name {
            self.last = previous;
        } else if let Some(slot) = ring.get_mut(next) {
            slot.previous = if previous == name { next } else { previous };
        }
    }
}
