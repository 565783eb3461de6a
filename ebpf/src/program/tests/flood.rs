//! Strangers are limited by kind; flows that are known are not.

use std::time::Duration;

use super::fragments::fragment;
use super::*;
use crate::flood::{FlowState, Rate, Times};

const BURST: u32 = 4;

/// So slow that no token comes back during a test: one in eleven days.
const SLOW: Rate = Rate {
    burst: BURST,
    sharers: 1_000_000,
    ..Rate::of(1)
};
/// 50 s and 67 s in ticks: longer than a test waits between two frames on any machine.
const FAR: u32 = 3000;
const NEVER: u32 = 4000;

fn limits(kind: &str) -> FloodLimits {
    let mut limits = FloodLimits::NONE;
    match kind {
        "syn" => limits.syns = SLOW,
        "unknown_flow" => limits.unknown_flows = SLOW,
        _ => limits.fragments = SLOW,
    }
    limits
}

fn limits_of_all() -> FloodLimits {
    FloodLimits {
        syns: SLOW,
        unknown_flows: SLOW,
        fragments: SLOW,
    }
}

/// A whole segment from a port, with flags.
fn segment(v6: bool, from: u16, flags: u8) -> Vec<u8> {
    let (frame, at) = if v6 {
        (tcp_v6(), ETHERNET + IPV6)
    } else {
        (tcp_v4(), ETHERNET + IPV4)
    };
    with(frame, |frame| {
        set_u16(frame, at, from);
        frame[at + 13] = flags;
    })
}

fn ends(v6: bool, from: u16) -> ((IpAddr, u16), (IpAddr, u16)) {
    if v6 {
        ((OURS_V6.into(), PORT), (PEER_V6.into(), from))
    } else {
        ((OURS_V4.into(), PORT), (PEER_V4.into(), from))
    }
}

/// Frames that a processor takes before it drops one. The test may be moved to another one meanwhile,
/// which has a bucket of its own.
fn taken_before(bench: &mut Bench, mut next: impl FnMut(u32) -> Vec<u8>, drop: &str) -> u32 {
    for n in 0..100 * BURST {
        let verdict = bench.run(&next(n));
        if verdict == drop {
            return n;
        }
        assert!(verdict.starts_with("redirected"), "{verdict}");
    }
    panic!("no frame was dropped")
}

const SYN: u8 = 0x02;
const ACK: u8 = 0x10;
const RST: u8 = 0x04;
const PSH_ACK: u8 = 0x18;

#[test]
fn segments_of_unknown_flows_are_dropped_when_there_are_too_many() {
    for variant in [Variant::Frags, Variant::Plain] {
        for v6 in [false, true] {
            for (kind, flags) in [
                ("syn", SYN),
                ("unknown_flow", ACK),
                ("unknown_flow", RST),
                ("unknown_flow", PSH_ACK),
                ("unknown_flow", SYN | ACK),
                ("unknown_flow", 0),
            ] {
                let mut bench = Bench::limited(variant, &limits(kind));
                let drop = format!("drop_{kind}");
                let next = |n| segment(v6, 1000 + n as u16, flags);
                let taken = taken_before(&mut bench, next, &drop);
                assert!(taken >= BURST, "{taken} of {flags:#x} were taken");
                // Another kind has a bucket of its own.
                let other = if kind == "syn" { ACK } else { SYN };
                assert_eq!(bench.run(&segment(v6, 1, other)), "redirected");
            }
        }
    }
}

#[test]
fn flows_that_are_known_have_no_limit_but_for_their_syns() {
    for variant in [Variant::Frags, Variant::Plain] {
        for v6 in [false, true] {
            let mut bench = Bench::limited(variant, &limits_of_all());
            let mut flows = bench.program.known_flows().unwrap();
            let (local, remote) = ends(v6, PEER_PORT);
            flows.enter(local, remote, FlowState::Known);
            for n in 0..400 {
                assert_eq!(bench.run(&segment(v6, PEER_PORT, ACK)), "redirected");
                for (offset, last) in [(0, false), (24, true)] {
                    let part = fragment(v6, n, offset, last);
                    assert_eq!(bench.run(&part), "redirected_fragment");
                }
            }
            taken_before(&mut bench, |_| segment(v6, PEER_PORT, SYN), "drop_syn");
            // Neither its neighbours nor itself once it is over.
            for from in [PEER_PORT + 1, PEER_PORT] {
                let next = |_| segment(v6, from, ACK);
                taken_before(&mut bench, next, "drop_unknown_flow");
                flows.leave(local, remote, FlowState::Known);
            }
        }
    }
}

