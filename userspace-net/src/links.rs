//! Queues of connections, by index, linked through one table: each connection stands in at most one
//! queue of a table. To enter, to leave the middle, and to take the first takes a constant time, so
//! that no queue ever has to be swept.

#[cfg(test)]
mod tests;

/// No index.
const NONE: u32 = u32::MAX;

/// The neighbours of each connection. It grows with the greatest index.
#[derive(Debug, Default)]
pub struct Links(Vec<Link>);

#[derive(Debug, Clone, Copy)]
struct Link {
    /// The one before, [`NONE`] for the first; itself when it stands in no queue.
    previous: u32,
    /// [`NONE`] for the last.
    next: u32,
}

/// First in, first out. All calls take the table that it was used with before.
#[derive(Debug)]
pub struct Queue {
    first: u32,
    last: u32,
    len: usize,
}

impl Default for Queue {
    fn default() -> Self {
        Self {
            first: NONE,
            last: NONE,
            len: 0,
        }
    }
}

impl Links {
    /// With place for `connections`.
    pub fn new(connections: usize) -> Self {
        Self(Vec::with_capacity(connections))
    }

    /// Whether `index` stands in some queue.
    pub fn contains(&self, index: u32) -> bool {
        self.0
            .get(index as usize)
            .is_some_and(|link| link.previous != index)
    }

    pub fn memory_at(&self, index: usize) -> Option<&impl Sized> {
        self.0.get(index)
    }

    fn link(&mut self, index: u32) -> &mut Link {
        let place = index as usize;
        for index in self.0.len()..=place {
            self.0.push(Link {
                previous: index as u32,
                next: NONE,
            });
        }
        &mut self.0[place]
    }
}

impl Queue {
    /// Connections that stand in it.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether none stands in it.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The one that came first.
    pub fn first(&self) -> Option<u32> {
        (self.first != NONE).then_some(self.first)
    }

    /// Does nothing when it stands in a queue.
    pub fn push(&mut self, links: &mut Links, index: u32) {
        if links.contains(index) {
            return;
        }
        let previous = self.last;
        *links.link(index) = Link {
            previous,
            next: NONE,
        };
        if previous == NONE {
            self.first = index;
        } else {
            links.link(previous).next = index;
        }
        self.last = index;
        self.len += 1;
    }

    /// Takes out the one that came first.
    pub fn pop(&mut self, links: &mut Links) -> Option<u32> {
        let index = self.first()?;
        self.remove(links, index);
        Some(index)
    }

    /// Does nothing when it stands in no queue; it must not stand in another.
    pub fn remove(&mut self, links: &mut Links, index: u32) {
        if !links.contains(index) {
            return;
        }
        let Link { previous, next } = *links.link(index);
        if previous == NONE {
            self.first = next;
        } else {
            links.link(previous).next = next;
        }
        if next == NONE {
            self.last = previous;
        } else {
            links.link(next).previous = previous;
        }
        links.link(index).previous = index;
        self.len -= 1;
    }
}
