mod places;

use std::time::Duration;

use proptest::prelude::*;

use userspace_net::Instant;

use super::{NotSent, Outbound, Outcome, State, Transmission};
use crate::chunk::GapBlock;
use crate::tsn::Tsn;

const FIRST: Tsn = Tsn(u32::MAX - 1);
const BYTES: usize = 100;
const WINDOW: usize = 100_000;
const NOW: Instant = Instant::from_nanos(10_000_000);

fn tsn(number: u32) -> Tsn {
    FIRST.plus(number)
}

/// With chunks `0..posted`, of which all were sent.
fn sent(posted: u32) -> Outbound<u32> {
    let mut outbound = Outbound::new(FIRST, WINDOW, 64);
    for number in 0..posted {
        assert_eq!(outbound.post(number, BYTES), Ok(tsn(number)));
        let transmission = outbound.transmit(Instant::ZERO, false, 0);
        assert_eq!(
            transmission,
            Some(Transmission {
                tsn: tsn(number),
                bytes: BYTES,
                again: false
            })
        );
    }
    outbound
}

/// Acknowledges the first `cumulative` chunks, and those of blocks of numbers.
fn sack(outbound: &mut Outbound<u32>, cumulative: u32, blocks: &[(u32, u32)]) -> Outcome {
    try_sack(outbound, cumulative, blocks, false).unwrap()
}

fn try_sack(
    outbound: &mut Outbound<u32>,
    cumulative: u32,
    blocks: &[(u32, u32)],
    recovering: bool,
) -> Result<Outcome, NotSent> {
    let blocks = blocks.iter().map(|(start, end)| GapBlock {
        start: (start + 1 - cumulative) as u16,
        end: (end + 1 - cumulative) as u16,
    });
    let last = tsn(cumulative).previous();
    outbound.sack(NOW, last, WINDOW, blocks, recovering, |_| {})
}

fn again(outbound: &mut Outbound<u32>) -> Vec<u32> {
    let mut numbers = Vec::new();
    while outbound.has_lost() {
        let Transmission { tsn, again, .. } = outbound.transmit(NOW, false, 0).unwrap();
        assert!(again);
        numbers.push(tsn.since(FIRST));
    }
    numbers
}

#[test]
fn a_cumulative_tsn_gives_buffers_back_and_measures() {
    let mut outbound = sent(4);
    let mut released = Vec::new();
    let outcome = outbound.sack(NOW, tsn(2), WINDOW, std::iter::empty(), false, |b| {
        released.push(b)
    });
    let outcome = outcome.unwrap();
    assert_eq!(released, [0, 1, 2]);
    assert_eq!(outbound.flight(), BYTES);
    assert_eq!(
        (outcome.rtt, outcome.earliest[0], outcome.lost[0]),
        (
            Some((0, NOW.saturating_duration_since(Instant::ZERO))),
            true,
            false
        )
    );
    let acknowledged = outcome.acknowledged[0];
    assert_eq!(
        (acknowledged.bytes, acknowledged.flight_before),
        (3 * BYTES, 4 * BYTES)
    );
    assert!(acknowledged.advances && !acknowledged.all);
    assert!(sack(&mut outbound, 4, &[]).acknowledged[0].all);
    assert!(outbound.is_empty() && !outbound.is_outstanding());
}

#[test]
fn what_is_reported_missing_three_times_is_sent_again_once() {
    let mut outbound = sent(10);
    assert!(!sack(&mut outbound, 1, &[(3, 3)]).lost[0]);
    assert!(!sack(&mut outbound, 1, &[(3, 4)]).lost[0]);
    // A SACK that acknowledges nothing new reports nothing missing.
    assert!(!sack(&mut outbound, 1, &[(3, 4)]).lost[0]);
    let outcome = sack(&mut outbound, 1, &[(3, 5)]);
    assert!(outcome.lost[0]);
    assert_eq!(again(&mut outbound), [1, 2]);
    for last in 6..10 {
        assert!(
            !sack(&mut outbound, 1, &[(3, last)]).lost[0],
            "it had its fast retransmission"
        );
    }
    // The others were acknowledged, and only what came again is news.
    let outcome = sack(&mut outbound, 10, &[]);
    assert_eq!(
        (outcome.acknowledged[0].bytes, outcome.rtt),
        (2 * BYTES, None),
        "Karn's rule"
    );
}

