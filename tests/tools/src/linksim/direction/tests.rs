use super::*;
use crate::linksim::testing::{
    VERSIONS, buffers, checksums_are_right, direction, number, numbered, pass, segment, udp,
};
use crate::linksim::{Impairments, Planned};

const GAP: Duration = Duration::from_micros(10);

/// Numbers of what leaves, in order.
fn numbers(seed: u64, pairs: &[&str], count: u32) -> (Vec<u32>, Counters) {
    let mut direction = direction(seed, pairs);
    let mut buffers = buffers(4096);
    let (left, _) = pass(&mut direction, &mut buffers, &numbered(count), GAP, &mut ());
    let counters = *direction.counters();
    assert!(counters.balanced(direction.waiting()), "{counters:?}");
    assert_eq!(direction.waiting(), 0);
    assert_eq!(buffers.pool.available(), 4096, "a frame was lost for good");
    (
        left.iter().map(|(_, frame)| number(frame)).collect(),
        counters,
    )
}

#[test]
fn a_link_without_impairments_changes_nothing() {
    let mut buffers = buffers(64);
    let mut direction = direction(1, &[]);
    let frames: Vec<Vec<u8>> = VERSIONS
        .iter()
        .flat_map(|&version| [segment(version, 9, b"bytes"), udp(version, b"more")])
        .chain([vec![0xff; 60]])
        .collect();
    let (left, answers) = pass(&mut direction, &mut buffers, &frames, GAP, &mut ());
    let left: Vec<Vec<u8>> = left.into_iter().map(|(_, frame)| frame).collect();
    assert_eq!(left, frames);
    assert!(answers.is_empty());
}

#[test]
fn random_loss_takes_its_share_and_burst_loss_takes_bursts() {
    const COUNT: u32 = 100_000;
    let near = |found: u64, share: f64| {
        let expected = f64::from(COUNT) * share;
        // Five standard deviations.
        (found as f64 - expected).abs() < 5.0 * (expected * (1.0 - share)).sqrt()
    };
    for share in [0.001, 0.01, 0.05] {
        let (left, counters) = numbers(7, &[&format!("loss={share}")], COUNT);
        assert!(near(counters.lost, share), "{counters:?}");
        assert_eq!(left.len() as u64 + counters.lost, u64::from(COUNT));
        assert_eq!(counters.lost_in_bursts, 0);
    }
    // A hundredth of the time turns bad, each time for four packets on average.
    let (left, counters) = numbers(7, &["burst-loss=1%:25%"], COUNT);
    assert_eq!(counters.lost, counters.lost_in_bursts);
    let share = 0.01 / (0.01 + 0.25);
    assert!((counters.lost as f64 / f64::from(COUNT) / share - 1.0).abs() < 0.1);
    let bursts = left
        .windows(2)
        .filter(|pair| pair[1] != pair[0] + 1)
        .count();
    let length = counters.lost as f64 / bursts as f64;
    assert!((3.5..4.5).contains(&length), "bursts of {length}");
}

#[test]
fn the_same_seed_decides_the_same_and_another_does_not() {
    let all = [
        "loss=2%",
        "duplicate=2%",
        "reorder=5%",
        "reorder-by=20",
        "jitter=50us",
        "burst-loss=0.1%:30%",
    ];
    let first = numbers(3, &all, 20_000);
    assert_eq!(first, numbers(3, &all, 20_000));
    assert_ne!(first.0, numbers(4, &all, 20_000).0);
}

#[test]
fn one_impairment_does_not_change_what_another_decides() {
    let lost = |pairs: &[&str]| {
        let left: std::collections::BTreeSet<u32> = numbers(5, pairs, 5000).0.into_iter().collect();
        (0..5000)
            .filter(|n| !left.contains(n))
            .collect::<Vec<u32>>()
    };
    let alone = lost(&["loss=3%"]);
    assert!(!alone.is_empty());
    assert_eq!(
        alone,
        lost(&["loss=3%", "reorder=10%", "duplicate=10%", "jitter=1ms"])
    );
}

#[test]
fn no_packet_is_overtaken_by_more_than_was_asked_for() {
    for most in [1, 3, 20] {
        let by = format!("reorder-by={most}");
        let (left, counters) = numbers(11, &["reorder=2%", &by], 20_000);
        assert_eq!(left.len(), 20_000);
        let mut furthest = 0;
        for (place, &number) in left.iter().enumerate() {
            let window = &left[place.saturating_sub(100)..place];
            let overtook = window.iter().filter(|&&other| other > number).count();
            furthest = furthest.max(overtook);
        }
        assert!(furthest <= most, "overtaken by {furthest} of {most}");
        assert!(
            furthest * 2 > most,
            "never overtaken by more than {furthest} of {most}"
        );
        assert!((300..500).contains(&counters.held_back), "{counters:?}");
        assert!(counters.reordered <= counters.held_back);
        assert!(
            counters.reordered > counters.held_back * 9 / 10,
            "{counters:?}"
        );
    }
}

