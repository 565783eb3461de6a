use super::*;

#[test]
fn an_old_name_does_not_reach_a_new_value() {
    let mut slab = Slab::new(10);
    let old = slab.insert(|_| 1).unwrap();
    slab.remove(old.index);
    let new = slab.insert(|_| 2).unwrap();
    assert_eq!(new.index, old.index);
    assert_eq!(slab.get(old), None);
    assert_eq!(slab.get_mut(old), None);
    assert_eq!(slab.get(new), Some(&2));
}

#[test]
fn a_full_table_takes_no_more() {
    let mut slab = Slab::new(2);
    let first = slab.insert(|_| 1).unwrap();
    slab.insert(|_| 2).unwrap();
    assert!(slab.is_full());
    assert_eq!(slab.insert(|_| 3), None);
    slab.remove(first.index);
    assert!(!slab.is_full());
    assert!(slab.insert(|_| 3).is_some());
    assert_eq!(slab.iter().count(), 2);
}