/// Highest TSN Newly Acknowledged: what comes behind it is not missing yet.
#[test]
fn only_what_is_before_the_highest_new_tsn_is_missing() {
    let mut outbound = sent(10);
    for last in [4, 5, 6] {
        sack(&mut outbound, 0, &[(2, 2), (4, last)]);
    }
    // 2 was acknowledged by the first, 0, 1 and 3 were reported by all three.
    assert_eq!(again(&mut outbound), [0, 1, 3]);
    let mut outbound = sent(10);
    sack(&mut outbound, 0, &[(9, 9)]);
    sack(&mut outbound, 0, &[(1, 1), (9, 9)]);
    sack(&mut outbound, 0, &[(1, 2), (9, 9)]);
    assert_eq!(again(&mut outbound), [0]);
    // In Fast Recovery one that moves on reports all of its gaps.
    for (recovering, expected) in [(false, &[][..]), (true, &[2, 3, 4, 5])] {
        let mut outbound = sent(10);
        for cumulative in 0..3 {
            try_sack(&mut outbound, cumulative, &[(6, 6)], recovering).unwrap();
        }
        assert_eq!(again(&mut outbound), expected);
    }
}

#[test]
fn blocks_count_up_to_the_first_that_is_out_of_order() {
    for wrong in [(1, 1), (5, 5), (9, 8), (4, 6)] {
        let mut outbound = sent(10);
        let outcome = sack(&mut outbound, 0, &[(2, 2), (5, 5), wrong, (9, 9)]);
        assert_eq!(outcome.acknowledged[0].bytes, 2 * BYTES, "{wrong:?}");
    }
}

#[test]
fn a_timeout_sends_all_again_that_is_not_acknowledged() {
    let mut outbound = sent(5);
    sack(&mut outbound, 1, &[(3, 3)]);
    outbound.timed_out(0);
    assert_eq!(outbound.flight(), 0);
    assert_eq!(again(&mut outbound), [1, 2, 4]);
    assert_eq!(outbound.flight(), 3 * BYTES);
    // They may be lost a second time.
    outbound.timed_out(0);
    assert_eq!(again(&mut outbound), [1, 2, 4]);
}

/// RFC 9260 section 6.2.1, D iv.
#[test]
fn what_the_peer_takes_back_is_in_flight_again() {
    let mut outbound = sent(4);
    sack(&mut outbound, 0, &[(2, 3)]);
    assert_eq!(outbound.flight(), 2 * BYTES);
    sack(&mut outbound, 0, &[(3, 3)]);
    assert_eq!(outbound.flight(), 3 * BYTES);
    outbound.timed_out(0);
    assert_eq!(again(&mut outbound), [0, 1, 2]);
}

#[test]
fn a_sack_of_what_was_not_sent_is_an_error_and_an_old_one_is_nothing() {
    let mut outbound = sent(3);
    outbound.post(3, BYTES).unwrap();
    let error = try_sack(&mut outbound, 4, &[], false);
    assert_eq!(
        error,
        Err(NotSent {
            tsn: tsn(3),
            next: tsn(3)
        })
    );
    let error = try_sack(&mut outbound, 1, &[(2, 3)], false);
    assert_eq!(
        error,
        Err(NotSent {
            tsn: tsn(3),
            next: tsn(3)
        })
    );
    assert_eq!(outbound.flight(), 3 * BYTES, "nothing was changed");
    sack(&mut outbound, 2, &[]);
    assert_eq!(sack(&mut outbound, 1, &[]), Outcome::default());
    assert_eq!(outbound.flight(), BYTES);
}

