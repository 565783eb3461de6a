//! Connections by number, with a generation so that an old name never reaches a new connection.

#[cfg(test)]
mod tests;

use crate::interface::ConnId;

/// A table of at most `limit` values.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    entries: Vec<Entry<T>>,
    free: Vec<u32>,
    limit: usize,
}

#[derive(Debug)]
struct Entry<T> {
    generation: u32,
    /// Boxed so that the table grows without moving connections.
    value: Option<Box<T>>,
}

impl<T> Slab<T> {
    pub(crate) fn new(limit: usize) -> Self {
        // The greatest index must differ from every marker made of u32::MAX.
        let limit = limit.min(u32::MAX as usize - 1);
        Self {
            entries: Vec::new(),
            free: Vec::new(),
            limit,
        }
    }

    /// How many values there may be.
    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    pub(crate) fn is_full(&self) -> bool {
        self.free.is_empty() && self.entries.len() >= self.limit
    }

    /// Adds what `make` makes of its name; `None` when the table is full.
    pub(crate) fn insert(&mut self, make: impl FnOnce(ConnId) -> T) -> Option<ConnId> {
        let index = match self.free.pop() {
            Some(index) => index,
            None if self.entries.len() < self.limit => {
                self.entries.push(Entry {
                    generation: 0,
                    value: None,
                });
                self.entries.len() as u32 - 1
            }
            None => return None,
        };
        let entry = &mut self.entries[index as usize];
        let id = ConnId {
            index,
            generation: entry.generation,
        };
        entry.value = Some(Box::new(make(id)));
        Some(id)
    }

    pub(crate) fn remove(&mut self, index: u32) -> Option<Box<T>> {
        let entry = self.entries.get_mut(index as usize)?;
        let value = entry.value.take()?;
        entry.generation = entry.generation.wrapping_add(1);
        self.free.push(index);
        Some(value)
    }

    pub(crate) fn get(&self, id: ConnId) -> Option<&T> {
        let entry = self.entries.get(id.index as usize)?;
        entry
            .value
            .as_deref()
            .filter(|_| entry.generation == id.generation)
    }

    pub(crate) fn get_mut(&mut self, id: ConnId) -> Option<&mut T> {
        let entry = self.entries.get_mut(id.index as usize)?;
        entry
            .value
            .as_deref_mut()
            .filter(|_| entry.generation == id.generation)
    }

    /// By index alone, whatever generation lives there.
    pub(crate) fn at_mut(&mut self, index: u32) -> Option<&mut T> {
        self.entries.get_mut(index as usize)?.value.as_deref_mut()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.entries
            .iter()
            .filter_map(|entry| entry.value.as_deref())
    }
}
