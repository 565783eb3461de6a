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
    /// in the order of time. It looks at those between its place and `near`, a segment of the list;
    /// without one, the last.
    pub(super) fn insert<B>(&mut self, ring: &mut Ring<B>, name: u32, near: Option<u32>) {
        let Some(before) = self.last_not_later(ring, name, near.unwrap_or(self.last)) else {
            return self.put_first(ring, name);
        };
        let after = ring.get(before).map_or(before, |slot| slot.next);
        if before == after {
            return self.push(ring, name);
        }
        if let Some(slot) = ring.get_mut(name) {
            (slot.previous, slot.next) = (before, after);
        }
        if let Some(slot) = ring.get_mut(after) {
            slot.previous = name;
        }
        if let Some(slot) = ring.get_mut(before) {
            slot.next = name;
        }
        self.len += 1;
    }

    /// The last segment of a list in the order of time that was not sent later than the one named,
    /// looked for from `near`.
    fn last_not_later<B>(&self, ring: &Ring<B>, name: u32, near: u32) -> Option<u32> {
        let sent_at = |name| ring.get(name).map(|slot| slot.sent_at);
        let later = |at| sent_at(at) > sent_at(name);
        let mut at = near;
        for _ in 0..self.len {
            let slot = ring.get(at)?;
            if later(at) {
                at = if at == self.first {
                    return None;
                } else {
                    slot.previous
                };
            } else if at == self.last || later(slot.next) {
                return Some(at);
            } else {
                at = slot.next;
            }
        }
        None
    }

    fn put_first<B>(&mut self, ring: &mut Ring<B>, name: u32) {
        if self.len == 0 {
            return self.push(ring, name);
        }
        if let Some(slot) = ring.get_mut(name) {
            (slot.previous, slot.next) = (name, self.first);
        }
        if let Some(slot) = ring.get_mut(self.first) {
            slot.previous = name;
        }
        self.first = name;
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
