//! At most one deadline for each association, the earliest first: a binary heap that knows where each entry is.

#[cfg(test)]
mod tests;

use std::time::Duration;

/// Where an entry is that is not in the heap.
const NOWHERE: u32 = u32::MAX;

/// Deadlines by index.
#[derive(Debug, Default)]
pub(crate) struct Deadlines {
    heap: Vec<(Duration, u32)>,
    /// By index: where in the heap.
    places: Vec<u32>,
}

impl Deadlines {
    /// The earliest deadline.
    pub(crate) fn next(&self) -> Option<Duration> {
        self.heap.first().map(|(at, _)| *at)
    }

    /// Takes out an index whose deadline has come.
    pub(crate) fn pop(&mut self, now: Duration) -> Option<u32> {
        let (at, index) = *self.heap.first()?;
        if at > now {
            return None;
        }
        self.set(index, None);
        Some(index)
    }

    /// Sets or takes away a deadline. It grows the heap only for an index that was never used.
    pub(crate) fn set(&mut self, index: u32, at: Option<Duration>) {
        if self.places.len() <= index as usize {
            self.places.resize(index as usize + 1, NOWHERE);
            self.heap.reserve(self.places.len() - self.heap.len());
        }
        let place = self.places[index as usize];
        match (at, place) {
            (None, NOWHERE) => {}
            (None, place) => self.remove(place as usize),
            (Some(at), NOWHERE) => {
                self.places[index as usize] = self.heap.len() as u32;
                self.heap.push((at, index));
                self.up(self.heap.len() - 1);
            }
            (Some(at), place) => {
                self.heap[place as usize].0 = at;
                self.move_to_its_place(place as usize);
            }
        }
    }

    fn remove(&mut self, place: usize) {
        let (_, index) = self.heap.swap_remove(place);
        self.places[index as usize] = NOWHERE;
        if let Some((_, moved)) = self.heap.get(place) {
            self.places[*moved as usize] = place as u32;
            self.move_to_its_place(place);
        }
    }

    fn move_to_its_place(&mut self, place: usize) {
        self.up(place);
        self.down(place);
    }

    fn up(&mut self, mut place: usize) {
        while place > 0 && self.heap[place] < self.heap[(place - 1) / 2] {
            self.swap(place, (place - 1) / 2);
            place = (place - 1) / 2;
        }
    }

    fn down(&mut self, mut place: usize) {
        loop {
            let children = [2 * place + 1, 2 * place + 2].into_iter();
            let least = children
                .filter(|child| *child < self.heap.len())
                .min_by_key(|child| self.heap[*child]);
            match least {
                Some(least) if self.heap[least] < self.heap[place] => {
                    self.swap(place, least);
                    place = least;
                }
                _ => return,
            }
        }
    }

    fn swap(&mut self, a: usize, b: usize) {
        self.heap.swap(a, b);
        for place in [a, b] {
            self.places[self.heap[place].1 as usize] = place as u32;
        }
    }
}
