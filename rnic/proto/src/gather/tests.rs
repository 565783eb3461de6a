use proptest::prelude::*;

use super::{Bytes, Gather};

#[test]
fn a_header_that_straddles_pieces_is_read_by_value() {
    let pieces: [&[u8]; 4] = [&[1, 2], &[], &[3], &[4, 5]];
    let view = Gather::new(&pieces);
    assert_eq!(view.len(), 5);
    assert_eq!(view.array(1), Some([2, 3, 4]));
    assert_eq!(view.array(0), Some([1, 2, 3, 4, 5]));
}

#[test]
fn nothing_is_read_behind_the_end() {
    let pieces: [&[u8]; 2] = [&[1, 2], &[3]];
    let view = Gather::new(&pieces);
    assert_eq!(view.array::<2>(2), None);
    assert!(view.sub(3, 1).is_none());
    assert!(view.sub(usize::MAX, 2).is_none());
    assert!(view.tail(4).is_none());
    assert!(view.tail(3).is_some_and(|end| end.is_empty()));
    assert!(Gather::new(&[]).is_empty());
}

proptest! {
    #[test]
    fn a_view_equals_the_joined_bytes(
        pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..5), 0..6),
        offset in 0usize..30,
        len in 0usize..30,
    ) {
        let slices: Vec<&[u8]> = pieces.iter().map(Vec::as_slice).collect();
        let joined = pieces.concat();
        let view = Gather::new(&slices);
        let expected = joined.get(offset..offset + len);
        let found = view.sub(offset, len).map(|sub| sub.chunks().collect::<Vec<_>>().concat());
        prop_assert_eq!(found.as_deref(), expected);
        let tail = view.tail(offset).map(|tail| tail.chunks().collect::<Vec<_>>().concat());
        prop_assert_eq!(tail.as_deref(), joined.get(offset..));
    }
}
