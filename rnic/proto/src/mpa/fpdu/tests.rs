use proptest::prelude::*;

use super::{
    CRC_LEN, FPDU_LEN_MAX, HEADER_LEN, MULPDU_MAX, MULPDU_MIN, Markers, begin, finish, fpdu_length,
    mulpdu, parse_length, verify,
};
use crate::Gather;
use crate::crc::copy_and_crc;
use crate::mpa::MpaError;

fn fpdu(ulpdu: &[u8], crc: bool) -> Vec<u8> {
    let mut out = vec![0xee; fpdu_length(ulpdu.len())];
    out[HEADER_LEN..HEADER_LEN + ulpdu.len()].copy_from_slice(ulpdu);
    assert_eq!(finish(&mut out, ulpdu.len(), crc, None), out.len());
    out
}

#[test]
fn an_fpdu_is_a_multiple_of_four_octets() {
    assert_eq!(fpdu_length(0), 8);
    assert_eq!(fpdu_length(2), 8);
    assert_eq!(fpdu_length(3), 12);
    assert_eq!(fpdu_length(42), 48);
    assert_eq!(FPDU_LEN_MAX, 65544);
    for len in 0..200 {
        assert_eq!(fpdu_length(len) % 4, 0);
        assert!((6..10).contains(&(fpdu_length(len) - len)));
    }
}

/// RFC 5044 section 4.5: MULPDU = EMSS - (6 + EMSS mod 4), and never under 128.
#[test]
fn mulpdu_follows_the_formula_and_its_bounds() {
    let off = |emss| mulpdu(emss, Markers::Off);
    assert_eq!(off(1460), 1454);
    assert_eq!(off(1448), 1442);
    assert_eq!(off(1463), 1454);
    assert_eq!(off(100), MULPDU_MIN);
    assert_eq!(off(0), MULPDU_MIN);
    assert_eq!(off(usize::MAX), MULPDU_MAX);
    for emss in 140..10_000 {
        assert!(fpdu_length(off(emss)) <= emss, "EMSS {emss}");
    }
}

#[test]
fn a_send_of_24_zeros_is_framed_as_the_rfc_has_it_without_marker() {
    let mut ulpdu = [0; 42];
    ulpdu[..2].copy_from_slice(&[0x41, 0x43]);
    ulpdu[13] = 1;
    let framed = fpdu(&ulpdu, true);
    assert_eq!(framed[..4], [0x00, 0x2a, 0x41, 0x43]);
    assert_eq!(framed.len(), 48);
    // The example's Marker is four zero octets, which do change a CRC; without it the CRC differs.
    assert_ne!(framed[44..], [0x52, 0x23, 0x99, 0x83]);
    assert!(verify(&Gather::new(&[&framed]), true).is_ok());
}

#[test]
fn without_crc_the_field_is_zero_and_is_not_checked() {
    let mut framed = fpdu(&[1, 2, 3], false);
    assert_eq!(framed, [0, 3, 1, 2, 3, 0, 0, 0, 0, 0, 0, 0]);
    framed[11] = 0xff;
    let view = [&framed[..]];
    let ulpdu = verify(&Gather::new(&view), false).expect("CRC off");
    assert_eq!(ulpdu.array(0), Some([1, 2, 3]));
    assert_eq!(
        verify(&Gather::new(&view), true).err(),
        Some(MpaError::CrcMismatch)
    );
}

#[test]
fn an_fpdu_of_another_length_than_it_says_is_invalid() {
    let framed = fpdu(&[7; 20], true);
    for len in 0..framed.len() {
        let view = [&framed[..len]];
        assert!(verify(&Gather::new(&view), false).is_err(), "{len} octets");
    }
    let view = [&framed[..], &[0, 0, 0, 0]];
    assert!(verify(&Gather::new(&view), false).is_err());
}

proptest! {
    #[test]
    fn what_is_framed_is_verified_in_any_cut(
        ulpdu in prop::collection::vec(any::<u8>(), 0..3000),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..4),
    ) {
        let framed = fpdu(&ulpdu, true);
        let mut ends: Vec<usize> = cuts.iter().map(|cut| cut.index(framed.len() + 1)).collect();
        ends.push(framed.len());
        ends.sort_unstable();
        let mut pieces = Vec::new();
        let mut from = 0;
        for end in ends {
            pieces.push(&framed[from..end]);
            from = end;
        }
        let found = verify(&Gather::new(&pieces), true).expect("right CRC");
        prop_assert_eq!(found.chunks().collect::<Vec<_>>().concat(), ulpdu);
    }

    #[test]
    fn a_flipped_bit_is_found(
        ulpdu in prop::collection::vec(any::<u8>(), 1..500),
        at in any::<prop::sample::Index>(),
        bit in 0..8,
    ) {
        let mut framed = fpdu(&ulpdu, true);
        let at = at.index(framed.len());
        framed[at] ^= 1u8 << bit;
        let view = [&framed[..]];
        prop_assert!(verify(&Gather::new(&view), true).is_err());
    }

    #[test]
    fn the_running_crc_is_that_of_the_whole(ulpdu in prop::collection::vec(any::<u8>(), 0..500)) {
        let mut out = vec![0xee; fpdu_length(ulpdu.len())];
        let mut state = begin(&mut out, ulpdu.len());
        copy_and_crc(&ulpdu, &mut out[HEADER_LEN..HEADER_LEN + ulpdu.len()], &mut state);
        finish(&mut out, ulpdu.len(), true, Some(state));
        prop_assert_eq!(out, fpdu(&ulpdu, true));
    }

    #[test]
    fn no_octets_make_verify_panic(octets in prop::collection::vec(any::<u8>(), 0..70), crc: bool) {
        let view = [&octets[..]];
        if let Ok(ulpdu) = verify(&Gather::new(&view), crc) {
            prop_assert_eq!(parse_length([octets[0], octets[1]]), ulpdu.len());
            prop_assert!(ulpdu.len() + HEADER_LEN + CRC_LEN <= octets.len());
        }
    }
}
