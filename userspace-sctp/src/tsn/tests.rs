use super::Tsn;

#[test]
fn numbers_wrap_modulo_two_to_the_32() {
    assert_eq!(Tsn(u32::MAX).next(), Tsn(0));
    assert_eq!(Tsn(0).previous(), Tsn(u32::MAX));
    assert_eq!(Tsn(3).since(Tsn(u32::MAX - 1)), 5);
}

#[test]
fn the_later_of_two_is_on_the_shorter_way_up() {
    assert!(Tsn(1).is_after(Tsn(u32::MAX)));
    assert!(!Tsn(u32::MAX).is_after(Tsn(1)));
    assert!(!Tsn(7).is_after(Tsn(7)));
    assert!(Tsn(7).is_at_or_after(Tsn(7)));
    assert!(Tsn((1 << 31) - 1).is_after(Tsn(0)));
}

#[test]
fn neither_of_two_opposite_numbers_is_later() {
    assert!(!Tsn(1 << 31).is_after(Tsn(0)));
    assert!(!Tsn(0).is_after(Tsn(1 << 31)));
}
