//! Connections by number, with a generation so that an old name never reaches a new connection.
//!
//! Values live in chunks that are made one at a time and never move, so growing takes no long pause. A look at a
//! value goes through the short list of chunks and to the value itself, where its name is.

#[cfg(test)]
mod tests;

const CHUNK: usize = 64;

/// No index: the end of the list of vacant entries.
const NONE: u32 = u32::MAX;

/// What a name is made of: where its value stands, and how many stood there before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key {
    /// The place in the table.
    pub index: u32,
    /// Goes around after 2^32.
    pub generation: u32,
}

/// A value that knows its name.
pub trait Named {
    /// A type of its own for the names of one table: those of two do not mix, and only the value's owner makes them.
    type Name: Copy + Eq;

    /// As given by [`Slab::insert`].
    fn id(&self) -> Self::Name;

    /// The name that is made of `key`.
    fn name(key: Key) -> Self::Name;

    /// What `name` is made of.
    fn key(name: Self::Name) -> Key;
}

/// A table of at most `limit` values.
#[derive(Debug)]
pub struct Slab<T> {
    chunks: Vec<Box<[Entry<T>]>>,
    /// The vacant entry that is used next.
    vacant: u32,
    /// Entries that were used at least once: they come first.
    used: usize,
    limit: usize,
}

#[derive(Debug)]
enum Entry<T> {
    Vacant { generation: u32, next: u32 },
    Occupied(T),
}

impl<T: Named> Slab<T> {
    /// Without a value.
    pub fn new(limit: usize) -> Self {
        Self {
            chunks: Vec::new(),
            vacant: NONE,
            used: 0,
            limit: limit.min(NONE as usize),
        }
    }

    /// How many values there may be.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Whether there is no place for one more.
    pub fn is_full(&self) -> bool {
        self.vacant == NONE && self.used >= self.limit
    }

    /// Adds what `make` makes of its name; `None` when the table is full.
    pub fn insert(&mut self, make: impl FnOnce(T::Name) -> T) -> Option<T::Name> {
        if self.vacant == NONE {
            self.vacant = self.make_vacant()?;
        }
        let index = self.vacant;
        let entry = self.entry_mut(index)?;
        let Entry::Vacant { generation, next } = *entry else {
            unreachable!("an occupied entry is not in the list of vacant ones");
        };
        let id = T::name(Key { index, generation });
        *entry = Entry::Occupied(make(id));
        self.vacant = next;
        Some(id)
    }

    /// Takes a value out. Its name reaches nothing any more.
    pub fn remove(&mut self, index: u32) -> Option<T> {
        let next = self.vacant;
        let entry = self.entry_mut(index)?;
        let Entry::Occupied(value) = entry else {
            return None;
        };
        let generation = T::key(value.id()).generation.wrapping_add(1);
        let entry = std::mem::replace(entry, Entry::Vacant { generation, next });
        self.vacant = index;
        match entry {
            Entry::Occupied(value) => Some(value),
            Entry::Vacant { .. } => None,
        }
    }

    /// The value of this name, if it is still there.
    pub fn get(&self, id: T::Name) -> Option<&T> {
        self.at(T::key(id).index).filter(|value| value.id() == id)
    }

    /// The value of this name, if it is still there.
    pub fn get_mut(&mut self, id: T::Name) -> Option<&mut T> {
        self.at_mut(T::key(id).index)
            .filter(|value| value.id() == id)
    }

    /// By index alone, whatever generation lives there.
    pub fn at(&self, index: u32) -> Option<&T> {
        let index = index as usize;
        match self.chunks.get(index / CHUNK)?.get(index % CHUNK)? {
            Entry::Occupied(value) => Some(value),
            Entry::Vacant { .. } => None,
        }
    }

    /// By index alone, whatever generation lives there.
    pub fn at_mut(&mut self, index: u32) -> Option<&mut T> {
        match self.entry_mut(index)? {
            Entry::Occupied(value) => Some(value),
            Entry::Vacant { .. } => None,
        }
    }

    /// The memory of an entry, whatever is in it.
    pub fn memory_at(&self, index: usize) -> Option<&impl Sized> {
        self.chunks.get(index / CHUNK)?.get(index % CHUNK)
    }

    /// All values, by their places.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        let entries = self.chunks.iter().flatten();
        entries.filter_map(|entry| match entry {
            Entry::Occupied(value) => Some(value),
            Entry::Vacant { .. } => None,
        })
    }

    fn entry_mut(&mut self, index: u32) -> Option<&mut Entry<T>> {
        let index = index as usize;
        self.chunks.get_mut(index / CHUNK)?.get_mut(index % CHUNK)
    }

    /// An entry that was never used.
    fn make_vacant(&mut self) -> Option<u32> {
        let index = self.used;
        if index >= self.limit {
            return None;
        }
        if index / CHUNK == self.chunks.len() {
            let entries = CHUNK.min(self.limit - index);
            let vacant = || Entry::Vacant {
                generation: 0,
                next: NONE,
            };
            self.chunks
                .push(std::iter::repeat_with(vacant).take(entries).collect());
        }
        self.used += 1;
        // Below the limit.
        Some(index as u32)
    }
}
