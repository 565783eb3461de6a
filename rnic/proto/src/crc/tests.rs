use proptest::prelude::*;

use super::{Crc32c, RESIDUE, crc_of};

#[test]
fn the_check_value_of_crc32c() {
    assert_eq!(Crc32c::new().over(b"123456789").value(), 0xe306_9283);
}

/// RFC 5044 section 4.4, Figure 5: the first FPDU of a stream with Markers.
#[test]
fn the_example_of_figure_5() {
    let mut bytes = [0; 48];
    bytes[5..8].copy_from_slice(&[0x2a, 0x41, 0x43]);
    bytes[0x13] = 1;
    assert_eq!(crc_of([&bytes[..]]).bytes(), [0x52, 0x23, 0x99, 0x83]);
}

/// RFC 5044 section 4.4, Figure 6: an FPDU with a Marker within.
#[test]
fn the_example_of_figure_6() {
    let mut bytes = [0; 0x30];
    bytes[1..4].copy_from_slice(&[0x2a, 0x41, 0x43]);
    bytes[0x0f] = 2;
    bytes[0x17] = 0x14;
    assert_eq!(crc_of([&bytes[..]]).bytes(), [0x84, 0x92, 0x58, 0x98]);
}

/// The example of figure 6 with its CRC behind it, by a program that knows nothing of ours: each bit
/// by itself.
#[test]
fn the_residue_is_what_long_division_leaves() {
    let mut bytes = [0; 0x34];
    bytes[1..4].copy_from_slice(&[0x2a, 0x41, 0x43]);
    bytes[0x0f] = 2;
    bytes[0x17] = 0x14;
    bytes[0x30..].copy_from_slice(&[0x84, 0x92, 0x58, 0x98]);
    let divided = bytes.iter().fold(u32::MAX, |rest, byte| {
        (0..8).fold(rest ^ u32::from(*byte), |rest, _| {
            (rest >> 1) ^ (0x82f6_3b78 * (rest & 1))
        })
    });
    assert_eq!(!divided, RESIDUE);
    assert_eq!(crc_of([&bytes[..]]).value(), RESIDUE);
    // No other bytes in the place of the CRC leave it.
    for bit in 0..8 * bytes.len() {
        let mut wrong = bytes;
        wrong[bit / 8] ^= 1 << (bit % 8);
        assert_ne!(crc_of([&wrong[..]]).value(), RESIDUE, "bit {bit}");
    }
}

proptest! {
    #[test]
    fn a_crc_behind_its_bytes_leaves_the_residue(
        mut bytes in prop::collection::vec(any::<u8>(), 0..5_000),
        wrong in 1..=u32::MAX,
    ) {
        let crc = crc_of([&bytes[..]]);
        let right = [&bytes[..], &crc.bytes()].concat();
        prop_assert_eq!(crc_of([&right[..]]).value(), RESIDUE);
        bytes.extend_from_slice(&(crc.value() ^ wrong).to_le_bytes());
        prop_assert_ne!(crc_of([&bytes[..]]).value(), RESIDUE);
    }
    #[test]
    fn cutting_does_not_change_the_crc(
        bytes in prop::collection::vec(any::<u8>(), 0..10_000),
        cut in any::<prop::sample::Index>(),
    ) {
        let cut = cut.index(bytes.len() + 1);
        let (head, tail) = bytes.split_at(cut);
        let whole = crc_of([&bytes[..]]);
        prop_assert_eq!(crc_of([head, tail]), whole);
    }
}
