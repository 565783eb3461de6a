//! Associations by name, by their two ends, and by our Verification Tag.

#[cfg(test)]
mod tests;

use std::cell::Cell;
use std::collections::{HashMap, hash_map};

use crate::interface::{AssocId, Ends};
use crate::random::Keyed;

/// A table of at most `limit` values. Its memory grows when a value is added, and never else.
#[derive(Debug)]
pub(crate) struct Table<T> {
    slots: Vec<Slot<T>>,
    vacant: Vec<u32>,
    by_ends: HashMap<Ends, u32, Keyed>,
    by_tag: HashMap<u32, u32, Keyed>,
    /// What was found last: a packet is looked for more than once, and the next is often of the same association.
    last: Cell<Option<(Ends, u32)>>,
    limit: usize,
}

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    entry: Option<Entry<T>>,
}

#[derive(Debug)]
struct Entry<T> {
    ends: Ends,
    /// Others by which it is found.
    aliases: Vec<Ends>,
    tag: u32,
    value: T,
}

impl<T> Table<T> {
    pub(crate) fn new(limit: usize, key: Keyed) -> Self {
        Self {
            slots: Vec::new(),
            vacant: Vec::new(),
            by_ends: HashMap::with_hasher(key),
            by_tag: HashMap::with_hasher(key),
            last: Cell::new(None),
            limit: limit.min(u32::MAX as usize - 1),
        }
    }

    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    pub(crate) fn len(&self) -> usize {
        self.by_tag.len()
    }

    /// Adds what `make` makes of its name, when there is room. Neither `ends` nor `tag` is in the table.
    pub(crate) fn insert(
        &mut self,
        ends: Ends,
        tag: u32,
        make: impl FnOnce(AssocId) -> T,
    ) -> Option<AssocId> {
        if self.len() >= self.limit {
            return None;
        }
        let index = self.vacant.pop().unwrap_or_else(|| {
            self.slots.push(Slot {
                generation: 0,
                entry: None,
            });
            // Below the limit.
            (self.slots.len() - 1) as u32
        });
        let slot = &mut self.slots[index as usize];
        let id = AssocId {
            index,
            generation: slot.generation,
        };
        let value = make(id);
        slot.entry = Some(Entry {
            ends,
            aliases: Vec::new(),
            tag,
            value,
        });
        self.by_ends.insert(ends, index);
        self.by_tag.insert(tag, index);
        Some(id)
    }

    pub(crate) fn remove(&mut self, id: AssocId) -> Option<T> {
        self.get(id)?;
        let slot = &mut self.slots[id.index()];
        let Entry {
            ends,
            aliases,
            tag,
            value,
        } = slot.entry.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        self.vacant.push(id.index);
        self.last.set(None);
        self.by_ends.remove(&ends);
        for alias in &aliases {
            self.by_ends.remove(alias);
        }
        self.by_tag.remove(&tag);
        Some(value)
    }

    pub(crate) fn get(&self, id: AssocId) -> Option<&T> {
        let slot = self.slots.get(id.index())?;
        let entry = slot.entry.as_ref()?;
        (slot.generation == id.generation).then_some(&entry.value)
    }

    pub(crate) fn get_mut(&mut self, id: AssocId) -> Option<&mut T> {
        let slot = self.slots.get_mut(id.index())?;
        let entry = slot.entry.as_mut()?;
        (slot.generation == id.generation).then_some(&mut entry.value)
    }

    /// The name of what is at an index.
    pub(crate) fn id_at(&self, index: u32) -> Option<AssocId> {
        let slot = self.slots.get(index as usize)?;
        slot.entry.as_ref()?;
        Some(AssocId {
            index,
            generation: slot.generation,
        })
    }

    pub(crate) fn find(&self, ends: &Ends) -> Option<AssocId> {
        if let Some((last, index)) = self.last.get()
            && last == *ends
        {
            return self.id_at(index);
        }
        let index = *self.by_ends.get(ends)?;
        self.last.set(Some((*ends, index)));
        self.id_at(index)
    }

    /// The association that gave itself this Verification Tag.
    pub(crate) fn find_tag(&self, tag: u32) -> Option<AssocId> {
        self.id_at(*self.by_tag.get(&tag)?)
    }

    /// The association is found by these ends too, but for those that another one has.
    pub(crate) fn set_aliases(&mut self, id: AssocId, aliases: Vec<Ends>) {
        let slot = self.slots.get_mut(id.index());
        let Some(entry) = slot.and_then(|slot| slot.entry.as_mut()) else {
            return;
        };
        self.last.set(None);
        for alias in std::mem::take(&mut entry.aliases) {
            self.by_ends.remove(&alias);
        }
        for alias in aliases {
            if let hash_map::Entry::Vacant(vacant) = self.by_ends.entry(alias) {
                vacant.insert(id.index);
                entry.aliases.push(alias);
            }
        }
    }

    /// The association has another Verification Tag, which is not in the table.
    pub(crate) fn set_tag(&mut self, id: AssocId, tag: u32) {
        let slot = self.slots.get_mut(id.index());
        if let Some(entry) = slot.and_then(|slot| slot.entry.as_mut()) {
            self.by_tag.remove(&entry.tag);
            entry.tag = tag;
            self.by_tag.insert(tag, id.index);
        }
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = AssocId> + '_ {
        (0..self.slots.len()).filter_map(|index| self.id_at(index as u32))
    }
}
