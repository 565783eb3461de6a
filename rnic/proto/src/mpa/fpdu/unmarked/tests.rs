//! Against the ULPDU itself, for every place that the Markers may have in the FPDU.

use super::super::tests::framed;
use super::super::{HEADER_LEN, parse, verify};
use crate::mpa::MpaError;
use crate::mpa::marker::{MARKER_INTERVAL, MARKER_LEN, Markers};
use crate::{Bytes, Gather};

fn ulpdu(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + at / 256) as u8).collect()
}

/// Everything that may be asked of `view` is as it is of `expected`.
fn assert_same<'a>(view: &impl Bytes<'a>, expected: &[u8], what: &str) {
    assert_eq!(view.len(), expected.len(), "{what}");
    let len = expected.len();
    let near = |place: usize| place.saturating_sub(3)..(place + 4).min(len + 2);
    let offsets = near(0).chain(near(14)).chain(near(len));
    // Wherever a Marker may be.
    for offset in offsets.chain((0..len).step_by(97)) {
        assert_eq!(view.array::<1>(offset), expected.array(offset), "{what}");
        assert_eq!(view.array::<14>(offset), expected.array(offset), "{what}");
        assert_eq!(view.array::<18>(offset), expected.array(offset), "{what}");
        for bytes in [0, 1, 3, 14, 507, 508, 509, 1100] {
            let (found, model) = (view.sub(offset, bytes), expected.sub(offset, bytes));
            let found = found.map(|part| part.chunks().collect::<Vec<_>>().concat());
            assert_eq!(found.as_deref(), model, "{what}: {bytes} from {offset}");
        }
        let rest = view.tail(offset).map(|rest| rest.tail(2));
        let rest = rest.map(|rest| rest.map(|rest| rest.chunks().collect::<Vec<_>>().concat()));
        let model = expected.tail(offset).map(|rest| rest.tail(2));
        assert_eq!(
            rest,
            model.map(|rest| rest.map(<[u8]>::to_vec)),
            "{what}: behind {offset}"
        );
    }
    assert!(view.sub(usize::MAX, 2).is_none());
    assert!(view.chunks().all(|chunk| !chunk.is_empty()));
}

#[test]
fn it_is_the_ulpdu_wherever_the_markers_are() {
    for len in [0, 1, 2, 14, 18, 46, 490, 1442] {
        let ulpdu = ulpdu(len);
        for at in (0..MARKER_INTERVAL as u64).step_by(4) {
            let fpdu = framed(&ulpdu, true, Markers::On, at);
            let layout = parse(&&fpdu[..], Markers::On, at).unwrap();
            let whole = verify(&&fpdu[..], &layout, true).unwrap();
            assert_same(&whole, &ulpdu, &format!("{len} bytes at {at}"));
            if at % 64 == 4 * (len as u64 % 16) {
                let (first, rest) = fpdu.split_at(fpdu.len() / 3);
                let pieces = [first, &[], &rest[..1], &rest[1..]];
                let cut = verify(&Gather::new(&pieces), &layout, true).unwrap();
                assert_same(&cut, &ulpdu, &format!("{len} bytes at {at}, cut"));
            }
        }
    }
}

#[test]
fn without_markers_it_is_the_ulpdu_too() {
    let ulpdu = ulpdu(1200);
    let fpdu = framed(&ulpdu, true, Markers::Off, 8);
    let layout = parse(&&fpdu[..], Markers::Off, 8).unwrap();
    let found = verify(&&fpdu[..], &layout, true).unwrap();
    assert_same(&found, &ulpdu, "no Markers");
}

/// RFC 5044 section 8: what is found wrong of an FPDU, of which each byte in turn was changed.
#[test]
fn each_byte_that_was_changed_is_found_for_what_it_is() {
    let ulpdu = ulpdu(600);
    for at in (0..MARKER_INTERVAL as u64).step_by(4) {
        let sent = framed(&ulpdu, true, Markers::On, at);
        let layout = parse(&&sent[..], Markers::On, at).unwrap();
        for changed in 0..sent.len() {
            let mut fpdu = sent.clone();
            fpdu[changed] ^= 0x14;
            let found = verify(&&fpdu[..], &layout, true).map(|_| ());
            assert_eq!(found, Err(MpaError::CrcMismatch), "byte {changed} at {at}");
            // Where nobody looks at the CRC, only a Marker's pointer tells.
            let of_marker = layout.markers().find(|(marker, _)| {
                (*marker..marker + MARKER_LEN).contains(&changed) && changed - marker >= 2
            });
            let header = layout.header_at();
            let of_length = (header..header + HEADER_LEN).contains(&changed);
            let found = verify(&&fpdu[..], &layout, false);
            match of_marker {
                Some(_) => assert_eq!(found.map(|_| ()), Err(MpaError::MarkerMismatch)),
                None => assert!(found.is_ok() || of_length, "byte {changed} at {at}"),
            }
        }
    }
}
