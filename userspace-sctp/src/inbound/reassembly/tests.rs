use proptest::prelude::*;

use super::{FRAGMENTS_MAX, Message, Reassembly, ReassemblyError};
use crate::chunk::Data;
use crate::tsn::Tsn;

const FIRST: Tsn = Tsn(u32::MAX - 1);

fn fragment(number: u32, begin: bool, end: bool, payload: &[u8]) -> Data<'_> {
    Data {
        tsn: FIRST.plus(number),
        stream: 3,
        sequence: 0,
        protocol: 16,
        unordered: true,
        begin,
        end,
        immediate: false,
        payload,
    }
}

#[test]
fn a_message_is_whole_when_its_last_missing_fragment_comes() {
    let parts = [
        fragment(0, true, false, b"ab"),
        fragment(1, false, false, b"c"),
        fragment(2, false, true, b"def"),
    ];
    for order in [
        [0, 1, 2],
        [0, 2, 1],
        [1, 0, 2],
        [1, 2, 0],
        [2, 0, 1],
        [2, 1, 0],
    ] {
        let mut reassembly = Reassembly::new(6);
        for &number in &order[..2] {
            assert_eq!(reassembly.take(&parts[number]), Ok(None), "{order:?}");
        }
        let whole = Message {
            stream: 3,
            protocol: 16,
            unordered: true,
            bytes: b"abcdef".to_vec(),
        };
        assert_eq!(
            reassembly.take(&parts[order[2]]),
            Ok(Some(whole)),
            "{order:?}"
        );
        assert_eq!(reassembly.bytes(), 0);
    }
}

#[test]
fn more_than_the_bound_is_not_kept() {
    let mut reassembly = Reassembly::new(4);
    assert_eq!(reassembly.take(&fragment(0, true, false, b"abc")), Ok(None));
    let error = reassembly.take(&fragment(1, false, true, b"de"));
    assert_eq!(error, Err(ReassemblyError::TooMuch { bytes: 3, more: 2 }));
    assert!(
        reassembly
            .take(&fragment(1, false, true, b"d"))
            .unwrap()
            .is_some()
    );
}

#[test]
fn fragments_without_bytes_are_bounded_too() {
    let mut reassembly = Reassembly::new(100);
    let beginnings = FRAGMENTS_MAX as u32;
    for number in 0..beginnings {
        let lone = fragment(2 * number, true, false, b"");
        assert_eq!(reassembly.take(&lone), Ok(None));
    }
    let error = reassembly.take(&fragment(2 * beginnings, true, false, b""));
    assert_eq!(error, Err(ReassemblyError::TooMany));
}

#[test]
fn fragments_that_can_not_be_neighbours_are_refused() {
    let first = fragment(0, true, false, b"a");
    let fits = fragment(1, false, true, b"b");
    for wrong in [
        // A beginning within a message.
        Data {
            begin: true,
            ..fits
        },
        Data { stream: 4, ..fits },
        Data {
            unordered: false,
            ..fits
        },
    ] {
        let misfit = Err(ReassemblyError::Misfit { tsn: wrong.tsn });
        let mut reassembly = Reassembly::new(100);
        reassembly.take(&first).unwrap();
        assert_eq!(reassembly.take(&wrong), misfit, "{wrong:?}");
        assert!(reassembly.take(&fits).unwrap().is_some());
    }
    // The same when the later one comes first.
    let mut reassembly = Reassembly::new(100);
    reassembly.take(&fits).unwrap();
    let end = Data { end: true, ..first };
    assert_eq!(
        reassembly.take(&end),
        Err(ReassemblyError::Misfit { tsn: FIRST })
    );
    // Sequence numbers count only where there is an order.
    let mut reassembly = Reassembly::new(100);
    reassembly
        .take(&Data {
            unordered: false,
            ..first
        })
        .unwrap();
    let other = Data {
        unordered: false,
        sequence: 1,
        ..fits
    };
    assert!(reassembly.take(&other).is_err());
    let mut reassembly = Reassembly::new(100);
    reassembly.take(&first).unwrap();
    assert!(
        reassembly
            .take(&Data {
                sequence: 1,
                ..fits
            })
            .unwrap()
            .is_some()
    );
}

proptest! {
    #[test]
    fn messages_cut_anywhere_and_mixed_come_whole(
        lengths in prop::collection::vec(1_usize..6, 1..8),
        seed in any::<u64>(),
    ) {
        let mut parts = Vec::new();
        for (message, &length) in lengths.iter().enumerate() {
            for part in 0..length {
                let number = parts.len() as u32;
                parts.push((number, part == 0, part + 1 == length, vec![message as u8; part + 1]));
            }
        }
        // A shuffle.
        let mut state = seed | 1;
        for last in (1..parts.len()).rev() {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            parts.swap(last, (state >> 33) as usize % (last + 1));
        }
        let mut reassembly = Reassembly::new(10_000);
        let mut found = Vec::new();
        for (number, begin, end, bytes) in &parts {
            let taken = reassembly.take(&fragment(*number, *begin, *end, bytes));
            found.extend(taken.unwrap().map(|message| message.bytes));
        }
        prop_assert_eq!(reassembly.bytes(), 0);
        found.sort();
        let whole = |(message, &length): (usize, &usize)| vec![message as u8; length * (length + 1) / 2];
        let mut sent: Vec<_> = lengths.iter().enumerate().map(whole).collect();
        sent.sort();
        prop_assert_eq!(found, sent);
    }
}
