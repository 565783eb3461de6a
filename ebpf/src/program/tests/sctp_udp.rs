//! SCTP in UDP (RFC 6951): the claim is the SCTP packet's, and the UDP port one for all.

use super::sctp::{INIT, SACK, cut, packet};
use super::*;
use crate::{FloodLimits, Rate};

const UDP_PORT: u16 = 9899;
/// Bytes of a UDP header.
const UDP: usize = 8;

/// The same packet in UDP to this port.
fn in_udp(v6: bool, chunk: u8, port: u16) -> Vec<u8> {
    with(packet(v6, chunk), |frame| {
        let (headers, protocol, length) = match v6 {
            false => (ETHERNET + IPV4, ETHERNET + 9, ETHERNET + 2),
            true => (ETHERNET + IPV6, ETHERNET + 6, ETHERNET + 4),
        };
        let len = (frame.len() - headers + UDP) as u16;
        frame[protocol] = 17;
        let before = u16::from_be_bytes([frame[length], frame[length + 1]]);
        set_u16(frame, length, before + UDP as u16);
        let words = [40_000, port, len, 0];
        let header = words.into_iter().flat_map(u16::to_be_bytes);
        frame.splice(headers..headers, header);
    })
}

fn bench(limits: &FloodLimits) -> Bench {
    let config = SteeringConfig {
        limits: *limits,
        sctp_udp_port: Some(UDP_PORT),
    };
    let mut bench = Bench::with(Variant::Frags, &config);
    for address in [OURS_V4.into(), OURS_V6.into()] {
        let program = &mut bench.program;
        program.claim(Protocol::Sctp, address, PORT).unwrap();
    }
    bench
}

#[test]
fn what_is_claimed_for_sctp_is_taken_from_its_udp_port_and_no_other() {
    let mut bench = bench(&FloodLimits::NONE);
    for v6 in [false, true] {
        for chunk in [SACK, INIT] {
            let taken = in_udp(v6, chunk, UDP_PORT);
            assert_eq!(bench.run(&taken), "redirected");
            assert_eq!(bench.run(&tagged(taken, &[0x8100])), "redirected");
            assert_eq!(bench.run(&packet(v6, chunk)), "redirected", "without UDP");
            let other = in_udp(v6, chunk, UDP_PORT + 1);
            assert_eq!(bench.run(&other), "pass_other_protocol");
        }
    }
    let program = &mut bench.program;
    program
        .release(Protocol::Sctp, OURS_V4.into(), PORT)
        .unwrap();
    let released = in_udp(false, SACK, UDP_PORT);
    assert_eq!(bench.run(&released), "pass_not_claimed");
}

#[test]
fn without_a_port_for_it_all_udp_passes() {
    let mut bench = Bench::new(Variant::Frags);
    let claimed = bench.program.claim(Protocol::Sctp, OURS_V4.into(), PORT);
    claimed.unwrap();
    for port in [0, UDP_PORT] {
        let frame = in_udp(false, SACK, port);
        assert_eq!(bench.run(&frame), "pass_other_protocol");
    }
}

#[test]
fn a_packet_that_ends_in_one_of_its_headers_passes() {
    let mut bench = bench(&FloodLimits::NONE);
    for v6 in [false, true] {
        for len in [0, UDP - 1, UDP, UDP + 11, UDP + 12] {
            let frame = cut(in_udp(v6, SACK, UDP_PORT), v6, len);
            assert_eq!(bench.run(&frame), "pass_malformed", "{len} bytes");
        }
    }
}

#[test]
fn later_fragments_go_where_the_first_of_their_packet_went() {
    let mut bench = bench(&FloodLimits::NONE);
    let part = |offset: u16, port| {
        with(in_udp(false, SACK, port), |frame| {
            set_u16(frame, ETHERNET + 4, port);
            let field = if offset == 0 { 0x2000 } else { offset };
            set_u16(frame, ETHERNET + 6, field);
        })
    };
    assert_eq!(bench.run(&part(4, UDP_PORT)), "pass_fragment", "too early");
    for _ in 0..2 {
        assert_eq!(bench.run(&part(0, UDP_PORT)), "redirected_fragment");
        assert_eq!(bench.run(&part(4, UDP_PORT)), "redirected_fragment");
        let other = UDP_PORT + 1;
        assert_eq!(bench.run(&part(0, other)), "pass_fragment");
        assert_eq!(bench.run(&part(4, other)), "pass_fragment");
    }
}

#[test]
fn inits_in_udp_are_limited_as_others_are() {
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
    let init = in_udp(false, INIT, UDP_PORT);
    let found = [(); 3].map(|()| bench.run(&init));
    assert_eq!(found, ["redirected", "redirected", "drop_syn"]);
    let plain = bench.run(&packet(false, INIT));
    assert_eq!(plain, "drop_syn", "one budget for both");
}

/// The filters of ICMP errors look through UDP, too.
#[test]
fn errors_that_quote_a_claimed_packet_in_udp_are_taken() {
    let mut bench = bench(&FloodLimits::NONE);
    for v6 in [false, true] {
        let header = if v6 { IPV6 } else { IPV4 };
        let sent = |source: u16, port: u16| {
            let mut packet = in_udp(v6, SACK, 40_000).split_off(ETHERNET);
            let (from, to) = match v6 {
                false => (12..16, 16..20),
                true => (8..24, 24..40),
            };
            let (ours, theirs) = (packet[to.clone()].to_vec(), packet[from.clone()].to_vec());
            packet[from].copy_from_slice(&ours);
            packet[to].copy_from_slice(&theirs);
            set_u16(&mut packet, header, source);
            set_u16(&mut packet, header + UDP, port);
            packet
        };
        for (packet, taken) in [
            (sent(UDP_PORT, PORT), true),
            (sent(UDP_PORT + 1, PORT), false),
            (sent(UDP_PORT, PORT + 1), false),
        ] {
            let kept = icmp::keep(&mut bench, icmp::version(v6), &icmp::error(v6, 3, &packet));
            assert_eq!(kept, taken, "v6 {v6}");
        }
        // The UDP header alone, as routers quote who keep to RFC 792: it does not say whose it was.
        let mut short = sent(UDP_PORT, PORT);
        short.truncate(header + UDP);
        assert!(!icmp::keep(
            &mut bench,
            icmp::version(v6),
            &icmp::error(v6, 3, &short)
        ));
    }
}
