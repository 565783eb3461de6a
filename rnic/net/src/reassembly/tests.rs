use proptest::prelude::*;
use userspace_net::{FourTuple, checksum};

use super::*;
use crate::fragment::tests::{cut, payload};
use crate::tests::{frame_with, path, tuple};
use crate::{IPV6_HEADER, PathDefaults, parse};

const NOW: Instant = Instant::from_nanos(1_000_000_000_000);
const FRAME_MAX: usize = 3840;
const SECRET: [u8; 16] = *b"no secret at all";

fn table() -> Reassembly {
    Reassembly::new(4, FRAME_MAX, SECRET)
}

/// Gives one frame; the packet if it is complete then.
fn give(table: &mut Reassembly, now: Instant, frame: &[u8]) -> Option<Vec<u8>> {
    let mut buffer = frame.to_vec();
    buffer.resize(FRAME_MAX.max(frame.len()), 0xa5);
    let len = table.add(now, &mut buffer, frame.len()).unwrap()?;
    buffer.truncate(len);
    Some(buffer)
}

fn give_all<'a>(
    table: &mut Reassembly,
    frames: impl IntoIterator<Item = &'a Vec<u8>>,
) -> Option<Vec<u8>> {
    let mut whole = None;
    for frame in frames {
        assert!(whole.is_none(), "more after the packet was complete");
        whole = give(table, NOW, frame);
    }
    whole
}

/// A frame of 3000 bytes of payload, and its fragments.
fn example(v6: bool, id: u32) -> (Vec<u8>, Vec<Vec<u8>>) {
    let (path, tuple) = (path(None), tuple(v6));
    let frame = frame_with(&path, &tuple, Ecn::NotEct, &payload(3000));
    let fragments = cut(&frame, &path, 1280, id);
    assert_eq!(fragments.len(), 3);
    (frame, fragments)
}

/// The bytes behind the IP headers.
fn data_at(frame: &[u8]) -> usize {
    if frame[12..14] == [0x08, 0] { 34 } else { 62 }
}

/// Changes the byte at `at` of an IPv4 header, or of IPv6's headers, and makes the checksum right.
fn with_byte(frame: &[u8], at: usize, change: impl Fn(u8) -> u8) -> Vec<u8> {
    let mut frame = frame.to_vec();
    frame[14 + at] = change(frame[14 + at]);
    if frame[12..14] == [0x08, 0] {
        frame[24..26].fill(0);
        let sum = checksum::fold(checksum::sum(&frame[14..34]));
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
    }
    frame
}

/// A fragment moved to another offset, in bytes, with more to come or not.
fn moved(frame: &[u8], offset: u16, more: bool) -> Vec<u8> {
    let (at, field) = if frame[12..14] == [0x08, 0] {
        (6, offset / 8 + if more { 0x2000 } else { 0 })
    } else {
        (IPV6_HEADER + 2, offset + u16::from(more))
    };
    let [high, low] = field.to_be_bytes();
    with_byte(&with_byte(frame, at, |_| high), at + 1, |_| low)
}

/// A fragment cut short to `len` bytes of data.
fn shortened(frame: &[u8], len: usize) -> Vec<u8> {
    let data = data_at(frame);
    let v4 = data == 34;
    let (at, total) = if v4 { (2, 20 + len) } else { (4, 8 + len) };
    let [high, low] = (total as u16).to_be_bytes();
    let frame = with_byte(&with_byte(frame, at, |_| high), at + 1, |_| low);
    frame[..data + len].to_vec()
}

#[test]
fn fragments_in_any_order_are_the_packet_again() {
    let layouts = [
        (false, None),
        (false, Some(5)),
        (true, None),
        (true, Some(7)),
    ];
    for (v6, vlan) in layouts {
        let (path, tuple) = (path(vlan), tuple(v6));
        for ecn in [Ecn::NotEct, Ecn::Ect0, Ecn::Ect1, Ecn::Ce] {
            let frame = frame_with(&path, &tuple, ecn, &payload(3000));
            let fragments = cut(&frame, &path, 1280, 77);
            for order in [
                [0, 1, 2],
                [0, 2, 1],
                [1, 0, 2],
                [1, 2, 0],
                [2, 0, 1],
                [2, 1, 0],
            ] {
                let mut table = table();
                let whole = give_all(&mut table, order.map(|at| &fragments[at])).unwrap();
                // What was sent in one piece, to the byte.
                assert_eq!(whole, frame, "{order:?}");
                assert_eq!(table.counters.reassembled, 1);
                assert_eq!(table.counters.fragments, 3);
            }
        }
    }
}

