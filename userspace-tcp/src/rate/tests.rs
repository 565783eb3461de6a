use super::*;
use crate::outbound::Delivered;

const MS: u64 = 1_000_000;
const LEN: u32 = 1000;
const LENGTH: u64 = LEN as u64;

fn at(ms: u64) -> Instant {
    Instant::from_nanos(ms * MS)
}

fn sampler() -> RateSampler {
    RateSampler::new(0, true)
}

/// An ACK at `now` whose newest segment was sent at `sent_at` with this stamp.
fn sample(
    rate: &mut RateSampler,
    now: Instant,
    sent_at: Instant,
    stamp: Stamp,
    total: u64,
) -> Option<RateSample> {
    rate.acknowledged(now, &Delivered::of_original(sent_at, 1, stamp), total, 0)
}

/// Section 4.1.1.2.4: the longer of the times in which it was sent and in which it was acknowledged.
#[test]
fn a_rate_is_what_was_delivered_in_the_longer_of_two_times() {
    let mut rate = sampler();
    let mut stamps = Vec::new();
    // Ten segments in 9 ms, of which the ACKs come 2 ms apart.
    for i in 0..10 {
        stamps.push((at(100 + i), rate.sent(at(100 + i), LEN, i * LENGTH)));
    }
    let mut last = None;
    for (i, (sent_at, stamp)) in stamps.iter().enumerate() {
        let i = i as u64;
        last = sample(
            &mut rate,
            at(200 + 2 * i),
            *sent_at,
            *stamp,
            (i + 1) * LENGTH,
        );
    }
    let last = last.unwrap();
    // Its interval began when the first was sent: nothing was in flight before.
    assert_eq!(last.delivered, 10 * LENGTH);
    assert_eq!(last.delivery_rate, 10 * LENGTH * 1000 / 118);
    assert_eq!(last.tx_in_flight, 10 * LENGTH);
    assert_eq!(last.rtt, Some(109 * MS));
    // ACKs that come in one batch make nothing faster than it was sent.
    let mut rate = sampler();
    let first = rate.sent(at(100), LEN, 0);
    sample(&mut rate, at(110), at(100), first, LENGTH);
    let mut late = Stamp::default();
    for i in 0..10 {
        late = rate.sent(at(110 + i * 10), LEN, (i + 1) * LENGTH);
    }
    let batch = sample(&mut rate, at(211), at(200), late, 11 * LENGTH).unwrap();
    assert_eq!(batch.delivered, 10 * LENGTH);
    assert_eq!(batch.delivery_rate, 10 * LENGTH * 1000 / 101);
}

/// Section 4.1.2.3: an interval below the least round trip is of a needless retransmission.
#[test]
fn an_interval_below_a_round_trip_tells_no_rate() {
    let mut rate = sampler();
    let stamp = rate.sent(at(100), LEN, 0);
    let delivered = Delivered::of_original(at(100), 1, stamp);
    let sample = rate
        .acknowledged(at(105), &delivered, LENGTH, 6 * MS)
        .unwrap();
    assert_eq!((sample.delivery_rate, sample.delivered), (0, LENGTH));
}

/// Section 4.1.2.4.
#[test]
fn samples_are_application_limited_until_the_bubble_is_delivered() {
    let mut rate = sampler();
    let before = rate.sent(at(100), LEN, 0);
    rate.mark_app_limited(LENGTH);
    let within = rate.sent(at(101), LEN, LENGTH);
    assert!(
        !sample(&mut rate, at(110), at(100), before, LENGTH)
            .unwrap()
            .app_limited
    );
    assert!(rate.is_app_limited());
    assert!(
        sample(&mut rate, at(111), at(101), within, 2 * LENGTH)
            .unwrap()
            .app_limited
    );
    assert!(!rate.is_app_limited());
    let behind = rate.sent(at(112), LEN, 0);
    assert!(
        !sample(&mut rate, at(120), at(112), behind, 3 * LENGTH)
            .unwrap()
            .app_limited
    );
}

/// Whatever happens between, a segment whose era was overwritten gives no sample, and no wrong one.
#[test]
fn what_is_too_long_ago_is_forgotten() {
    let mut rate = sampler();
    let old = rate.sent(at(100), LEN, 0);
    for i in 0..ERAS as u64 {
        let stamp = rate.sent(at(101 + i), LEN, 0);
        sample(&mut rate, at(101 + i), at(101 + i), stamp, (i + 1) * LENGTH);
    }
    assert_eq!(sample(&mut rate, at(500), at(100), old, 100 * LENGTH), None);
    rate.lost(old, LEN, 1);
    assert_eq!(rate.take_losses().excess, None);
}

