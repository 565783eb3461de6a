//! SCTP beside TCP: its own claims, its fragments, and its INITs, which are limited as SYNs are.

use super::*;
use crate::Rate;

const SCTP: u8 = 132;
pub(super) const INIT: u8 = 1;
pub(super) const SACK: u8 = 3;

/// A packet with one chunk of this type.
pub(super) fn packet(v6: bool, chunk: u8) -> Vec<u8> {
    let mut sctp = Vec::new();
    sctp.extend(PEER_PORT.to_be_bytes());
    sctp.extend(PORT.to_be_bytes());
    sctp.extend([0; 8]);
    sctp.extend([chunk, 0, 0, 20]);
    sctp.extend([0; 16]);
    let builder = PacketBuilder::ethernet2(PEER_MAC, MAC);
    let mut frame = Vec::new();
    let number = etherparse::IpNumber(SCTP);
    match v6 {
        false => builder
            .ipv4(PEER_V4, OURS_V4, 64)
            .write(&mut frame, number, &sctp)
            .unwrap(),
        true => builder
            .ipv6(PEER_V6, OURS_V6, 64)
            .write(&mut frame, number, &sctp)
            .unwrap(),
    }
    frame
}

/// What is left of a packet whose IP header has only so many bytes behind it.
pub(super) fn cut(mut frame: Vec<u8>, v6: bool, len: usize) -> Vec<u8> {
    let (header, at, length) = match v6 {
        false => (IPV4, ETHERNET + 2, IPV4 + len),
        true => (IPV6, ETHERNET + 4, len),
    };
    frame.truncate(ETHERNET + header + len);
    set_u16(&mut frame, at, length as u16);
    frame
}

fn bench(limits: &FloodLimits) -> Bench {
    let mut bench = Bench::limited(Variant::Frags, limits);
    for address in [OURS_V4.into(), OURS_V6.into()] {
        let program = &mut bench.program;
        program.claim(Protocol::Sctp, address, PORT).unwrap();
    }
    bench
}

#[test]
fn packets_to_what_is_claimed_for_sctp_are_taken_and_no_others() {
    let mut only_tcp = Bench::new(Variant::Frags);
    for v6 in [false, true] {
        assert_eq!(only_tcp.run(&packet(v6, SACK)), "pass_not_claimed");
    }
    let mut bench = bench(&FloodLimits::NONE);
    for v6 in [false, true] {
        for frame in [packet(v6, SACK), tagged(packet(v6, INIT), &[0x8100])] {
            assert_eq!(bench.run(&frame), "redirected");
        }
    }
    bench
        .program
        .release(Protocol::Sctp, OURS_V4.into(), PORT)
        .unwrap();
    assert_eq!(bench.run(&packet(false, SACK)), "pass_not_claimed");
    assert_eq!(bench.run(&packet(true, SACK)), "redirected");
    assert_eq!(bench.run(&tcp_v4()), "redirected", "TCP's claim stays");
}

#[test]
fn a_packet_that_ends_in_its_header_passes() {
    let mut bench = bench(&FloodLimits::NONE);
    for v6 in [false, true] {
        for len in [0, 11, 12] {
            let frame = cut(packet(v6, SACK), v6, len);
            assert_eq!(bench.run(&frame), "pass_malformed", "{len} bytes");
        }
    }
}

#[test]
fn later_fragments_go_where_the_first_of_their_packet_went() {
    let mut bench = bench(&FloodLimits::NONE);
    let part = |offset: u16| {
        with(packet(false, SACK), |frame| {
            set_u16(frame, ETHERNET + 4, 77);
            set_u16(
                frame,
                ETHERNET + 6,
                if offset == 0 { 0x2000 } else { offset },
            );
        })
    };
    assert_eq!(bench.run(&part(4)), "pass_fragment", "before the first");
    assert_eq!(bench.run(&part(0)), "redirected_fragment");
    assert_eq!(bench.run(&part(4)), "redirected_fragment");
    let of_tcp = with(part(4), |frame| frame[ETHERNET + 9] = 6);
    assert_eq!(bench.run(&of_tcp), "pass_fragment", "another protocol's");
}

#[test]
fn inits_are_limited_as_syns_are_and_other_packets_of_strangers_apart() {
    let limits = FloodLimits {
        syns: Rate {
            burst: 2,
            // None comes back during a test.
            sharers: 1_000_000,
            ..Rate::of(1)
        },
        ..FloodLimits::NONE
    };
    let mut bench = bench(&limits);
    let mut found = Vec::new();
    for _ in 0..4 {
        found.push(bench.run(&packet(false, INIT)));
    }
    assert_eq!(found, ["redirected", "redirected", "drop_syn", "drop_syn"]);
    assert_eq!(bench.run(&packet(false, SACK)), "redirected");
}
