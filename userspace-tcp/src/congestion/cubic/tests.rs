use super::*;

const SMSS: u64 = 1000;
const RTT: Duration = Duration::from_millis(100);

fn at(seconds: f64) -> Instant {
    Instant::ZERO + Duration::from_secs_f64(seconds)
}

fn step(now: Instant, bytes: u64) -> Step {
    Step {
        now,
        srtt: RTT,
        bytes,
        smss: SMSS,
    }
}

/// A whole window acknowledged, segment by segment, within a round trip that begins at `from`.
fn round(cubic: &mut Cubic, mut cwnd: u64, from: f64) -> u64 {
    let segments = cwnd / SMSS;
    for i in 0..segments {
        let now = at(from + RTT.as_secs_f64() * i as f64 / segments as f64);
        cwnd = cubic.grow(cwnd, &step(now, SMSS));
    }
    cwnd
}

/// Congestion at a window of `segments`.
fn reduced(segments: u64) -> (Cubic, u64) {
    let mut cubic = Cubic::default();
    let cwnd = segments * SMSS;
    let ssthresh = cubic.reduce(cwnd, cwnd);
    (cubic, ssthresh)
}

#[test]
fn congestion_leaves_seven_tenths() {
    let (cubic, ssthresh) = reduced(1000);
    assert_eq!(ssthresh, 700 * SMSS);
    assert_eq!(cubic.w_max, 1000.0 * SMSS as f64);
}

/// RFC 9438 section 4.2, figure 2: K = cubic root of (W_max - cwnd_epoch) / C.
#[test]
fn k_is_the_time_back_to_w_max() {
    for (segments, k) in [
        (1000, 9.0856),
        (100, 4.2172),
        (10, 1.9574),
        (100_000, 42.1716),
    ] {
        let (mut cubic, cwnd) = reduced(segments);
        cubic.grow(cwnd, &step(at(0.0), 0));
        let epoch = cubic.epoch.unwrap();
        assert!((f64::from(epoch.k) - k).abs() < 1e-3, "{} {k}", epoch.k);
        let w = |t| epoch.w_cubic(t, cubic.w_max, SMSS as f64) / SMSS as f64;
        let w_max = segments as f64;
        assert!(
            (w(0.0) - 0.7 * w_max).abs() < w_max * 1e-4,
            "where it starts"
        );
        assert!((w(k) - w_max).abs() < w_max * 1e-4, "the plateau");
        // One second before and behind the plateau: C segments.
        assert!((w(k + 1.0) - w_max - 0.4).abs() < 0.01 * w_max.max(1.0));
        assert!((w(2.0 * k) - 1.3 * w_max).abs() < w_max * 1e-3, "symmetric");
    }
}

/// The window follows W_cubic one round trip ahead: concave, plateau, convex.
#[test]
fn the_window_follows_the_curve() {
    let (mut cubic, mut cwnd) = reduced(1000);
    let mut windows = Vec::new();
    for i in 0..180 {
        cwnd = round(&mut cubic, cwnd, f64::from(i) * 0.1);
        windows.push(cwnd as f64 / SMSS as f64);
    }
    for (i, window) in windows.iter().enumerate() {
        // Acknowledged until here, the window is what the curve says at the round's end.
        let t = (i + 1) as f64 * 0.1;
        let curve = 0.4 * (t - 9.0856_f64).powi(3) + 1000.0;
        let off = (window - curve).abs();
        assert!(off < 15.0, "round {i}: {window} instead of {curve}");
    }
    let growth: Vec<_> = windows.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(growth[10] > growth[50], "concave");
    assert!(growth[88..92].iter().all(|growth| *growth < 0.5), "plateau");
    assert!(growth[170] > growth[120], "convex");
}

/// RFC 9438 section 4.3: where round trips are short, the window is what an AIMD with alpha_cubic
/// would have: 9/17 of a segment each round trip.
#[test]
fn it_is_as_fast_as_reno_on_short_round_trips() {
    let mut cubic = Cubic::default();
    let mut cwnd = 100 * SMSS;
    cwnd = cubic.reduce(cwnd, cwnd);
    let rtt = Duration::from_micros(100);
    let mut now = at(0.0);
    let rounds = 50;
    for _ in 0..rounds {
        let segments = cwnd / SMSS;
        for _ in 0..segments {
            now += rtt / segments as u32;
            let srtt = rtt;
            cwnd = cubic.grow(
                cwnd,
                &Step {
                    srtt,
                    ..step(now, SMSS)
                },
            );
        }
    }
    let grown = (cwnd - 70 * SMSS) as f64 / SMSS as f64;
    assert!((grown - rounds as f64 * 9.0 / 17.0).abs() < 1.0, "{grown}");
}

