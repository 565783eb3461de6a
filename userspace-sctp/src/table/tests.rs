use super::Table;
use crate::interface::Ends;
use crate::random::Keyed;

fn ends(port: u16) -> Ends {
    Ends {
        local: ([198, 18, 0, 1], 5000).into(),
        remote: ([198, 18, 0, 2], port).into(),
    }
}

#[test]
fn values_are_found_by_name_ends_and_tag_until_they_are_removed() {
    let mut table = Table::new(2, Keyed::new([1; 16]));
    let first = table.insert(ends(1), 11, |_| "first").unwrap();
    let second = table.insert(ends(2), 12, |_| "second").unwrap();
    assert_eq!(table.insert(ends(3), 13, |_| "third"), None, "the bound");
    assert_eq!(table.find(&ends(2)), Some(second));
    assert_eq!(table.find_tag(11), Some(first));
    table.set_tag(first, 21);
    assert_eq!(
        (table.find_tag(11), table.find_tag(21)),
        (None, Some(first))
    );
    assert_eq!(table.remove(first), Some("first"));
    assert_eq!(table.remove(first), None);
    assert_eq!((table.find(&ends(1)), table.find_tag(21)), (None, None));
    let third = table.insert(ends(3), 13, |_| "third").unwrap();
    assert_eq!(third.index(), first.index());
    assert_eq!((table.get(first), table.get(third)), (None, Some(&"third")));
    assert_eq!(table.len(), 2);
}

/// What was found last is not found in the place of what came after it.
#[test]
fn what_was_found_last_may_be_gone_or_another_ones() {
    let mut table = Table::new(2, Keyed::new([1; 16]));
    let first = table.insert(ends(1), 11, |_| "first").unwrap();
    table.set_aliases(first, vec![ends(5)]);
    for _ in 0..2 {
        assert_eq!(table.find(&ends(5)), Some(first));
    }
    table.set_aliases(first, Vec::new());
    assert_eq!(table.find(&ends(5)), None, "no alias any more");
    assert_eq!(table.find(&ends(1)), Some(first));
    table.remove(first);
    let second = table.insert(ends(2), 12, |_| "second").unwrap();
    assert_eq!(second.index(), first.index());
    assert_eq!(table.find(&ends(1)), None, "another has its place");
    assert_eq!(table.find(&ends(2)), Some(second));
}
