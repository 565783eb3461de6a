use super::{MARKER_INTERVAL, Markers, fpdu_pointer, marker};

#[test]
fn the_next_marker_is_at_the_next_multiple_of_512() {
    assert_eq!(Markers::Off.next(0), None);
    assert_eq!(Markers::On.next(0), Some(0));
    assert_eq!(Markers::On.next(4), Some(508));
    assert_eq!(Markers::On.next(511), Some(1));
    assert_eq!(Markers::On.next(512 * 7), Some(0));
    assert_eq!(Markers::On.next(u64::MAX), Some(1));
}

/// RFC 5044 section 4.3: the bottom two bits count as zero, the first two bytes not at all.
#[test]
fn a_marker_says_how_far_back_its_fpdu_begins() {
    assert_eq!(marker(0x14), [0, 0, 0, 0x14]);
    assert_eq!(fpdu_pointer([0xff, 0xff, 0x01, 0x17]), 0x114);
    for back in (0..usize::from(u16::MAX)).step_by(MARKER_INTERVAL) {
        assert_eq!(fpdu_pointer(marker(back)), back);
    }
}
