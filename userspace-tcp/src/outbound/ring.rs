//! The segments of the queue by name. A name is a number that wraps; those of a queue follow one
//! another, so that a name is a place.

use std::collections::VecDeque;

use userspace_net::pool::QueuePool;

use super::slot::Slot;
use crate::seq::Position;

/// Segments in the order of the stream. Borrows its memory while it is not empty.
#[derive(Debug)]
pub(super) struct Ring<B> {
    slots: VecDeque<Slot<B>>,
    /// Name of the first.
    front: u32,
}

impl<B> Ring<B> {
    pub(super) fn new() -> Self {
        Self {
            slots: VecDeque::new(),
            front: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Name of the first segment, or of the one that will be.
    pub(super) fn front_name(&self) -> u32 {
        self.front
    }

    /// The place of a name; beyond the end if there is no such segment.
    pub(super) fn place(&self, name: u32) -> usize {
        name.wrapping_sub(self.front) as usize
    }

    /// The name of a place.
    pub(super) fn name(&self, place: usize) -> u32 {
        // A queue has far less than 2^32 segments.
        self.front.wrapping_add(place as u32)
    }

    pub(super) fn get(&self, name: u32) -> Option<&Slot<B>> {
        self.slots.get(self.place(name))
    }

    pub(super) fn get_mut(&mut self, name: u32) -> Option<&mut Slot<B>> {
        let place = self.place(name);
        self.slots.get_mut(place)
    }

    pub(super) fn at(&self, place: usize) -> Option<&Slot<B>> {
        self.slots.get(place)
    }

    pub(super) fn at_mut(&mut self, place: usize) -> Option<&mut Slot<B>> {
        self.slots.get_mut(place)
    }

    pub(super) fn front(&self) -> Option<&Slot<B>> {
        self.slots.front()
    }

    /// The first segment that begins at `position` or behind it.
    pub(super) fn find(&self, position: Position) -> u32 {
        self.name(self.slots.partition_point(|slot| slot.start < position))
    }

    pub(super) fn push(&mut self, slot: Slot<B>, pool: &mut QueuePool<Slot<B>>) {
        pool.make_room(&mut self.slots);
        self.slots.push_back(slot);
    }

    /// Puts two segments in the place of one behind which none was sent: their names change.
    pub(super) fn replace(
        &mut self,
        place: usize,
        [first, second]: [Slot<B>; 2],
        pool: &mut QueuePool<Slot<B>>,
    ) {
        pool.make_room(&mut self.slots);
        if let Some(slot) = self.slots.get_mut(place) {
            *slot = first;
            self.slots.insert(place + 1, second);
        }
    }

    pub(super) fn pop(&mut self) -> Option<Slot<B>> {
        let slot = self.slots.pop_front()?;
        self.front = self.front.wrapping_add(1);
        Some(slot)
    }

    /// Gives the memory back if nothing is left.
    pub(super) fn settle(&mut self, pool: &mut QueuePool<Slot<B>>) {
        pool.settle(&mut self.slots);
    }
}
