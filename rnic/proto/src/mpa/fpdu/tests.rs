use proptest::prelude::*;
use rnic_crc::Words;

use super::{
    CRC_LEN, FPDU_LEN_MAX, HEADER_LEN, Layout, Writer, finish, fpdu_length, locate, mulpdu,
    pad_length, parse, plain_length, verify, write_plain,
};
use crate::crc::crc_of;
use crate::mpa::MpaError;
use crate::mpa::marker::Markers;
use crate::{Bytes, Gather};

/// An FPDU at `at` of its stream.
pub(super) fn framed(ulpdu: &[u8], crc: bool, markers: Markers, at: u64) -> Vec<u8> {
    let layout = Layout::new(markers, at, ulpdu.len());
    let mut out = vec![0xee; layout.len()];
    let mut from = 0;
    for span in layout.ulpdu(0, ulpdu.len()) {
        let len = span.len();
        out[span].copy_from_slice(&ulpdu[from..from + len]);
        from += len;
    }
    assert_eq!(from, ulpdu.len());
    assert_eq!(finish(&mut out, &layout, crc), out.len());
    out
}

fn fpdu(ulpdu: &[u8], crc: bool) -> Vec<u8> {
    framed(ulpdu, crc, Markers::Off, 0)
}

/// The ULPDU of an FPDU that lies in `pieces` at `at` of its stream.
fn unframed(pieces: &[&[u8]], crc: bool, markers: Markers, at: u64) -> Result<Vec<u8>, MpaError> {
    let bytes = Gather::new(pieces);
    let layout = parse(&bytes, markers, at).ok_or(MpaError::CrcMismatch)?;
    let ulpdu = verify(&bytes, &layout, crc)?;
    Ok(ulpdu.chunks().collect::<Vec<_>>().concat())
}

/// A stream of FPDUs as section 4.3 tells it: byte by byte, with a Marker wherever the count of
/// bytes is a multiple of 512.
fn stream_with_markers(ulpdus: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut count = 0_usize;
    let mut fpdus = Vec::new();
    for ulpdu in ulpdus {
        let mut plain = (ulpdu.len() as u16).to_be_bytes().to_vec();
        plain.extend_from_slice(ulpdu);
        plain.resize(plain.len() + pad_length(ulpdu.len()), 0);
        let (mut out, mut header) = (Vec::new(), None);
        let mut put = |bytes: &[u8], out: &mut Vec<u8>| {
            for byte in bytes {
                if count.is_multiple_of(512) {
                    let back = header.map_or(0, |header| count - header) as u16;
                    out.extend_from_slice(&[0, 0]);
                    out.extend_from_slice(&back.to_be_bytes());
                    count += 4;
                }
                header.get_or_insert(count);
                out.push(*byte);
                count += 1;
            }
        };
        put(&plain, &mut out);
        // The Marker that may stand before the CRC is covered by it.
        put(&[0], &mut out);
        out.pop();
        let crc = crc_of([&out[..]]).bytes();
        out.extend_from_slice(&crc);
        count += 3;
        fpdus.push(out);
    }
    fpdus
}

#[test]
fn an_fpdu_is_a_multiple_of_four_bytes() {
    assert_eq!(fpdu_length(0), 8);
    assert_eq!(fpdu_length(2), 8);
    assert_eq!(fpdu_length(3), 12);
    assert_eq!(fpdu_length(42), 48);
    assert_eq!(FPDU_LEN_MAX, 65544 + 4 * 130);
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
    // The bounds as section 3 has them, not as the code calls them.
    assert_eq!((off(134), off(133), off(100), off(0)), (128, 128, 128, 128));
    assert_eq!(off(138), 130, "EMSS mod 4 is 2");
    assert_eq!((off(64_776), off(64_772)), (64_768, 64_766));
    assert_eq!((off(70_000), off(usize::MAX)), (64_768, 64_768));
    assert_eq!(mulpdu(70_000, Markers::On), 64_768);
    assert_eq!((off(65_535), off(70_000)), (64_768, 64_768));
    assert_eq!(mulpdu(100, Markers::On), 128);
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
    // The example's Marker is four zero bytes, which do change a CRC; without it the CRC differs.
    assert_ne!(framed[44..], [0x52, 0x23, 0x99, 0x83]);
    assert_eq!(
        unframed(&[&framed], true, Markers::Off, 0).as_deref(),
        Ok(&ulpdu[..])
    );
}