#[test]
fn packets_are_told_apart() {
    let mut table = table();
    let (frame, a) = example(false, 1);
    let (_, b) = example(false, 2);
    let (frame_v6, c) = example(true, 1);
    let vlan = path(Some(9));
    let tagged_frame = frame_with(&vlan, &tuple(false), Ecn::NotEct, &payload(3000));
    let tagged = cut(&tagged_frame, &vlan, 1280, 1);
    for at in 0..2 {
        for fragments in [&a, &b, &c, &tagged] {
            assert_eq!(give(&mut table, NOW, &fragments[at]), None);
        }
    }
    assert_eq!(give(&mut table, NOW, &c[2]), Some(frame_v6));
    assert_eq!(give(&mut table, NOW, &a[2]), Some(frame.clone()));
    assert_eq!(give(&mut table, NOW, &tagged[2]), Some(tagged_frame));
    assert_eq!(give(&mut table, NOW, &b[2]), Some(frame));
    assert_eq!(table.counters.evicted, 0);
}

#[test]
fn a_fragment_that_comes_twice_is_nothing() {
    for v6 in [false, true] {
        let (frame, fragments) = example(v6, 1);
        let mut table = table();
        let order = [1, 1, 0, 1, 0, 2].map(|at: usize| &fragments[at]);
        assert_eq!(give_all(&mut table, order), Some(frame));
        assert_eq!(table.counters.duplicates, 3);
        assert_eq!(table.counters.overlapping, 0);
    }
}

#[test]
fn fragments_that_overlap_spoil_their_packet_for_good() {
    for v6 in [false, true] {
        let (_, fragments) = example(v6, 1);
        let offset = (fragments[0].len() - data_at(&fragments[0])) as u16;
        let mut changed = fragments[1].clone();
        *changed.last_mut().unwrap() ^= 1;
        let bad = [
            ("other bytes", changed),
            ("begins earlier", moved(&fragments[1], offset - 8, true)),
            ("begins later", moved(&fragments[1], offset + 8, true)),
            (
                "within",
                moved(&shortened(&fragments[1], 16), offset + 8, true),
            ),
        ];
        for (what, bad) in bad {
            for order in [[&fragments[1], &bad], [&bad, &fragments[1]]] {
                let mut table = table();
                assert_eq!(give_all(&mut table, order), None, "{what}");
                assert_eq!(table.counters.overlapping, 1, "{what}");
                // RFC 5722 section 4: those not yet received too.
                assert_eq!(give_all(&mut table, &fragments), None, "{what}");
                assert_eq!(table.counters.overlapping, 1, "{what}");
                assert_eq!(table.counters.reassembled, 0);
            }
        }
    }
}

#[test]
fn fragments_that_disagree_about_the_end_spoil_their_packet() {
    for v6 in [false, true] {
        let (_, fragments) = example(v6, 1);
        let last = &fragments[2];
        let offset = 2 * (fragments[0].len() - data_at(&fragments[0])) as u16;
        let cases = [
            (
                "ends again later",
                [last.clone(), moved(last, offset + 80, false)],
            ),
            (
                "ends again earlier",
                [last.clone(), moved(&shortened(last, 8), 800, false)],
            ),
            (
                "goes on behind the end",
                [last.clone(), moved(&fragments[1], offset + 80, true)],
            ),
            (
                "ends before what is here",
                [fragments[1].clone(), moved(&shortened(last, 8), 800, false)],
            ),
        ];
        for (what, pair) in cases {
            let mut table = table();
            assert_eq!(give_all(&mut table, &pair), None, "{what}");
            assert_eq!(table.counters.overlapping, 1, "{what}");
            assert_eq!(give_all(&mut table, &fragments), None, "{what}");
        }
    }
}