#[test]
fn a_flow_that_was_entered_twice_is_known_until_it_was_left_twice() {
    let mut bench = Bench::limited(Variant::Frags, &limits("unknown_flow"));
    let mut flows = bench.program.known_flows().unwrap();
    let (local, remote) = ends(false, PEER_PORT);
    flows.enter(local, remote, FlowState::Known);
    flows.enter(local, remote, FlowState::Known);
    flows.leave(local, remote, FlowState::Known);
    for _ in 0..400 {
        assert_eq!(bench.run(&segment(false, PEER_PORT, ACK)), "redirected");
    }
    flows.leave(local, remote, FlowState::Known);
    let next = |_| segment(false, PEER_PORT, ACK);
    taken_before(&mut bench, next, "drop_unknown_flow");
    // More often than it was entered does nothing.
    flows.leave(local, remote, FlowState::Known);
    flows.enter(local, remote, FlowState::Known);
    assert_eq!(bench.run(&segment(false, PEER_PORT, ACK)), "redirected");
}

#[test]
fn what_answers_a_syn_ack_has_a_limit_of_its_own() {
    for variant in [Variant::Frags, Variant::Plain] {
        for v6 in [false, true] {
            let mut bench = Bench::limited(variant, &limits_of_all());
            let mut flows = bench.program.known_flows().unwrap();
            let (local, remote) = ends(v6, PEER_PORT);
            flows.enter(local, remote, FlowState::HalfOpen);
            let next = |n| segment(v6, 1000 + n as u16, ACK);
            taken_before(&mut bench, next, "drop_unknown_flow");
            // Then its own bucket is empty as well.
            let answer = |_| segment(v6, PEER_PORT, PSH_ACK);
            let taken = taken_before(&mut bench, answer, "drop_unknown_flow");
            assert!(taken >= BURST, "{taken} were taken");
            taken_before(&mut bench, |_| segment(v6, PEER_PORT, SYN), "drop_syn");
            // Nor has it one when it is over: the bench may have moved to another processor, with full buckets.
            flows.leave(local, remote, FlowState::HalfOpen);
            taken_before(&mut bench, answer, "drop_unknown_flow");
            flows.enter(local, remote, FlowState::Known);
            for _ in 0..400 {
                assert_eq!(bench.run(&answer(0)), "redirected");
            }
        }
    }
}

/// What comes again at once, by how soon it may: each processor has buckets of its own, so the test stays on one.
#[test]
fn what_was_dropped_is_taken_when_it_comes_again_as_a_tcp_sends_it() {
    stay_here();
    let times = |again_min, hasty_min| Times {
        again_min,
        hasty_min,
        again_max: NEVER,
    };
    for v6 in [false, true] {
        for (kind, flags) in [("syn", SYN), ("unknown_flow", PSH_ACK)] {
            let drop = format!("drop_{kind}");
            let cases = [
                ("as a TCP does", times(0, FAR), BURST),
                ("too soon", times(FAR, FAR), 0),
                // A SYN that came too soon has another time, other segments may follow each other.
                (
                    "hasty",
                    times(FAR, 0),
                    if kind == "syn" { BURST } else { 0 },
                ),
            ];
            for (what, times, wanted) in cases {
                let config = SteeringConfig {
                    limits: limits(kind),
                    ..SteeringConfig::UNLIMITED
                };
                let mut bench = Bench::timed(Variant::Frags, &config, times);
                let first = |n| segment(v6, 1000 + n as u16, flags);
                assert_eq!(taken_before(&mut bench, first, &drop), BURST);
                // The last of those was dropped. It has a bucket apart from unknown flows that come for the first time.
                let dropped = |_| segment(v6, 1000 + BURST as u16, flags);
                let taken = taken_before(&mut bench, dropped, &drop);
                assert_eq!(taken, wanted, "{kind}, {what}");
                let other = |n| segment(v6, 60_000 + n as u16, flags);
                assert_eq!(taken_before(&mut bench, other, &drop), 0);
            }
        }
    }
}

#[test]
fn a_syn_that_came_too_soon_once_has_to_be_away_for_longer() {
    stay_here();
    let config = SteeringConfig {
        limits: limits("syn"),
        ..SteeringConfig::UNLIMITED
    };
    // 3.4 s.
    let times = Times {
        again_min: 200,
        hasty_min: FAR,
        again_max: NEVER,
    };
    let mut bench = Bench::timed(Variant::Frags, &config, times);
    taken_before(
        &mut bench,
        |n| segment(false, 1000 + n as u16, SYN),
        "drop_syn",
    );
    let (patient, hasty) = (segment(false, 20_000, SYN), segment(false, 30_000, SYN));
    for (frame, times) in [(&patient, 1), (&hasty, 2)] {
        for _ in 0..times {
            assert_eq!(bench.run(frame), "drop_syn");
        }
    }
    std::thread::sleep(Duration::from_millis(3600));
    assert_eq!(bench.run(&hasty), "drop_syn");
    assert_eq!(bench.run(&patient), "redirected");
}