#[test]
fn without_crc_the_field_is_zero_and_is_not_checked() {
    let mut framed = fpdu(&[1, 2, 3], false);
    assert_eq!(framed, [0, 3, 1, 2, 3, 0, 0, 0, 0, 0, 0, 0]);
    framed[11] = 0xff;
    let found = |crc| unframed(&[&framed], crc, Markers::Off, 0);
    assert_eq!(found(false), Ok(vec![1, 2, 3]));
    assert_eq!(found(true), Err(MpaError::CrcMismatch));
}

#[test]
fn an_fpdu_of_another_length_than_it_says_is_invalid() {
    let framed = fpdu(&[7; 20], true);
    for len in 0..framed.len() {
        let cut = unframed(&[&framed[..len]], false, Markers::Off, 0);
        assert!(cut.is_err(), "{len} bytes");
    }
    let pieces = [&framed[..], &[0, 0, 0, 0]];
    assert!(unframed(&pieces, false, Markers::Off, 0).is_err());
}

proptest! {
    #[test]
    fn what_is_framed_is_verified_in_any_cut(
        ulpdu in prop::collection::vec(any::<u8>(), 0..3000),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..4),
        markers in any::<bool>().prop_map(Markers::when),
        at in (0_u64..1000).prop_map(|words| 4 * words),
    ) {
        let framed = framed(&ulpdu, true, markers, at);
        let mut ends: Vec<usize> = cuts.iter().map(|cut| cut.index(framed.len() + 1)).collect();
        ends.push(framed.len());
        ends.sort_unstable();
        let mut pieces = Vec::new();
        let mut from = 0;
        for end in ends {
            pieces.push(&framed[from..end]);
            from = end;
        }
        prop_assert_eq!(unframed(&pieces, true, markers, at), Ok(ulpdu));
    }

    #[test]
    fn a_flipped_bit_is_found(
        ulpdu in prop::collection::vec(any::<u8>(), 1..500),
        at in any::<prop::sample::Index>(),
        bit in 0..8,
        markers in any::<bool>().prop_map(Markers::when),
    ) {
        let mut framed = framed(&ulpdu, true, markers, 0);
        let at = at.index(framed.len());
        framed[at] ^= 1u8 << bit;
        prop_assert!(unframed(&[&framed], true, markers, 0).is_err());
    }

    /// RFC 5044 section 4.3, against a writer that counts bytes.
    #[test]
    fn markers_stand_at_every_512th_byte(lens in prop::collection::vec(0_usize..2000, 1..12)) {
        let ulpdus: Vec<Vec<u8>> = lens.iter().map(|&len| vec![len as u8 | 1; len]).collect();
        let mut at = 0;
        for (ulpdu, expected) in ulpdus.iter().zip(stream_with_markers(&ulpdus)) {
            let framed = framed(ulpdu, true, Markers::On, at);
            prop_assert_eq!(&framed, &expected);
            at += framed.len() as u64;
        }
    }

    #[test]
    fn no_bytes_make_verify_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..70),
        crc: bool,
        markers in any::<bool>().prop_map(Markers::when),
        at in (0_u64..200).prop_map(|words| 4 * words),
    ) {
        if let Ok(ulpdu) = unframed(&[&bytes], crc, markers, at) {
            prop_assert!(ulpdu.len() + HEADER_LEN + CRC_LEN <= bytes.len());
        }
    }
}

/// RFC 5044 section 4.4, Figure 5: the first FPDU of a stream with Markers.
#[test]
fn the_example_of_figure_5() {
    let mut ulpdu = [0; 42];
    ulpdu[..2].copy_from_slice(&[0x41, 0x43]);
    ulpdu[13] = 1;
    let fpdu = framed(&ulpdu, true, Markers::On, 0);
    assert_eq!(fpdu[..8], [0, 0, 0, 0, 0x00, 0x2a, 0x41, 0x43]);
    assert_eq!(fpdu[48..], [0x52, 0x23, 0x99, 0x83]);
}