#[test]
fn a_packet_larger_than_a_frame_is_given_up() {
    for v6 in [false, true] {
        let (_, fragments) = example(v6, 1);
        let mut table = table();
        let far = moved(&fragments[1], 3600, true);
        assert_eq!(
            give_all(
                &mut table,
                [&far, &fragments[0], &fragments[1], &fragments[2]]
            ),
            None
        );
        assert_eq!(table.counters.too_large, 1);
        // Or larger than the frame at hand.
        let mut small = Reassembly::new(1, FRAME_MAX, SECRET);
        for fragment in &fragments[..2] {
            assert_eq!(give(&mut small, NOW, fragment), None);
        }
        let mut buffer = fragments[2].clone();
        let len = buffer.len();
        assert_eq!(small.add(NOW, &mut buffer, len), Ok(None));
        assert_eq!(small.counters.too_large, 1);
    }
}

#[test]
fn fragments_that_no_sender_makes_are_dropped() {
    for v6 in [false, true] {
        let (frame, fragments) = example(v6, 1);
        let bad = [
            ("empty", moved(&shortened(&fragments[1], 0), 1200, true)),
            ("no multiple of eight", shortened(&fragments[1], 12)),
            (
                "beyond the longest packet",
                moved(&fragments[1], 65_000, false),
            ),
            (
                "a first one without a TCP header",
                shortened(&fragments[0], 16),
            ),
            (
                "one that begins in the TCP header",
                moved(&fragments[1], 8, true),
            ),
            (
                "one that begins in the TCP header",
                moved(&fragments[1], 16, true),
            ),
        ];
        let mut table = table();
        for (count, (what, bad)) in bad.iter().enumerate() {
            assert_eq!(give(&mut table, NOW, bad), None, "{what}");
            assert_eq!(table.counters.malformed, count as u64 + 1, "{what}");
        }
        // Nor do they harm the packet.
        assert_eq!(give_all(&mut table, &fragments), Some(frame));
    }
}

#[test]
fn what_is_no_fragment_is_refused() {
    let mut table = table();
    let mut refuse = |frame: &[u8]| {
        table
            .add(NOW, &mut frame.to_vec(), frame.len())
            .unwrap_err()
    };
    let (frame, fragments) = example(false, 1);
    assert_eq!(refuse(&frame), DropReason::IpHeader);
    assert_eq!(refuse(&fragments[0][..100]), DropReason::Truncated);
    assert_eq!(
        refuse(&with_byte(&fragments[0], 9, |_| 50)),
        DropReason::OtherProtocol
    );
    let mut broken = fragments[0].clone();
    broken[20] ^= 1;
    assert_eq!(refuse(&broken), DropReason::IpChecksum);
    assert_eq!(table.add(NOW, &mut [0; 10], 20), Err(DropReason::Truncated));
    assert_eq!(table.counters.fragments, 0);
}

#[test]
fn one_more_packet_takes_the_place_of_the_oldest() {
    let mut table = table();
    let packets: Vec<_> = (0..5).map(|id| example(true, id)).collect();
    for (at, (_, fragments)) in packets.iter().enumerate() {
        let now = NOW + Duration::from_millis(at as u64);
        assert_eq!(give(&mut table, now, &fragments[0]), None);
    }
    assert_eq!(table.counters.evicted, 1);
    for (frame, fragments) in &packets[1..] {
        assert_eq!(give_all(&mut table, &fragments[1..]).as_ref(), Some(frame));
    }
    assert_eq!(give_all(&mut table, &packets[0].1[1..]), None);
    assert_eq!(table.counters.reassembled, 4);
}

#[test]
fn a_packet_that_waited_too_long_begins_anew() {
    let mut table = table();
    let (frame, fragments) = example(false, 1);
    assert_eq!(give(&mut table, NOW, &fragments[0]), None);
    let late = NOW + FRAGMENT_LIFETIME;
    assert_eq!(give(&mut table, late, &fragments[1]), None);
    assert_eq!(give(&mut table, late, &fragments[2]), None);
    assert_eq!(table.counters.timed_out, 1);
    assert_eq!(give(&mut table, late, &fragments[0]), Some(frame));
}