#[test]
fn what_comes_again_too_late_comes_for_the_first_time() {
    stay_here();
    let config = SteeringConfig {
        limits: limits("syn"),
        ..SteeringConfig::UNLIMITED
    };
    let times = Times {
        again_min: 0,
        hasty_min: 0,
        again_max: 1,
    };
    let mut bench = Bench::timed(Variant::Frags, &config, times);
    let next = |n| segment(false, 1000 + n as u16, SYN);
    let dropped = 1000 + taken_before(&mut bench, next, "drop_syn") as u16;
    // Three ticks at least.
    std::thread::sleep(Duration::from_millis(60));
    assert_eq!(bench.run(&segment(false, dropped, SYN)), "drop_syn");
}

/// Nobody knows how many flows a place is of that has counted its most: they stay known.
#[test]
fn a_place_that_has_counted_its_most_stays_and_one_before_that_does_not() {
    for (state, entered, stays) in [
        (FlowState::Known, 254, false),
        (FlowState::Known, 255, true),
        (FlowState::Known, 300, true),
        (FlowState::HalfOpen, 254, false),
        (FlowState::HalfOpen, 300, true),
    ] {
        let config = SteeringConfig {
            limits: limits("unknown_flow"),
            ..SteeringConfig::UNLIMITED
        };
        let times = Times {
            again_min: FAR,
            hasty_min: FAR,
            again_max: NEVER,
        };
        let mut bench = Bench::timed(Variant::Frags, &config, times);
        let mut flows = bench.program.known_flows().unwrap();
        let (local, remote) = ends(false, PEER_PORT);
        (0..entered).for_each(|_| flows.enter(local, remote, state));
        (0..entered).for_each(|_| flows.leave(local, remote, state));
        stay_here();
        let unknown = |n| segment(false, 1000 + n as u16, ACK);
        taken_before(&mut bench, unknown, "drop_unknown_flow");
        let taken =
            (0..2 * BURST).filter(|_| bench.run(&segment(false, PEER_PORT, ACK)) == "redirected");
        let wanted = match (state, stays) {
            (_, false) => 0,
            (FlowState::Known, true) => 2 * BURST,
            // It has a bucket of its own.
            (FlowState::HalfOpen, true) => BURST,
        };
        assert_eq!(taken.count(), wanted as usize, "{state:?}, {entered}");
    }
}

/// The calling thread stays on the processor that it is on.
fn stay_here() {
    let mut here = rustix::thread::CpuSet::new();
    here.set(rustix::thread::sched_getcpu());
    rustix::thread::sched_setaffinity(None, &here).unwrap();
}

#[test]
fn all_fragments_of_a_packet_whose_first_was_dropped_are_dropped() {
    for variant in [Variant::Frags, Variant::Plain] {
        for v6 in [false, true] {
            let mut bench = Bench::limited(variant, &limits("fragment"));
            let next = |n| fragment(v6, 100 + n, 0, false);
            let dropped = 100 + taken_before(&mut bench, next, "drop_fragment");
            assert_eq!(bench.run(&fragment(v6, dropped, 24, true)), "drop_fragment");
            // Of a packet that nobody knows the kernel is to judge.
            assert_eq!(
                bench.run(&fragment(v6, dropped + 1, 24, true)),
                "pass_fragment"
            );
        }
    }
}

#[test]
fn later_fragments_of_a_stranger_are_limited_too() {
    for v6 in [false, true] {
        let mut bench = Bench::limited(Variant::Frags, &limits("fragment"));
        assert_eq!(bench.run(&fragment(v6, 7, 0, false)), "redirected_fragment");
        let next = |_| fragment(v6, 7, 8, false);
        let taken = taken_before(&mut bench, next, "drop_fragment");
        assert!(taken >= BURST - 1, "{taken}");
    }
}

/// `cargo nextest run -p rnic-steering --run-ignored only --no-capture`
#[test]
#[ignore = "a measurement: what it prints is in docs/performance/analysis.md"]
fn what_the_limits_cost_a_frame() {
    println!("a frame: nanoseconds of the program without limits, with limits");
    for v6 in [false, true] {
        for (what, flags, from) in [
            ("segment of a connection", ACK, PEER_PORT),
            ("segment of an unknown flow, dropped", ACK, PEER_PORT + 1),
            ("SYN, dropped", SYN, PEER_PORT + 1),
        ] {
            let times = [FloodLimits::NONE, limits_of_all()].map(|limits| {
                let mut bench = Bench::limited(Variant::Frags, &limits);
                let mut flows = bench.program.known_flows().unwrap();
                let (local, remote) = ends(v6, PEER_PORT);
                flows.enter(local, remote, FlowState::Known);
                let frame = segment(v6, from, flags);
                let mut times: Vec<u128> = (0..7).map(|_| bench.time(&frame)).collect();
                times.sort_unstable();
                times[times.len() / 2]
            });
            println!("IPv{}, {what}: {times:?}", if v6 { 6 } else { 4 });
        }
    }
}