/// RFC 5044 section 4.4, Figure 6: an FPDU with a Marker within.
#[test]
fn the_example_of_figure_6() {
    let mut ulpdu = [0; 42];
    ulpdu[..2].copy_from_slice(&[0x41, 0x43]);
    ulpdu[13] = 2;
    let fpdu = framed(&ulpdu, true, Markers::On, 0x1ec);
    assert_eq!(fpdu[..4], [0x00, 0x2a, 0x41, 0x43]);
    assert_eq!(fpdu[0x14..0x18], [0, 0, 0, 0x14]);
    assert_eq!(fpdu[0x30..], [0x84, 0x92, 0x58, 0x98]);
}

/// RFC 5044 section 4.5: MULPDU = EMSS - (6 + 4 * Ceiling(EMSS / 512) + EMSS mod 4).
#[test]
fn mulpdu_leaves_room_for_markers_wherever_they_fall() {
    assert_eq!(mulpdu(1460, Markers::On), 1460 - (6 + 12));
    assert_eq!(mulpdu(1448, Markers::On), 1448 - (6 + 12));
    assert_eq!(mulpdu(8947, Markers::On), 8947 - (6 + 72 + 3));
    for emss in 140..3000 {
        let ulpdu = mulpdu(emss, Markers::On);
        for at in (0..512).step_by(4) {
            assert!(
                Layout::new(Markers::On, at, ulpdu).len() <= emss.max(144),
                "EMSS {emss} at {at}"
            );
        }
    }
}

/// RFC 5044 section 8, error 3.
#[test]
fn a_marker_that_points_astray_is_found_behind_a_right_crc() {
    let ulpdu = [7; 1200];
    for at in [0, 512, 1024] {
        let mut fpdu = framed(&ulpdu, false, Markers::On, 0);
        fpdu[at + 3] ^= 4;
        let covered = fpdu.len() - CRC_LEN;
        let crc = crc_of([&fpdu[..covered]]).bytes();
        fpdu[covered..].copy_from_slice(&crc);
        let found = unframed(&[&fpdu], true, Markers::On, 0);
        assert_eq!(found, Err(MpaError::MarkerMismatch), "Marker at {at}");
        // The bits that the RFC reserves are no part of the pointer.
        let mut fpdu = framed(&ulpdu, false, Markers::On, 0);
        fpdu[at] = 0xff;
        fpdu[at + 3] |= 0b11;
        assert_eq!(
            unframed(&[&fpdu], false, Markers::On, 0),
            Ok(ulpdu.to_vec())
        );
    }
}

/// RFC 5044 section 6, rule 2: from any place in the stream on, the FPDU that a Marker points to is
/// found, and its start is a start.
#[test]
fn an_fpdu_is_found_by_the_markers_behind_any_byte() {
    let ulpdus: Vec<Vec<u8>> = [1442, 20, 0, 490, 1300, 3, 700, 2000]
        .map(|len: usize| vec![len as u8; len])
        .to_vec();
    let (mut stream, mut starts) = (Vec::new(), Vec::new());
    for ulpdu in &ulpdus {
        starts.push(stream.len());
        let fpdu = framed(ulpdu, true, Markers::On, stream.len() as u64);
        stream.extend_from_slice(&fpdu);
    }
    for from in 0..stream.len() {
        let view = [&stream[from..]];
        let found = locate(&Gather::new(&view), from as u64).map(|at| from + at);
        match found {
            Some(found) => assert!(starts.contains(&found), "from {from}: {found}"),
            None => assert!(
                from > starts[starts.len() - 1] || stream.len() - from < 512,
                "from {from}: nothing found"
            ),
        }
        // Every FPDU of more than an interval has a Marker that points to it.
        let mut long = starts
            .iter()
            .zip(&ulpdus)
            .filter(|(_, ulpdu)| ulpdu.len() > 512);
        if let Some((start, _)) = long.find(|(start, _)| **start >= from) {
            assert!(found.is_some_and(|found| found <= *start), "from {from}");
        }
    }
}

