use super::*;

#[derive(Debug, PartialEq, Eq)]
struct Value(Key, u32);

impl Named for Value {
    type Name = Key;

    fn id(&self) -> Key {
        self.0
    }

    fn name(key: Key) -> Key {
        key
    }

    fn key(name: Key) -> Key {
        name
    }
}

#[test]
fn an_old_name_does_not_reach_a_new_value() {
    let mut slab = Slab::new(10);
    let old = slab.insert(|id| Value(id, 1)).unwrap();
    assert_eq!(slab.remove(old.index), Some(Value(old, 1)));
    assert_eq!(slab.remove(old.index), None);
    let new = slab.insert(|id| Value(id, 2)).unwrap();
    assert_eq!(new.index, old.index);
    assert_eq!(slab.get(old), None);
    assert_eq!(slab.get_mut(old), None);
    assert_eq!(slab.get(new), Some(&Value(new, 2)));
}

#[test]
fn a_full_table_takes_no_more() {
    let mut slab = Slab::new(2);
    let first = slab.insert(|id| Value(id, 1)).unwrap();
    slab.insert(|id| Value(id, 2)).unwrap();
    assert!(slab.is_full());
    assert_eq!(slab.insert(|id| Value(id, 3)), None);
    slab.remove(first.index);
    assert!(!slab.is_full());
    assert!(slab.insert(|id| Value(id, 3)).is_some());
    assert_eq!(slab.iter().count(), 2);
}

#[test]
fn the_value_that_left_last_makes_place_for_the_next() {
    let mut slab = Slab::new(1000);
    let ids: Vec<Key> = (0..200)
        .map(|i| slab.insert(|id| Value(id, i)).unwrap())
        .collect();
    let indices: Vec<u32> = ids.iter().map(|id| id.index).collect();
    assert_eq!(indices, (0..200).collect::<Vec<_>>());
    for id in [ids[150], ids[3], ids[77]] {
        slab.remove(id.index);
    }
    let again: Vec<u32> = (0..4)
        .map(|i| slab.insert(|id| Value(id, i)).unwrap().index)
        .collect();
    assert_eq!(again, [77, 3, 150, 200]);
    assert_eq!(slab.iter().count(), 201);
}
