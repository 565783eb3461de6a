use super::*;

#[test]
fn comparison_wraps_at_two_to_the_thirty_second() {
    assert!(SeqNum(u32::MAX).before(SeqNum(0)));
    assert!(!SeqNum(0).before(SeqNum(u32::MAX)));
    assert_eq!(SeqNum(5).distance(SeqNum(u32::MAX)), 6);
}

#[test]
fn positions_go_on_past_the_wrap() {
    let space = Space::new(SeqNum(u32::MAX - 10));
    let far = 3 * (1_u64 << 32) + 77;
    assert_eq!(
        space.position(far - 1000, space.wire(far)),
        far.cast_signed()
    );
    assert_eq!(
        space.position(far + 1000, space.wire(far)),
        far.cast_signed()
    );
    assert_eq!(space.position(0, SeqNum(u32::MAX - 11)), -1);
}