#[test]
fn a_congestion_mark_on_any_fragment_is_one_on_the_packet() {
    for v6 in [false, true] {
        let (path, tuple) = (path(None), tuple(v6));
        let frame = frame_with(&path, &tuple, Ecn::Ect0, &payload(3000));
        let fragments = cut(&frame, &path, 1280, 7);
        let mark = |fragment: &[u8], ecn: Ecn| {
            with_byte(
                fragment,
                1,
                |_| if v6 { ecn.bits() << 4 } else { ecn.bits() },
            )
        };
        for marked in 0..3 {
            let result = |ecn: Ecn| {
                let mut table = table();
                let mut fragments = fragments.clone();
                fragments[marked] = mark(&fragments[marked], ecn);
                let whole = give_all(&mut table, &fragments);
                (
                    whole.map(|whole| parse(&whole, &PathDefaults::new(1500)).unwrap().ecn),
                    table.counters.mixed_ecn,
                )
            };
            assert_eq!(result(Ecn::Ce), (Some(Ecn::Ce), 0));
            assert_eq!(result(Ecn::NotEct), (None, 1));
        }
    }
}

/// Nanoseconds that a fragment takes while so many packets wait, each of which begins another.
fn cost(packets: usize) -> u128 {
    let mut table = Reassembly::new(packets, 700, SECRET);
    let (path, tuple) = (path(None), tuple(false));
    let frame = frame_with(&path, &tuple, Ecn::NotEct, &payload(600));
    let first = cut(&frame, &path, 576, 0).swap_remove(0);
    let mut buffer = first.clone();
    let rounds = 2 * 8192;
    let mut start = std::time::Instant::now();
    for id in 0..rounds + packets as u32 {
        if id == packets as u32 {
            // From here on each takes the place of the oldest.
            start = std::time::Instant::now();
        }
        let [a, b] = (id as u16).to_be_bytes();
        buffer.copy_from_slice(&first);
        buffer[18..20].copy_from_slice(&[a, b]);
        // Other addresses when the identification starts over; and a checksum that is right.
        buffer[29] = (id >> 16) as u8;
        buffer[24..26].fill(0);
        let sum = checksum::fold(checksum::sum(&buffer[14..34]));
        buffer[24..26].copy_from_slice(&sum.to_be_bytes());
        let len = buffer.len();
        assert_eq!(table.add(NOW, &mut buffer, len), Ok(None));
    }
    assert_eq!(table.counters.evicted, u64::from(rounds));
    start.elapsed().as_nanos() / u128::from(rounds)
}

#[test]
fn what_a_fragment_costs_does_not_grow_with_the_packets_that_wait() {
    // The least of some rounds: others may want the core.
    let least = |packets| (0..5).map(|_| cost(packets)).min().unwrap();
    let (few, many) = (least(8), least(4096));
    assert!(
        many < 10 * few,
        "{few} ns with 8 packets, {many} ns with 4096"
    );
}

/// What [`Reassembly`] does with whole fragments of packets of three, said in the simplest way.
#[derive(Default)]
struct Model {
    /// Identification, since when, which fragments: those that began first in front.
    waiting: Vec<(u32, Instant, [bool; 3])>,
    evicted: u64,
    timed_out: u64,
    duplicates: u64,
    reassembled: u64,
}

impl Model {
    fn add(&mut self, now: Instant, id: u32, part: usize) -> bool {
        let before = self.waiting.len();
        self.waiting
            .retain(|(_, since, _)| now.saturating_duration_since(*since) < FRAGMENT_LIFETIME);
        self.timed_out += (before - self.waiting.len()) as u64;
        let at = self.waiting.iter().position(|(other, ..)| *other == id);
        let at = at.unwrap_or_else(|| {
            if self.waiting.len() == 4 {
                self.waiting.remove(0);
                self.evicted += 1;
            }
            self.waiting.push((id, now, [false; 3]));
            self.waiting.len() - 1
        });
        let parts = &mut self.waiting[at].2;
        self.duplicates += u64::from(parts[part]);
        parts[part] = true;
        let complete = *parts == [true; 3];
        if complete {
            self.waiting.remove(at);
            self.reassembled += 1;
        }
        complete
    }
}

fn any_segment() -> impl Strategy<Value = (FourTuple, Vec<u8>, u32)> {
    (any::<bool>(), 1300..3600_usize, 576..1500_u32)
        .prop_map(|(v6, len, mtu)| (tuple(v6), payload(len), mtu))
}

