use super::{Msn, Stag, TaggedOffset};

#[test]
fn an_stag_is_an_index_of_24_bits_and_a_key_of_8() {
    let stag = Stag::from_parts(0x12_3456, 0x78);
    assert_eq!(stag, Stag(0x1234_5678));
    assert_eq!((stag.index(), stag.key()), (0x12_3456, 0x78));
    assert_eq!(Stag::from_parts(u32::MAX, 0).index(), Stag::INDEX_MAX);
    assert_eq!(format!("{stag} {stag:?}"), "0x12345678 Stag(0x12345678)");
}

#[test]
fn message_numbers_wrap() {
    assert_eq!(Msn(u32::MAX).next(), Msn(0));
    assert_eq!(Msn(1).distance_from(Msn(u32::MAX)), 2);
    assert_eq!(Msn(u32::MAX).distance_from(Msn(1)), -2);
}

#[test]
fn a_tagged_offset_never_wraps_silently() {
    assert_eq!(TaggedOffset(1).checked_add(2), Some(TaggedOffset(3)));
    assert_eq!(TaggedOffset(u64::MAX).checked_add(1), None);
}
