//! Objects of one kind, by number.
//!
//! A number says nothing of its object. One that was freed rests until [`RESTING`] others were freed too or no fresh
//! one is left, so that a message about an object that is gone rarely meets a new one. So a table is no longer than the
//! most objects that there were at a time, and those. 0 is never given out.

use std::collections::VecDeque;

use rnic_ipc::id::ClientId;

/// So many freed numbers are kept back while there are fresh ones.
const RESTING: usize = 1024;

/// A bounded table of objects of one kind.
#[derive(Debug)]
pub(crate) struct Table<T> {
    slots: Vec<Option<Slot<T>>>,
    /// The one that was freed first is the first.
    free: VecDeque<u32>,
    capacity: u32,
}

/// An object with its owner.
#[derive(Debug)]
pub(crate) struct Slot<T> {
    pub(crate) owner: ClientId,
    pub(crate) phase: Phase,
    /// Objects that depend on this one.
    pub(crate) users: u32,
    pub(crate) object: T,
}

/// Whether an object can be named by its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Granted, but the shard has not made it yet.
    Coming,
    Live,
    /// The shard is taking it away; its number is not free yet.
    Leaving,
}

impl<T> Table<T> {
    pub(crate) fn new(capacity: u32) -> Self {
        Self {
            slots: Vec::new(),
            free: VecDeque::new(),
            capacity,
        }
    }

    /// The number that [`Table::insert`] would take, or `None` when the table is full.
    fn next(&self) -> Option<u32> {
        let grown = u32::try_from(self.slots.len()).ok()?;
        if grown < self.capacity && self.free.len() < RESTING {
            grown.checked_add(1)
        } else {
            self.free.front().copied()
        }
    }

    /// Adds an object; `None` when the table is full.
    pub(crate) fn insert(&mut self, owner: ClientId, phase: Phase, object: T) -> Option<u32> {
        let id = self.next()?;
        let slot = Some(Slot {
            owner,
            phase,
            users: 0,
            object,
        });
        let index = id as usize - 1;
        if index == self.slots.len() {
            self.slots.push(slot);
        } else {
            self.free.pop_front();
            self.slots[index] = slot;
        }
        Some(id)
    }

    /// Objects in the table, in any phase.
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// An object in any phase, of any owner.
    pub(crate) fn get_mut(&mut self, id: u32) -> Option<&mut Slot<T>> {
        self.slots.get_mut((id as usize).checked_sub(1)?)?.as_mut()
    }

    /// A live object of `owner`.
    pub(crate) fn live(&self, owner: ClientId, id: u32) -> Option<&Slot<T>> {
        self.slots
            .get((id as usize).checked_sub(1)?)?
            .as_ref()
            .filter(|slot| slot.owner == owner && slot.phase == Phase::Live)
    }

    /// A live object of `owner`, to change.
    pub(crate) fn live_mut(&mut self, owner: ClientId, id: u32) -> Option<&mut Slot<T>> {
        self.get_mut(id)
            .filter(|slot| slot.owner == owner && slot.phase == Phase::Live)
    }

    /// Removes an object; its number becomes free.
    pub(crate) fn remove(&mut self, id: u32) -> Option<Slot<T>> {
        let slot = self.slots.get_mut((id as usize).checked_sub(1)?)?.take()?;
        self.free.push_back(id);
        Some(slot)
    }

    /// The numbers of all live objects of `owner`.
    pub(crate) fn live_of(&self, owner: ClientId) -> impl Iterator<Item = u32> {
        (1..).zip(&self.slots).filter_map(move |(id, slot)| {
            let slot = slot.as_ref()?;
            (slot.owner == owner && slot.phase == Phase::Live).then_some(id)
        })
    }

    /// All places behind number `after`, empty ones too.
    pub(crate) fn after(&self, after: u32) -> impl Iterator<Item = (u32, Option<&Slot<T>>)> {
        // The places first: without a place no number is used up.
        let places = self.slots.get(after as usize..).unwrap_or(&[]).iter();
        let numbered = places.zip(after.saturating_add(1)..);
        numbered.map(|(place, number)| (number, place.as_ref()))
    }

    /// Makes all live objects of `owner` leave, and names them.
    pub(crate) fn leave_all(&mut self, owner: ClientId) -> impl Iterator<Item = (u32, &Slot<T>)> {
        self.of(owner).filter_map(|(id, slot)| {
            let live = slot.phase == Phase::Live;
            slot.phase = if live { Phase::Leaving } else { slot.phase };
            live.then_some((id, &*slot))
        })
    }

    /// All objects of `owner`, by number.
    pub(crate) fn of(&mut self, owner: ClientId) -> impl Iterator<Item = (u32, &mut Slot<T>)> {
        (1..)
            .zip(self.slots.iter_mut())
            .filter_map(|(id, slot)| Some((id, slot.as_mut()?)))
            .filter(move |(_, slot)| slot.owner == owner)
    }
}

#[cfg(test)]
mod tests;
