//! Fragments: the first decides for those of the same packet that come later.

use super::*;

const ID: u32 = 0x1234;

/// A fragment from offset `offset` of a packet with identification `id`; `last` or not.
pub(super) fn fragment(v6: bool, id: u32, offset: u16, last: bool) -> Vec<u8> {
    if v6 {
        with(with_extension(44), |frame| {
            let at = ETHERNET + IPV6;
            set_u16(frame, at + 2, offset | u16::from(!last));
            frame[at + 4..at + 8].copy_from_slice(&id.to_be_bytes());
        })
    } else {
        with(tcp_v4(), |frame| {
            set_u16(frame, ETHERNET + 4, id as u16);
            let more = if last { 0 } else { 0x2000 };
            set_u16(frame, ETHERNET + 6, (offset / 8) | more);
        })
    }
}

/// Where TCP begins in a first fragment.
fn tcp_at(v6: bool) -> usize {
    ETHERNET + if v6 { IPV6 + 8 } else { IPV4 }
}

fn to_port(frame: Vec<u8>, v6: bool, port: u16) -> Vec<u8> {
    with(frame, |frame| set_u16(frame, tcp_at(v6) + 2, port))
}

#[test]
fn later_fragments_go_where_the_first_one_went() {
    for variant in [Variant::Frags, Variant::Plain] {
        for v6 in [false, true] {
            let mut bench = Bench::new(variant);
            assert_eq!(bench.run(&fragment(v6, ID, 24, true)), "pass_fragment");
            let first = fragment(v6, ID, 0, false);
            assert_eq!(bench.run(&first), "redirected_fragment");
            // Whatever the bytes are at the place of the port.
            let middle = to_port(fragment(v6, ID, 8, false), v6, PORT + 1);
            assert_eq!(bench.run(&middle), "redirected_fragment");
            assert_eq!(
                bench.run(&fragment(v6, ID, 24, true)),
                "redirected_fragment"
            );
            // Late ones too: fragments overtake each other.
            assert_eq!(
                bench.run(&fragment(v6, ID, 16, false)),
                "redirected_fragment"
            );
        }
    }
}

#[test]
fn fragments_of_another_packet_pass() {
    for v6 in [false, true] {
        let mut bench = Bench::new(Variant::Frags);
        assert_eq!(
            bench.run(&fragment(v6, ID, 0, false)),
            "redirected_fragment"
        );
        assert_eq!(bench.run(&fragment(v6, ID + 1, 8, true)), "pass_fragment");
        let (source, destination) = if v6 { (23, 39) } else { (15, 19) };
        for at in [source, destination] {
            let other = with(fragment(v6, ID, 8, true), |f| f[ETHERNET + at] ^= 0x40);
            assert_eq!(bench.run(&other), "pass_fragment", "address byte {at}");
        }
        let protocol = if v6 { IPV6 } else { 9 };
        let other = with(fragment(v6, ID, 8, true), |f| f[ETHERNET + protocol] = 17);
        assert_eq!(bench.run(&other), "pass_fragment", "protocol");
        assert_eq!(
            bench.run(&fragment(!v6, ID, 8, true)),
            "pass_fragment",
            "version"
        );
    }
}

#[test]
fn an_identification_used_again_by_a_packet_of_the_kernel_passes() {
    for v6 in [false, true] {
        let mut bench = Bench::new(Variant::Frags);
        let ours = fragment(v6, ID, 0, false);
        assert_eq!(bench.run(&ours), "redirected_fragment");
        let theirs = to_port(ours.clone(), v6, PORT + 1);
        assert_eq!(bench.run(&theirs), "pass_fragment");
        assert_eq!(bench.run(&fragment(v6, ID, 8, true)), "pass_fragment");
        assert_eq!(bench.run(&ours), "redirected_fragment");
        assert_eq!(bench.run(&fragment(v6, ID, 8, true)), "redirected_fragment");
    }
}

#[test]
fn a_first_fragment_without_a_whole_tcp_header_passes_with_its_packet() {
    for v6 in [false, true] {
        let mut bench = Bench::new(Variant::Frags);
        assert_eq!(
            bench.run(&fragment(v6, ID, 0, false)),
            "redirected_fragment"
        );
        let short = with(fragment(v6, ID, 0, false), |f| {
            let cut = tcp_at(v6) + 16 - ETHERNET;
            let length = if v6 { cut - IPV6 } else { cut };
            set_u16(f, ETHERNET + if v6 { 4 } else { 2 }, length as u16);
            f.truncate(ETHERNET + cut);
        });
        assert_eq!(bench.run(&short), "pass_fragment");
        assert_eq!(bench.run(&fragment(v6, ID, 8, true)), "pass_fragment");
    }
}

#[test]
fn the_oldest_packets_are_forgotten_when_there_are_too_many() {
    let mut bench = Bench::new(Variant::Frags);
    for id in 0..20_000 {
        assert_eq!(
            bench.run(&fragment(true, id, 0, false)),
            "redirected_fragment"
        );
    }
    assert_eq!(bench.run(&fragment(true, 0, 8, true)), "pass_fragment");
    assert_eq!(
        bench.run(&fragment(true, 19_999, 8, true)),
        "redirected_fragment"
    );
}