proptest! {
    #[test]
    fn any_cut_in_any_order_with_any_repetition_gives_the_segment_once(
        (tuple, payload, mtu) in any_segment(),
        seed in any::<u64>(),
    ) {
        let frame = frame_with(&path(None), &tuple, Ecn::Ect0, &payload);
        let mtu = mtu.min(frame.len() as u32 - 15);
        let mut fragments = match crate::Fragments::new(&frame, 14, mtu, 9) {
            Some(_) => cut(&frame, &path(None), mtu, 9),
            None => return Ok(()),
        };
        let mut random = seed;
        let mut next = |below: usize| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 33) as usize % below
        };
        for at in (1..fragments.len()).rev() {
            fragments.swap(at, next(at + 1));
        }
        let mut table = Reassembly::new(2, FRAME_MAX, SECRET);
        let mut whole = None;
        for (at, fragment) in fragments.iter().enumerate() {
            let again = &fragments[next(at.max(1))];
            if at > 0 {
                prop_assert_eq!(give(&mut table, NOW, again), None);
            }
            whole = give(&mut table, NOW, fragment);
            prop_assert_eq!(whole.is_some(), at + 1 == fragments.len() , "{} of {}", at, fragments.len());
        }
        prop_assert_eq!(whole, Some(frame));
    }

    #[test]
    fn broken_fragments_never_make_another_segment(
        v6 in any::<bool>(),
        flips in prop::collection::vec((0..3_usize, 12..1300_usize, 0..8_u32), 1..6),
    ) {
        let (frame, mut fragments) = example(v6, 3);
        for (which, at, bit) in flips {
            let fragment = &mut fragments[which];
            let at = at.min(fragment.len() - 1);
            fragment[at] ^= 1 << bit;
        }
        let mut table = table();
        for fragment in &fragments {
            let mut buffer = fragment.clone();
            buffer.resize(FRAME_MAX, 0);
            let Ok(Some(len)) = table.add(NOW, &mut buffer, fragment.len()) else {
                continue;
            };
            // A few flips may cancel out in a 16-bit sum; then the parser can't tell either.
            if let Ok(received) = parse(&buffer[..len], &PathDefaults::new(1500)) {
                prop_assert_eq!(received.data.len(), frame.len() - data_at(&frame).min(54));
            }
        }
    }

    #[test]
    fn no_bytes_do_harm(frames in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 1..20)) {
        let mut table = table();
        for (at, mut frame) in frames.into_iter().enumerate() {
            // Half of them look like fragments.
            if at % 2 == 0 && frame.len() > 60 {
                frame[0] = 2;
                frame[6] = 2;
                frame[12..16].copy_from_slice(&[0x86, 0xdd, 0x60, 0]);
                let len = (frame.len() - 54) as u16;
                frame[18..20].copy_from_slice(&len.to_be_bytes());
                frame[20] = 44;
                frame[54] = 6;
            }
            let len = frame.len();
            frame.resize(FRAME_MAX, 0);
            if let Ok(Some(len)) = table.add(NOW, &mut frame, len) {
                prop_assert!(len <= FRAME_MAX);
            }
        }
    }

    /// Whichever fragments come when, the places are given and taken as the model says.
    #[test]
    fn places_are_given_and_taken_as_by_the_simplest_table(
        steps in prop::collection::vec((0..9_u32, 0..3_usize, 0..4000_u64), 1..300)
    ) {
        let packets: Vec<_> = (0..9).map(|id| example(id % 2 == 0, id)).collect();
        let (mut table, mut model, mut now) = (table(), Model::default(), NOW);
        for (id, part, pause) in steps {
            now += Duration::from_millis(pause);
            let (frame, fragments) = &packets[id as usize];
            let whole = give(&mut table, now, &fragments[part]);
            prop_assert_eq!(whole.is_some(), model.add(now, id, part));
            if let Some(whole) = whole {
                prop_assert_eq!(&whole, frame);
            }
        }
        let counters = table.counters();
        let found = [counters.evicted, counters.timed_out, counters.duplicates, counters.reassembled];
        prop_assert_eq!(
            found,
            [model.evicted, model.timed_out, model.duplicates, model.reassembled]
        );
        // Each place is free, or stands in the row and is found.
        prop_assert_eq!(table.free.len() + table.places.len(), 4);
        prop_assert_eq!(table.places.len(), model.waiting.len());
    }
}