#[test]
fn the_peers_window_holds_new_chunks_back_but_for_one_that_probes_it() {
    let mut outbound = Outbound::new(FIRST, 150, 64);
    for number in 0..4 {
        outbound.post(number, BYTES).unwrap();
    }
    assert!(outbound.transmit(NOW, false, 0).is_some());
    assert_eq!(outbound.transmit(NOW, false, 0), None, "50 bytes are left");
    let closed = |outbound: &mut Outbound<u32>, cumulative| {
        let none = std::iter::empty();
        outbound
            .sack(NOW, cumulative, 0, none, false, |_| {})
            .unwrap();
    };
    closed(&mut outbound, tsn(0));
    assert!(outbound.needs_probe());
    assert_eq!(outbound.transmit(NOW, false, 0), None);
    assert_eq!(outbound.transmit(NOW, true, 0).map(|t| t.tsn), Some(tsn(1)));
    assert_eq!(outbound.transmit(NOW, true, 0), None, "one probe");
    // What is sent again needs no window.
    outbound.timed_out(0);
    assert_eq!(outbound.peek(false).map(|next| next.bytes), Some(BYTES));
    assert_eq!(
        outbound.transmit(NOW, false, 0).map(|t| (t.tsn, t.again)),
        Some((tsn(1), true))
    );
    sack(&mut outbound, 2, &[]);
    assert_eq!(
        outbound.transmit(NOW, false, 0).map(|t| t.tsn),
        Some(tsn(2))
    );
}

/// RFC 9260 section 6.2.1, rule B.
#[test]
fn what_is_lost_gives_its_room_of_the_peers_window_back() {
    // Of the third and the fourth chunk there is room for one.
    let mut outbound = Outbound::new(FIRST, 2 * BYTES + BYTES / 2, 8);
    for (number, bytes) in (0..).zip([BYTES, BYTES, BYTES / 2, BYTES / 2]) {
        outbound.post(number, bytes).unwrap();
    }
    for _ in 0..2 {
        assert!(outbound.transmit(NOW, false, 0).is_some());
    }
    outbound.timed_out(0);
    assert_eq!(again(&mut outbound), [0, 1]);
    let next = outbound.transmit(NOW, false, 0).unwrap();
    assert_eq!((next.tsn, next.again), (tsn(2), false));
    assert_eq!(outbound.transmit(NOW, false, 0), None);
}

#[test]
fn the_earliest_chunk_of_a_path_is_under_way_there() {
    let mut outbound = Outbound::new(FIRST, WINDOW, 8);
    for (number, path) in [0, 1, 0, 1].into_iter().enumerate() {
        outbound.post(number as u32, BYTES).unwrap();
        outbound.transmit(NOW, false, path).unwrap();
    }
    let earliest = |outbound: &Outbound<u32>| [0, 1].map(|path| outbound.earliest_on(path));
    let of = |number| Some((tsn(number), BYTES));
    assert_eq!(earliest(&outbound), [of(0), of(1)]);
    sack(&mut outbound, 1, &[(1, 1)]);
    assert_eq!(earliest(&outbound), [of(2), of(3)]);
    sack(&mut outbound, 3, &[]);
    assert_eq!(earliest(&outbound), [None, of(3)]);
}

/// RFC 9260 section 3.3.8 (RFC9260-3.3.8-2).
#[test]
fn a_shutdown_acknowledges_and_takes_nothing_back() {
    let mut outbound = sent(5);
    sack(&mut outbound, 1, &[(3, 3)]);
    let flight = outbound.flight();
    let mut released = Vec::new();
    let outcome = outbound.shutdown(NOW, tsn(1), |buffer| released.push(buffer));
    assert!(outcome.unwrap().earliest[0]);
    assert_eq!((released, outbound.flight()), (vec![1], flight - BYTES));
    assert_eq!(
        outbound.shutdown(NOW, tsn(0), |_| {}),
        Ok(Outcome::default()),
        "an old one"
    );
    assert!(outbound.shutdown(NOW, tsn(5), |_| {}).is_err());
    let outcome = outbound.shutdown(NOW, tsn(4), |_| {}).unwrap();
    assert!(outcome.acknowledged[0].all && outbound.is_empty());
}