proptest! {
    /// A header that is written by its words, and so maybe checked by its values, or by its bytes.
    #[test]
    fn a_header_is_the_same_by_words_and_by_bytes(
        words in proptest::array::uniform5(any::<u32>()),
        payload in proptest::collection::vec(any::<u8>(), 0..1600),
        at in (0_u64..600).prop_map(|at| 4 * at),
        markers in any::<bool>(),
        crc in any::<bool>(),
        tagged in any::<bool>(),
    ) {
        let (markers, header_len) = (Markers::when(markers), if tagged { 14 } else { 18 });
        let mut words = words;
        words[0] &= 0xffff;
        let layout = Layout::new(markers, at, header_len + payload.len());
        let write = |begin: &mut dyn FnMut(&mut Writer<'_>)| {
            let mut out = vec![0xee; layout.len()];
            let mut writer = Writer::new(&mut out, layout, crc);
            begin(&mut writer);
            writer.put(header_len, &payload);
            let written = writer.finish();
            (written, out)
        };
        let by_words = write(&mut |writer| match tagged {
            true => writer.begin([words[0], words[1], words[2], words[3]]),
            false => writer.begin(words),
        });
        let bytes = words.map(u32::to_be_bytes);
        let header = &bytes.as_flattened()[HEADER_LEN..HEADER_LEN + header_len];
        let by_bytes = write(&mut |writer| writer.put(0, header));
        prop_assert_eq!(by_words, by_bytes);
    }

    /// Payload that is checked while it is copied, Markers being put among it meanwhile, or where it lies.
    #[test]
    fn a_payload_is_the_same_in_one_pass_and_in_two(
        payload in proptest::collection::vec(any::<u8>(), 0..4000),
        cut in any::<prop::sample::Index>(),
        at in (0_u64..600).prop_map(|at| 4 * at),
        markers in any::<bool>(),
        crc in any::<bool>(),
        header_len in prop::sample::select(vec![14, 18]),
    ) {
        let markers = Markers::when(markers);
        let layout = Layout::new(markers, at, header_len + payload.len());
        let cut = cut.index(payload.len() + 1);
        let write = |put: &mut dyn FnMut(&mut Writer<'_>, usize, &[u8])| {
            let mut out = vec![0xee; layout.len()];
            let mut writer = Writer::new(&mut out, layout, crc);
            writer.put(0, &vec![0x77; header_len]);
            put(&mut writer, header_len, &payload[..cut]);
            put(&mut writer, header_len + cut, &payload[cut..]);
            let written = writer.finish();
            (written, out)
        };
        let in_two = write(&mut |writer, from, bytes| writer.put(from, bytes));
        let in_one = write(&mut |writer, from, bytes| {
            let copy = |crc, place: &mut [u8], words: Words| {
                assert_eq!(words.bytes_of(place.len()), bytes.len());
                Ok::<_, ()>(rnic_crc::copy_among(crc, bytes, place, words))
            };
            writer.copy(from, bytes.len(), copy).unwrap();
        });
        prop_assert_eq!(in_two, in_one);
    }

    /// Without Markers, in one go or part by part.
    #[test]
    fn a_plain_fpdu_is_what_a_writer_makes(
        words in any::<[u32; 5]>(),
        payload in proptest::collection::vec(any::<u8>(), 0..3000),
        room in 0_usize..9,
        crc in any::<bool>(),
    ) {
        let mut words = words;
        words[0] &= 0xffff;
        let layout = Layout::new(Markers::Off, 0, 18 + payload.len());
        let mut by_parts = vec![0xee; layout.len() + room];
        let mut writer = Writer::new(&mut by_parts, layout, crc);
        writer.begin(words);
        writer.put(18, &payload);
        let written = writer.finish();
        let mut plain = vec![0xee; layout.len() + room];
        let copy = |before, place: &mut [u8]| Ok::<_, ()>(rnic_crc::copy(before, &payload, place));
        prop_assert_eq!(write_plain(&mut plain, words, payload.len(), crc, copy), Ok(written));
        prop_assert_eq!(plain_length(5, payload.len()), written.len);
        prop_assert_eq!(plain, by_parts);
        let refused = write_plain(&mut vec![0; layout.len()], words, payload.len(), crc, |_, _| Err(7));
        prop_assert_eq!(refused, Err(7));
    }
}