#[test]
fn a_packet_that_nobody_overtakes_is_not_held_for_ever() {
    let mut direction = direction(1, &["reorder=100%", "reorder-by=5", "reorder-wait=2ms"]);
    let mut buffers = buffers(16);
    let (left, _) = pass(&mut direction, &mut buffers, &numbered(1), GAP, &mut ());
    assert_eq!(left[0].0, Duration::from_millis(2));
    assert_eq!(direction.counters().reordered, 0);
}

#[test]
fn packets_are_delayed_and_jitter_keeps_their_order() {
    let mut direction = direction(1, &["delay=5ms", "jitter=3ms"]);
    let mut buffers = buffers(2048);
    let (left, _) = pass(&mut direction, &mut buffers, &numbered(1000), GAP, &mut ());
    let mut spread = std::collections::BTreeSet::new();
    for (place, (time, frame)) in left.iter().enumerate() {
        assert_eq!(number(frame), place as u32);
        let delay = *time - GAP * place as u32;
        assert!(delay >= Duration::from_millis(5) && delay <= Duration::from_millis(8));
        spread.insert(delay.as_micros() / 100);
    }
    assert!(spread.len() > 10, "the jitter is always the same");
}

#[test]
fn packets_held_back_by_a_time_leave_within_it() {
    let pairs = ["reorder=10%", "reorder-time=500us"];
    let (left, counters) = numbers(2, &pairs, 5000);
    let mut furthest = 0;
    for (place, &number) in left.iter().enumerate() {
        furthest = furthest.max(place.saturating_sub(number as usize));
    }
    assert!(counters.held_back > 400);
    // 50 packets come in 500 us.
    assert!((30..=50).contains(&furthest), "{furthest}");
}

#[test]
fn duplicates_follow_their_originals() {
    let (left, counters) = numbers(1, &["duplicate=10%"], 10_000);
    assert_eq!(left.len() as u64, 10_000 + counters.duplicated);
    assert!((800..1200).contains(&counters.duplicated));
    let pairs = left.windows(2).filter(|pair| pair[0] == pair[1]).count();
    assert_eq!(pairs as u64, counters.duplicated);
}

#[test]
fn damaged_packets_differ_in_as_many_bits_as_were_asked_for_and_no_checksum_is_right() {
    for version in VERSIONS {
        let payload: Vec<u8> = (0..=255).collect();
        let original = [segment(version, 1, &payload), udp(version, &payload)];
        let frames: Vec<Vec<u8>> = original.iter().cycle().take(2000).cloned().collect();
        for bits in [1, 3] {
            let count = format!("corrupt-bits={bits}");
            let mut direction = direction(5, &["corrupt=25%", &count]);
            let mut buffers = buffers(64);
            let (left, _) = pass(&mut direction, &mut buffers, &frames, GAP, &mut ());
            let mut damaged = 0;
            for ((_, frame), original) in left.iter().zip(&frames) {
                assert_eq!(frame.len(), original.len());
                assert_eq!(frame[..14], original[..14]);
                let flipped: u32 = frame
                    .iter()
                    .zip(original)
                    .map(|(is, was)| (is ^ was).count_ones())
                    .sum();
                if flipped == 0 {
                    continue;
                }
                damaged += 1;
                assert_eq!(flipped, bits);
                assert!(
                    bits > 1 || !checksums_are_right(frame),
                    "not caught: {frame:02x?}"
                );
            }
            assert_eq!(damaged, direction.counters().corrupted);
            assert!((400..600).contains(&damaged), "{damaged}");
        }
    }
}

#[test]
fn a_rate_spaces_packets_and_a_full_queue_drops_them() {
    // 46 bytes and 24 of overhead are 560 bits: 56 us at 10 Mbit/s.
    let pairs = ["rate=10Mbit", "queue=8p"];
    let mut direction = direction(1, &pairs);
    let mut buffers = buffers(64);
    let frames: Vec<Vec<u8>> = numbered(20);
    assert_eq!(frames[0].len(), 46);
    let (left, _) = pass(
        &mut direction,
        &mut buffers,
        &frames,
        Duration::ZERO,
        &mut (),
    );
    let times: Vec<u128> = left.iter().map(|(time, _)| time.as_micros()).collect();
    assert_eq!(times, [56, 112, 168, 224, 280, 336, 392, 448]);
    assert_eq!(direction.counters().queue_full, 12);
    assert_eq!(direction.queued(Duration::from_micros(60)), 7);
}

