//! Strangers are limited by kind; flows that are known are not.

use std::time::{Duration, Instant};

use super::fragments::fragment;
use super::*;
use crate::flood::{FlowState, Rate};

const BURST: u32 = 4;

/// So slow that no token comes back during a test.
const SLOW: Rate = Rate {
    per_second: 1,
    burst: BURST,
};

fn limits(kind: &str) -> FloodLimits {
    let mut limits = FloodLimits::NONE;
    match kind {
        "syn" => limits.syns = SLOW,
        "stranger" => limits.strangers = SLOW,
        _ => limits.fragments = SLOW,
    }
    limits
}

fn limits_of_all() -> FloodLimits {
    FloodLimits {
        syns: SLOW,
        strangers: SLOW,
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
fn strangers_of_a_kind_are_dropped_when_there_are_too_many() {
    for variant in [Variant::Frags, Variant::Plain] {
        for v6 in [false, true] {
            for (kind, flags) in [
                ("syn", SYN),
                ("stranger", ACK),
                ("stranger", RST),
                ("stranger", PSH_ACK),
                ("stranger", SYN | ACK),
                ("stranger", 0),
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
                taken_before(&mut bench, next, "drop_stranger");
                flows.leave(local, remote, FlowState::Known);
            }
        }
    }
}

#[test]
fn a_flow_that_was_entered_twice_is_known_until_it_was_left_twice() {
    let mut bench = Bench::limited(Variant::Frags, &limits("stranger"));
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
    taken_before(&mut bench, next, "drop_stranger");
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
            taken_before(&mut bench, next, "drop_stranger");
            // Then its own bucket is empty as well.
            let answer = |_| segment(v6, PEER_PORT, PSH_ACK);
            let taken = taken_before(&mut bench, answer, "drop_stranger");
            assert!(taken >= BURST, "{taken} were taken");
            taken_before(&mut bench, |_| segment(v6, PEER_PORT, SYN), "drop_syn");
            // Nor has it one when it is over: the bench may have moved to another processor, with full buckets.
            flows.leave(local, remote, FlowState::HalfOpen);
            taken_before(&mut bench, answer, "drop_stranger");
            flows.enter(local, remote, FlowState::Known);
            for _ in 0..400 {
                assert_eq!(bench.run(&answer(0)), "redirected");
            }
        }
    }
}

#[test]
fn what_was_dropped_is_taken_when_it_comes_again_as_a_tcp_sends_it() {
    for v6 in [false, true] {
        for (kind, flags) in [("syn", SYN), ("stranger", PSH_ACK)] {
            let mut bench = Bench::limited(Variant::Frags, &limits(kind));
            let drop = format!("drop_{kind}");
            let next = |n| segment(v6, 1000 + n as u16, flags);
            let dropped = 1000 + taken_before(&mut bench, next, &drop) as u16;
            let patient = segment(v6, 30_000, flags);
            taken_before(&mut bench, |_| patient.clone(), &drop);
            let mut at = Instant::now();
            // Sooner than any TCP: and each time it begins anew.
            for _ in 0..5 {
                std::thread::sleep(Duration::from_millis(200));
                let verdict = bench.run(&segment(v6, dropped, flags));
                // On a busy machine the sleep may be longer than the least time.
                if at.elapsed() < Duration::from_millis(600) && verdict != "redirected" {
                    assert_eq!(verdict, drop);
                }
                at = Instant::now();
            }
            taken_before(&mut bench, |n| segment(v6, 20_000 + n as u16, flags), &drop);
            assert_eq!(bench.run(&patient), "redirected", "{kind}");
            if kind == "syn" {
                // Such a SYN has to be away for longer than others.
                std::thread::sleep(Duration::from_millis(1000));
                // A token has come back.
                taken_before(&mut bench, |n| segment(v6, 50_000 + n as u16, flags), &drop);
                if at.elapsed() < Duration::from_millis(2800) {
                    assert_eq!(bench.run(&segment(v6, dropped, flags)), drop);
                }
                std::thread::sleep(Duration::from_millis(2200));
            }
            std::thread::sleep(Duration::from_millis(1000));
            taken_before(&mut bench, |n| segment(v6, 40_000 + n as u16, flags), &drop);
            assert_eq!(
                bench.run(&segment(v6, dropped, flags)),
                "redirected",
                "{kind}"
            );
            // A stranger that comes for the first time is still kept out.
            let next = |n| segment(v6, 60_000 + n as u16, flags);
            taken_before(&mut bench, next, &drop);
        }
    }
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
            ("stranger's segment, dropped", ACK, PEER_PORT + 1),
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
