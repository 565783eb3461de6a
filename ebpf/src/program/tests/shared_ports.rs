//! Ports that several addresses have claimed: whichever way a claim is found, the same is taken.

use std::collections::HashSet;

use super::*;

/// The local address of the test's frames that ends so.
fn address(v6: bool, last: u8) -> IpAddr {
    if v6 {
        let mut bytes = OURS_V6;
        bytes[15] = last;
        bytes.into()
    } else {
        let [a, b, c, _] = OURS_V4;
        [a, b, c, last].into()
    }
}

fn frame_to(to: IpAddr, port: u16) -> Vec<u8> {
    let (frame, at, tcp) = match to {
        IpAddr::V4(_) => (tcp_v4(), ETHERNET + 16, ETHERNET + IPV4),
        IpAddr::V6(_) => (tcp_v6(), ETHERNET + 24, ETHERNET + IPV6),
    };
    with(frame, |frame| {
        match to {
            IpAddr::V4(to) => frame[at..at + 4].copy_from_slice(&to.octets()),
            IpAddr::V6(to) => frame[at..at + 16].copy_from_slice(&to.octets()),
        }
        set_u16(frame, tcp + 2, port);
    })
}

/// The next of a fixed row of numbers (xorshift).
fn next(state: &mut u32) -> u32 {
    *state ^= *state << 13;
    *state ^= *state >> 17;
    *state ^= *state << 5;
    *state
}

#[test]
fn whatever_is_claimed_and_released_exactly_the_claimed_is_taken() {
    let triples: Vec<(IpAddr, u16)> = [false, true]
        .into_iter()
        .flat_map(|v6| (1..=3).map(move |last| address(v6, last)))
        .flat_map(|address| [1, PORT, 0xffff].map(|port| (address, port)))
        .collect();
    for variant in [Variant::Frags, Variant::Plain] {
        let mut bench = Bench::new(variant);
        let mut claimed =
            HashSet::from([(IpAddr::from(OURS_V4), PORT), (IpAddr::from(OURS_V6), PORT)]);
        let mut state = 1;
        for step in 0..300 {
            let random = next(&mut state);
            let triple = triples[random as usize % triples.len()];
            let (address, port) = triple;
            if random & 0x10000 == 0 {
                bench.program.claim(Protocol::Tcp, address, port).unwrap();
                claimed.insert(triple);
            } else {
                bench.program.release(Protocol::Tcp, address, port).unwrap();
                claimed.remove(&triple);
            }
            for triple in &triples {
                let expected = if claimed.contains(triple) {
                    "redirected"
                } else {
                    "pass_not_claimed"
                };
                let frame = frame_to(triple.0, triple.1);
                assert_eq!(bench.run(&frame), expected, "step {step}, {triple:?}");
            }
        }
    }
}

#[test]
fn no_address_at_all_is_not_taken_for_a_place_without_a_claim() {
    let mut bench = Bench::new(Variant::Frags);
    for to in ["0.0.0.0", "::"] {
        for port in [0, 1, PORT, PORT + 1] {
            let frame = frame_to(to.parse().unwrap(), port);
            assert_eq!(bench.run(&frame), "pass_not_claimed", "{to} port {port}");
        }
    }
}

#[test]
fn parts_of_a_claimed_address_are_not_enough() {
    let mut bench = Bench::new(Variant::Frags);
    for at in 0..16 {
        let mut v6 = OURS_V6;
        v6[at] ^= 0x10;
        assert_eq!(
            bench.run(&frame_to(v6.into(), PORT)),
            "pass_not_claimed",
            "byte {at}"
        );
    }
    for at in 0..4 {
        let mut v4 = OURS_V4;
        v4[at] ^= 0x10;
        assert_eq!(
            bench.run(&frame_to(v4.into(), PORT)),
            "pass_not_claimed",
            "byte {at}"
        );
    }
}