#[test]
fn only_packets_of_an_ecn_capable_transport_are_marked_and_stay_well_formed() {
    for version in VERSIONS {
        for (codepoint, marked) in [(0, 0), (1, 3), (2, 3), (3, 3)] {
            let mut frame = segment(version, 1, b"bytes");
            let shift = if version == 4 { 0 } else { 4 };
            frame[15] |= codepoint << shift;
            let packet = Packet::parse(&frame).unwrap();
            checksum::set_ip(&mut frame, &packet);
            let mut direction = direction(1, &["rate=1Mbit", "ecn=0p"]);
            let mut buffers = buffers(16);
            let frames = [frame.clone(), frame];
            let (left, _) = pass(
                &mut direction,
                &mut buffers,
                &frames,
                Duration::ZERO,
                &mut (),
            );
            for ((_, frame), expected) in left.iter().zip([codepoint, marked]) {
                assert_eq!(frame[15] >> shift & 3, expected);
                assert!(checksums_are_right(frame));
            }
            assert_eq!(direction.counters().ecn_marked, u64::from(codepoint > 0));
        }
    }
}

#[test]
fn changes_come_into_force_at_their_time_or_packet() {
    let plan = |text: &str| {
        let planned: Planned = text.parse().unwrap();
        let when = match (planned.at, planned.after) {
            (Some(at), _) => When::At(at.0),
            (None, packets) => When::After(packets.unwrap()),
        };
        Change {
            when,
            set: planned.set,
        }
    };
    let changes = vec![
        plan("after=10,loss=100%"),
        plan("after=20,loss=0"),
        plan("at=300us,loss=100%"),
    ];
    let mut direction = Direction::new(0, 1, Settings::default(), changes);
    let mut buffers = buffers(16);
    let (left, _) = pass(&mut direction, &mut buffers, &numbered(40), GAP, &mut ());
    let left: Vec<u32> = left.iter().map(|(_, frame)| number(frame)).collect();
    assert_eq!(left, (0..10).chain(20..30).collect::<Vec<u32>>());
    assert_eq!(direction.counters().changes, 3);
}

#[test]
fn without_free_frames_packets_are_dropped_and_counted() {
    let mut direction = direction(1, &["delay=1s"]);
    let mut buffers = buffers(16);
    buffers.reserve = 8;
    let mut answers = Vec::new();
    for frame in numbered(20) {
        let mut empty = buffers.pool.alloc().unwrap();
        empty.set_len(frame.len());
        buffers.bytes_mut(&mut empty).copy_from_slice(&frame);
        direction.arrive(Duration::ZERO, empty, &mut buffers, &mut answers, &mut ());
    }
    let counters = direction.counters();
    assert!(
        counters.no_frame > 0 && counters.balanced(direction.waiting()),
        "{counters:?}"
    );
    assert!(buffers.pool.available() >= 8);
}

#[test]
fn every_impairment_at_once_keeps_the_account() {
    for seed in 1..20 {
        let mut direction = Direction::new(
            0,
            seed,
            crate::linksim::testing::settings(&[
                "loss=3%",
                "burst-loss=1%:30%",
                "duplicate=5%",
                "corrupt=5%",
                "reorder=10%",
                "jitter=100us",
                "rate=100Mbit",
                "queue=50p",
                "ecn=10p",
                "mtu=900",
                "split=20%",
                "join=20%",
            ]),
            vec![Change {
                when: When::After(1000),
                set: Impairments::from_pairs(["mtu=600"]).unwrap(),
            }],
        );
        let mut buffers = buffers(256);
        let payload = [7; 1400];
        let frames: Vec<Vec<u8>> = (0..3000_u32)
            .map(|n| {
                let length = (n as usize * 37) % 1400;
                let version = VERSIONS[n as usize % 2];
                if n % 7 == 0 {
                    udp(version, &payload[..length])
                } else {
                    segment(version, n.wrapping_mul(1000), &payload[..length])
                }
            })
            .collect();
        let (left, answers) = pass(&mut direction, &mut buffers, &frames, GAP, &mut ());
        assert!(!left.is_empty() && !answers.is_empty());
        let counters = direction.counters();
        assert!(counters.balanced(0), "{counters:?}");
        assert_eq!(buffers.pool.available(), 256);
    }
}