#[test]
fn as_many_chunks_are_taken_as_there_is_room_for() {
    let mut outbound = Outbound::new(FIRST, WINDOW, 2);
    let room = outbound.chunks.capacity() as u32;
    for number in 0..room {
        assert!(outbound.post(number, BYTES).is_ok());
    }
    assert_eq!(outbound.room(), 0);
    assert_eq!(outbound.post(99, BYTES), Err(99));
    assert_eq!(outbound.buffer(tsn(1)), Some(&mut 1));
    assert_eq!(outbound.buffer(tsn(room)), None);
    let mut released = Vec::new();
    outbound.clear(|buffer| released.push(buffer));
    assert_eq!(released.len() as u32, room);
    assert!(outbound.is_empty());
}

/// With a search from the front this takes minutes.
#[test]
fn what_is_sent_next_is_found_however_many_are_posted() {
    let count = 1 << 18;
    let mut outbound = Outbound::new(FIRST, usize::MAX / 2, count);
    for number in 0..count as u32 {
        outbound.post(number, BYTES).unwrap();
    }
    let began = std::time::Instant::now();
    for _ in 0..count {
        outbound.transmit(NOW, false, 0).unwrap();
    }
    // Of what is lost the peer has some in the middle.
    outbound.timed_out(0);
    sack(&mut outbound, 0, &[(10_000, 60_000)]);
    assert_eq!(again(&mut outbound).len(), count - 50_001);
    assert!(began.elapsed() < Duration::from_secs(10));
}

/// RFC 9260 section 7.2.4.
#[test]
fn the_lowest_tsns_are_sent_again_first() {
    let mut outbound = sent(12);
    for last in [6, 7, 8] {
        sack(&mut outbound, 2, &[(3, 3), (6, last)]);
    }
    let next = |outbound: &mut Outbound<u32>| outbound.transmit(NOW, false, 0).map(|t| t.tsn);
    assert_eq!(next(&mut outbound), Some(tsn(2)));
    // It comes while 4 and 5 wait.
    sack(&mut outbound, 4, &[(6, 8)]);
    assert_eq!(next(&mut outbound), Some(tsn(4)));
    // What is lost anew goes before what waits.
    outbound.timed_out(0);
    assert_eq!(again(&mut outbound), [4, 5, 9, 10, 11]);
}

proptest! {
    /// Over a link that loses packets and acknowledgments every chunk arrives, every buffer comes back once and
    /// what is in flight is counted right.
    #[test]
    fn every_buffer_comes_back_once(losses in prop::collection::vec(any::<bool>(), 400), count in 1_u32..40) {
        use crate::inbound::arrivals::Arrivals;
        let mut outbound = Outbound::new(FIRST, WINDOW, 64);
        for number in 0..count {
            outbound.post(number, BYTES).unwrap();
        }
        let (mut arrivals, mut released) = (Arrivals::new(FIRST), Vec::new());
        let mut losses = losses.into_iter().chain(std::iter::repeat(false));
        let mut rounds = 0;
        while !outbound.is_empty() {
            rounds += 1;
            prop_assert!(rounds < 2000);
            let lost = outbound.chunks.iter().position(|chunk| chunk.state == State::Lost);
            prop_assert!(lost.is_none() || lost == outbound.next(false), "the lowest TSN goes first");
            match outbound.transmit(NOW, false, 0) {
                Some(transmission) if losses.next() == Some(false) => {
                    arrivals.take(transmission.tsn);
                }
                Some(_) => continue,
                None => outbound.timed_out(0),
            }
            if losses.next() == Some(true) {
                continue;
            }
            let cumulative = arrivals.cumulative();
            let blocks: Vec<_> = arrivals.blocks().collect();
            let taken = outbound.sack(
                NOW, cumulative, WINDOW, blocks.iter().copied(), false, |b| released.push(b),
            );
            prop_assert!(taken.is_ok());
            prop_assert_eq!(outbound.flight() % BYTES, 0);
        }
        prop_assert_eq!(outbound.flight(), 0);
        prop_assert!(released.into_iter().eq(0..count));
    }
}