/// Eras are as long as a sixteenth of the window takes, so that four windows fit.
#[test]
fn eras_are_as_many_as_a_window_has_parts() {
    for segments in [4, 100, 10_000u64] {
        let mut rate = sampler();
        let window = segments * LENGTH;
        let first = rate.latest;
        let mut total = 0;
        for i in 0..segments {
            rate.sent(at(100 + i), LEN, window);
            total += LENGTH;
            let stamp = Stamp {
                inflight: 1,
                era: rate.latest,
            };
            sample(&mut rate, at(100 + i), at(99), stamp, total);
        }
        let eras = u64::from(rate.latest.wrapping_sub(first));
        assert!(
            eras <= ERAS_IN_FLIGHT.min(segments) + 1,
            "{segments}: {eras}"
        );
    }
}

/// Section 5.5.10.2.
#[test]
fn losses_are_too_many_beyond_two_hundredths_of_what_was_in_flight() {
    let mut rate = sampler();
    let mut stamps = Vec::new();
    for i in 0..200 {
        stamps.push(rate.sent(at(100), LEN, i * LENGTH));
    }
    for (lost, &stamp) in stamps.iter().take(4).enumerate() {
        // The first ones were sent with little in flight: they alone would be too many.
        let deep = Stamp {
            inflight: 200 * LEN,
            ..stamp
        };
        rate.lost(deep, LEN, (lost as u64 + 1) * 5000);
    }
    assert_eq!(
        rate.take_losses(),
        Losses {
            segments: 4,
            ranges: 4,
            excess: None
        }
    );
    let deep = Stamp {
        inflight: 200 * LEN,
        ..stamps[0]
    };
    rate.lost(deep, LEN, 100_000);
    rate.lost(deep, LEN, 100_000 + LENGTH);
    let losses = rate.take_losses();
    assert_eq!((losses.segments, losses.ranges), (2, 1));
    // 199 segments before it, of which 3.98 may be lost, and 4 were.
    assert_eq!(losses.excess.unwrap().inflight, 199 * LENGTH);
    assert_eq!(rate.take_losses(), Losses::default());
}

#[test]
fn without_selective_acknowledgments_any_loss_is_too_much() {
    let mut rate = RateSampler::new(0, false);
    let stamp = rate.sent(at(100), LEN, 1_000_000);
    rate.lost(stamp, LEN, 1);
    assert!(rate.take_losses().excess.is_some());
}

#[test]
fn what_was_too_large_for_its_path_is_no_loss() {
    let mut rate = sampler();
    let stamp = rate.sent(at(100), LEN, 0);
    rate.lost(stamp, LEN, 1);
    rate.excused(LEN);
    assert_eq!(rate.take_losses(), Losses::default());
    assert_eq!(
        sample(&mut rate, at(110), at(100), stamp, LENGTH)
            .unwrap()
            .lost,
        0
    );
}

/// A peer that takes its word back, or says what it had said already.
#[test]
fn nothing_is_delivered_twice() {
    let mut rate = sampler();
    let stamp = rate.sent(at(100), LEN, 0);
    let deliver = |rate: &mut RateSampler, total| {
        sample(rate, at(110), at(100), stamp, total)
            .unwrap()
            .newly_acked
    };
    assert_eq!(deliver(&mut rate, 2 * LENGTH), 2 * LENGTH);
    assert_eq!(deliver(&mut rate, LENGTH), 0);
    assert_eq!(deliver(&mut rate, 2 * LENGTH), 0);
    assert_eq!(rate.delivered(), 2 * LENGTH);
}

#[test]
fn no_number_is_too_great() {
    let most = [0, 1, u64::MAX / 2, u64::MAX];
    for a in most {
        for b in most {
            let mut rate = RateSampler::new(a, true);
            let stamp = rate.sent(Instant::from_nanos(a), u32::MAX, b);
            rate.lost(stamp, u32::MAX, a);
            rate.lost(stamp, u32::MAX, b);
            rate.mark_app_limited(b);
            sample(
                &mut rate,
                Instant::from_nanos(b),
                Instant::from_nanos(a),
                stamp,
                b,
            );
            rate.excused(u32::MAX);
            rate.excused(u32::MAX);
            rate.excused(u32::MAX);
            let stamp = rate.sent(Instant::from_nanos(b), 1, 0);
            sample(
                &mut rate,
                Instant::from_nanos(b),
                Instant::from_nanos(b),
                stamp,
                a,
            );
        }
    }
}

/// It is in what the alignment of a segment leaves.
#[test]
fn it_is_small() {
    assert_eq!(size_of::<Stamp>(), 5);
    assert!(
        size_of::<RateSampler>() <= 2816,
        "{}",
        size_of::<RateSampler>()
    );
}