/// RFC 9438 section 4.3: from cwnd_prior on alpha is 1, as Reno's.
#[test]
fn beyond_the_last_window_it_grows_as_reno_does() {
    let (mut cubic, mut cwnd) = reduced(10);
    let mut now = at(0.0);
    let mut growth = Vec::new();
    for _ in 0..20 {
        let before = cwnd;
        for _ in 0..(cwnd / SMSS) {
            now += Duration::from_micros(1);
            let srtt = Duration::from_micros(10);
            cwnd = cubic.grow(
                cwnd,
                &Step {
                    srtt,
                    ..step(now, SMSS)
                },
            );
        }
        growth.push((before / SMSS, cwnd - before));
    }
    for (window, growth) in growth {
        if window < 9 {
            assert!((400..=600).contains(&growth), "{window} {growth}");
        } else if window > 10 {
            assert!((850..=1050).contains(&growth), "{window} {growth}");
        }
    }
}

/// RFC 9438 section 4.7.
#[test]
fn fast_convergence_gives_way_when_congestion_comes_earlier() {
    let (mut cubic, _) = reduced(1000);
    cubic.reduce(800 * SMSS, 800 * SMSS);
    assert!((cubic.w_max - 0.85 * 800.0 * SMSS as f64).abs() < 1.0);
    cubic.reduce(900 * SMSS, 900 * SMSS);
    assert_eq!(cubic.w_max, 900.0 * SMSS as f64, "later than the last time");
}

/// RFC 9438 section 4.8: K is 0 and W_max where congestion avoidance begins.
#[test]
fn after_a_timeout_the_window_begins_convex() {
    let (mut cubic, ssthresh) = reduced(1000);
    cubic.timed_out();
    cubic.grow(ssthresh, &step(at(0.0), SMSS));
    let epoch = cubic.epoch.unwrap();
    assert_eq!(epoch.k, 0.0);
    assert_eq!(cubic.w_max, ssthresh as f64);
}

/// RFC 9438 section 5.8.
#[test]
fn time_in_which_the_window_was_not_the_limit_does_not_count() {
    let (mut idle, mut cwnd) = reduced(1000);
    let (mut busy, _) = reduced(1000);
    for i in 0..10 {
        cwnd = round(&mut idle, cwnd, f64::from(i) * 0.1);
    }
    let mut other = 700 * SMSS;
    for i in 0..10 {
        other = round(&mut busy, other, f64::from(i) * 0.1);
    }
    // An hour of little to send.
    for second in 1..3600 {
        idle.pause(at(f64::from(second)));
    }
    for i in 10..20 {
        cwnd = round(&mut idle, cwnd, 3599.0 + f64::from(i - 10) * 0.1);
        other = round(&mut busy, other, 0.9 + f64::from(i - 10) * 0.1);
    }
    assert!(cwnd.abs_diff(other) < 2 * SMSS, "{cwnd} {other}");
}

/// RFC 9438 section 4.2: the target is at most half as much again.
#[test]
fn a_round_trip_is_worth_half_a_window_at_most() {
    let (mut cubic, cwnd) = reduced(10);
    cubic.grow(cwnd, &step(at(0.0), 0));
    let grown = cubic.grow(cwnd, &step(at(10_000.0), cwnd));
    assert_eq!(grown, cwnd * 3 / 2);
}

#[test]
fn no_number_is_too_great() {
    for cwnd in [0, 1, SMSS, 1 << 40, u64::MAX] {
        for bytes in [0, 1, u64::MAX] {
            for smss in [0, 1, 65_535] {
                let mut cubic = Cubic::default();
                for now in [at(0.0), at(1e9), Instant::from_nanos(u64::MAX)] {
                    let srtt = Duration::MAX;
                    let step = Step {
                        now,
                        srtt,
                        bytes,
                        smss,
                    };
                    assert!(cubic.grow(cwnd, &step) >= cwnd);
                    cubic.reduce(cwnd, bytes);
                    assert!(cubic.grow(cwnd, &step) >= cwnd);
                }
            }
        }
    }
}
