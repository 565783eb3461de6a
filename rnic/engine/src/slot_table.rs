//! Objects by the numbers that the Privileged Resource Manager gives out.
//!
//! The PRM numbers objects from 1 to their maximum, so a number is an index: a lookup is one array access
//! without a hash. Commands may name other numbers, and even have them in use; those are kept in a map.

use crate::idmap::IdMap;

/// Objects by number.
#[derive(Debug)]
pub(crate) struct SlotTable<T> {
    /// By number, up to the highest that was in use; never more than `most`.
    places: Vec<Option<T>>,
    most: usize,
    /// Those of higher numbers.
    others: IdMap<u32, T>,
    len: usize,
}

impl<T> Default for SlotTable<T> {
    fn default() -> Self {
        Self::new(0)
    }
}

impl<T> SlotTable<T> {
    /// For up to `capacity` objects, whose numbers are as a rule 1 to as many: nothing is allocated for
    /// those later.
    pub fn new(capacity: usize) -> Self {
        let most = capacity.saturating_add(1);
        Self {
            places: Vec::with_capacity(most),
            most,
            others: IdMap::default(),
            len: 0,
        }
    }

    /// The object of this number.
    #[inline]
    pub fn get(&self, number: u32) -> Option<&T> {
        match self.places.get(number as usize) {
            Some(place) => place.as_ref(),
            None => self.other(number),
        }
    }

    /// The object of this number.
    #[inline]
    pub fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        // Not by a match, which would borrow the places beyond it.
        if (number as usize) < self.places.len() {
            return self.places.get_mut(number as usize)?.as_mut();
        }
        self.other_mut(number)
    }

    #[cold]
    #[inline(never)]
    fn other(&self, number: u32) -> Option<&T> {
        self.others.get(&number)
    }

    #[cold]
    #[inline(never)]
    fn other_mut(&mut self, number: u32) -> Option<&mut T> {
        self.others.get_mut(&number)
    }

    /// Whether there is one of this number.
    pub fn contains(&self, number: u32) -> bool {
        self.get(number).is_some()
    }

    /// Puts an object; gives the one that had its number.
    pub fn insert(&mut self, number: u32, object: T) -> Option<T> {
        let place = number as usize;
        let before = if place < self.most {
            if place >= self.places.len() {
                self.places.resize_with(place + 1, || None);
            }
            self.places[place].replace(object)
        } else {
            self.others.insert(number, object)
        };
        self.len += usize::from(before.is_none());
        before
    }

    /// The object of this number, which is made if there is none.
    pub fn get_or_default(&mut self, number: u32) -> &mut T
    where
        T: Default,
    {
        if !self.contains(number) {
            self.insert(number, T::default());
        }
        self.get_mut(number).expect("it is there now")
    }

    /// Takes an object out.
    pub fn remove(&mut self, number: u32) -> Option<T> {
        let object = match self.places.get_mut(number as usize) {
            Some(place) => place.take(),
            None => self.others.remove(&number),
        };
        self.len -= usize::from(object.is_some());
        object
    }

    pub fn len(&self) -> usize {
        self.len
    }

    /// Are there none?
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// All objects, with their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        // Numbers are 32 bits, so places of more are never made.
        let near = (0..).zip(&self.places);
        let near = near.filter_map(|(number, place)| Some((number, place.as_ref()?)));
        near.chain(self.others.iter().map(|(number, object)| (*number, object)))
    }

    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.places.iter().flatten().chain(self.others.values())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn all(numbered: &SlotTable<&'static str>) -> BTreeMap<u32, &'static str> {
        numbered
            .iter()
            .map(|(number, name)| (number, *name))
            .collect()
    }

    #[test]
    fn objects_are_found_by_their_numbers_whatever_these_are() {
        let mut numbered = SlotTable::new(4);
        let names = [(1, "a"), (4, "b"), (3, "c"), (5, "d"), (u32::MAX, "e")];
        for (count, (number, name)) in names.into_iter().enumerate() {
            assert_eq!(numbered.get(number), None);
            assert_eq!(numbered.insert(number, name), None);
            assert_eq!(numbered.len(), count + 1);
        }
        assert_eq!(all(&numbered), BTreeMap::from(names));
        assert_eq!(numbered.values().count(), names.len());
        for (number, name) in names {
            assert!(numbered.contains(number));
            assert_eq!(numbered.get(number), Some(&name));
            assert_eq!(numbered.get_mut(number), Some(&mut { name }));
        }
        assert!(!numbered.contains(0) && !numbered.contains(2) && !numbered.contains(6));
    }

    #[test]
    fn one_that_is_not_there_is_made_once() {
        let mut numbered = SlotTable::new(1);
        for number in [1, 7] {
            *numbered.get_or_default(number) += 2;
            *numbered.get_or_default(number) += 3;
            assert_eq!(numbered.get(number), Some(&5));
        }
        assert_eq!(numbered.len(), 2);
    }

    #[test]
    fn what_is_taken_out_is_gone_and_its_number_free() {
        let mut numbered = SlotTable::new(2);
        for number in [2, 9] {
            numbered.insert(number, "first");
            assert_eq!(numbered.insert(number, "second"), Some("first"));
            assert_eq!(numbered.remove(number), Some("second"));
            assert_eq!(numbered.remove(number), None);
            assert!(numbered.is_empty() && all(&numbered).is_empty());
            assert_eq!(numbered.insert(number, "third"), None);
            numbered.remove(number);
        }
    }

    #[test]
    fn as_many_as_there_may_be_need_no_more_memory_than_there_is() {
        let mut numbered = SlotTable::new(100);
        let before = numbered.places.capacity();
        for number in 1..=100 {
            numbered.insert(number, "");
        }
        assert_eq!(numbered.places.capacity(), before);
        assert!(numbered.others.is_empty());
    }
}
