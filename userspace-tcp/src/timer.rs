//! One deadline per connection: an indexed binary heap.
//!
//! A deadline that moves to later leaves its entry where it is; the entry then comes up early and
//! is set again. So a busy connection, whose timeout moves with every acknowledgment, costs nothing
//! here. There is never more than one entry per connection.

#[cfg(test)]
mod tests;

use crate::time::Instant;

const ABSENT: u32 = u32::MAX;

/// Deadlines by connection index.
#[derive(Debug, Default)]
pub(crate) struct Deadlines {
    /// A binary heap, least first.
    heap: Vec<(Instant, u32)>,
    /// Where in the heap each index stands.
    places: Vec<u32>,
}

impl Deadlines {
    /// The next moment at which an entry wants attention; it may be earlier than needed.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.heap.first().map(|&(at, _)| at)
    }

    /// Sets, moves or takes away the deadline of `index`.
    pub(crate) fn set(&mut self, index: u32, deadline: Option<Instant>) {
        let slot = index as usize;
        if self.places.len() <= slot {
            self.places.resize(slot + 1, ABSENT);
        }
        let place = self.places[slot];
        match deadline {
            None if place == ABSENT => {}
            None => self.remove(place as usize),
            Some(at) if place == ABSENT => {
                let place = self.heap.len();
                self.places[slot] = place as u32;
                self.heap.push((at, index));
                self.sift_up(place);
            }
            Some(at) => {
                let place = place as usize;
                if at < self.heap[place].0 {
                    self.heap[place].0 = at;
                    self.sift_up(place);
                }
            }
        }
    }

    /// Takes out an entry whose time has come.
    pub(crate) fn pop(&mut self, now: Instant) -> Option<u32> {
        let &(at, index) = self.heap.first()?;
        if at > now {
            return None;
        }
        self.remove(0);
        Some(index)
    }

    fn remove(&mut self, place: usize) {
        let (_, index) = self.heap.swap_remove(place);
        self.places[index as usize] = ABSENT;
        if let Some(&(_, moved)) = self.heap.get(place) {
            self.places[moved as usize] = place as u32;
            self.sift_down(place);
            self.sift_up(place);
        }
    }

    fn sift_up(&mut self, mut place: usize) {
        while place > 0 {
            let parent = (place - 1) / 2;
            if self.heap[parent].0 <= self.heap[place].0 {
                return;
            }
            self.swap(parent, place);
            place = parent;
        }
    }

    fn sift_down(&mut self, mut place: usize) {
        loop {
            let left = 2 * place + 1;
            let Some(&(left_at, _)) = self.heap.get(left) else {
                return;
            };
            let right_at = self.heap.get(left + 1).map(|&(at, _)| at);
            let child = if right_at.is_some_and(|at| at < left_at) {
                left + 1
            } else {
                left
            };
            if self.heap[place].0 <= self.heap[child].0 {
                return;
            }
            self.swap(place, child);
            place = child;
        }
    }

    fn swap(&mut self, a: usize, b: usize) {
        self.heap.swap(a, b);
        self.places[self.heap[a].1 as usize] = a as u32;
        self.places[self.heap[b].1 as usize] = b as u32;
    }
}
