use userspace_net::{Ecn, Endpoint, FourTuple, UdpPorts, checksum};
use userspace_tcp::{Flags, TcpHeader};

use super::*;

const A: [u8; 6] = [2, 0, 0, 0, 0, 1];
const B: [u8; 6] = [2, 0, 0, 0, 0, 2];

pub(crate) fn path(vlan: Option<u16>) -> Path {
    Path {
        src_mac: A,
        dst_mac: B,
        vlan,
        mtu: 1500,
        hop_limit: 64,
    }
}

pub(crate) fn tuple(v6: bool) -> FourTuple {
    let addr = |last: u8| -> IpAddr {
        if v6 {
            [0x2001, 0xdb8, 0, 0, 0, 0, 0, u16::from(last)].into()
        } else {
            [198, 18, 0, last].into()
        }
    };
    FourTuple {
        local: Endpoint::new(addr(1), 1000),
        remote: Endpoint::new(addr(2), 2000),
    }
}

/// A whole frame from `tuple.local` to `tuple.remote`.
fn frame(path: &Path, tuple: &FourTuple, payload: &[u8]) -> Vec<u8> {
    frame_with(path, tuple, Ecn::NotEct, payload)
}

pub(crate) fn frame_with(path: &Path, tuple: &FourTuple, ecn: Ecn, payload: &[u8]) -> Vec<u8> {
    let header = TcpHeader {
        source_port: tuple.local.port,
        destination_port: tuple.remote.port,
        flags: Flags::ACK,
        ..TcpHeader::default()
    };
    let mut out = vec![0; path.headers_len(tuple.remote.addr) + header.header_len()];
    let sum = checksum::sum(payload);
    let len = payload.len();
    write_segment(path, tuple, ecn, &header, Payload { len, sum }, &mut out).unwrap();
    out.extend_from_slice(payload);
    out
}

#[test]
fn what_is_emitted_parses_and_leads_back() {
    for v6 in [false, true] {
        for vlan in [None, Some(0x6064)] {
            let (path, tuple) = (path(vlan), tuple(v6));
            let frame = frame(&path, &tuple, b"hello");
            let received = parse(&frame, &PathDefaults::new(9000)).unwrap();
            assert_eq!(received.tuple.local, tuple.remote);
            assert_eq!(received.tuple.remote, tuple.local);
            assert_eq!(
                received.path,
                Path {
                    src_mac: B,
                    dst_mac: A,
                    vlan,
                    mtu: 9000,
                    hop_limit: 64,
                }
            );
            assert!(frame[received.data].ends_with(b"hello"));
        }
    }
}

#[test]
fn a_frame_in_parts_parses_as_the_whole_does_wherever_it_is_cut() {
    let defaults = PathDefaults::new(9000);
    for v6 in [false, true] {
        let (path, tuple) = (path(None), tuple(v6));
        let payload: Vec<u8> = (0..90).map(|at| at * 2 + 1).collect();
        let mut bytes = frame(&path, &tuple, &payload);
        let headers = bytes.len() - payload.len();
        // Ethernet padding is no part of the segment, whichever part it is in.
        bytes.extend([0xff; 3]);
        let whole = parse(&bytes, &defaults);
        assert!(whole.is_ok());
        for cut in headers..=bytes.len() {
            let (first, rest) = bytes.split_at(cut);
            for second in 0..=rest.len() {
                let (a, b) = rest.split_at(second);
                assert_eq!(
                    parse_parts(first, [a, b].into_iter(), &defaults, Checksum::Verify),
                    whole
                );
            }
            if let Some((_, short)) = rest.split_first().filter(|_| rest.len() > 3) {
                let found = parse_parts(first, [short].into_iter(), &defaults, Checksum::Verify);
                assert!(found.is_err(), "a byte is missing");
                let mut wrong = rest.to_vec();
                wrong[0] ^= 1;
                let found =
                    parse_parts(first, [&wrong[..]].into_iter(), &defaults, Checksum::Verify);
                assert_eq!(found, Err(DropReason::TcpChecksum));
            }
        }
        let (first, rest) = bytes.split_at(headers - 1);
        let found = parse_parts(first, [rest].into_iter(), &defaults, Checksum::Verify);
        assert_eq!(found, Err(DropReason::Truncated), "headers in two parts");
    }
}

/// What a kernel leaves to a device that computes checksums: the pseudo-header's sum is in the field.
#[test]
fn a_partial_checksum_is_taken_where_it_may_come_and_told_from_a_wrong_one() {
    let defaults = PathDefaults::new(9000);
    for v6 in [false, true] {
        let (path, tuple) = (path(None), tuple(v6));
        let payload = [0x5a; 91];
        let mut bytes = frame(&path, &tuple, &payload);
        let whole = parse(&bytes, &defaults).unwrap();
        let tcp = whole.data.start;
        let known = HeaderPrediction::of(&bytes, bytes.len() - payload.len()).unwrap();
        let says = |bytes: &[u8]| known.compare(bytes).unwrap().says;
        assert!(!known.has_partial_checksum(&bytes, &says(&bytes)));
        let (local, remote) = (whole.tuple.local.addr, whole.tuple.remote.addr);
        let pseudo = checksum::pseudo(remote, local, 6, whole.data.len()).folded();
        bytes[tcp + 16..tcp + 18].copy_from_slice(&pseudo.to_be_bytes());
        assert!(known.has_partial_checksum(&bytes, &says(&bytes)));
        assert_eq!(parse(&bytes, &defaults), Err(DropReason::TcpChecksum));
        let partial = Ok(Received {
            partial: true,
            ..whole
        });
        for cut in [bytes.len(), bytes.len() - 50] {
            let (first, rest) = bytes.split_at(cut);
            let rest = [rest].into_iter();
            let found = parse_parts(first, rest, &defaults, Checksum::VerifyOrPartial);
            assert_eq!(found, partial);
        }
        bytes[tcp + 16] ^= 1;
        for cut in [bytes.len(), bytes.len() - 50] {
            let (first, rest) = bytes.split_at(cut);
            let rest = [rest].into_iter();
            let found = parse_parts(first, rest, &defaults, Checksum::VerifyOrPartial);
            assert_eq!(found, Err(DropReason::TcpChecksum));
        }
        assert!(!known.has_partial_checksum(&bytes, &says(&bytes)));
    }
}

#[test]
fn packets_leave_with_the_hop_limit_of_their_path() {
    let defaults = PathDefaults {
        mtu: 1500,
        hop_limit_v4: 3,
        hop_limit_v6: 200,
    };
    for (v6, at, hop_limit) in [(false, 22, 3), (true, 21, 200)] {
        let back = parse(&frame(&path(None), &tuple(v6), b"x"), &defaults).unwrap();
        assert_eq!(back.path.hop_limit, hop_limit, "v6: {v6}");
        let answer = frame(&back.path, &back.tuple, b"x");
        assert_eq!(answer[at], hop_limit, "v6: {v6}");
        assert!(parse(&answer, &defaults).is_ok());
    }
}

#[test]
fn the_ecn_field_goes_and_comes_and_touches_nothing_else() {
    for v6 in [false, true] {
        let plain = frame(&path(None), &tuple(v6), b"hello");
        for ecn in [Ecn::NotEct, Ecn::Ect1, Ecn::Ect0, Ecn::Ce] {
            let frame = frame_with(&path(None), &tuple(v6), ecn, b"hello");
            let received = parse(&frame, &PathDefaults::new(1500)).unwrap();
            assert_eq!(received.ecn, ecn);
            let differ = |at: &usize| frame[*at] != plain[*at];
            // TOS or traffic class, and the header checksum of IPv4.
            let all: Vec<usize> = (0..frame.len()).filter(differ).collect();
            let allowed: &[usize] = if v6 { &[15] } else { &[15, 24, 25] };
            assert!(all.iter().all(|at| allowed.contains(at)), "{all:?}");
        }
    }
}

#[test]
fn ethernet_padding_is_no_part_of_the_segment() {
    let mut frame = frame(&path(None), &tuple(false), b"x");
    let end = frame.len();
    frame.resize(64, 0);
    assert_eq!(
        parse(&frame, &PathDefaults::new(1500)).unwrap().data.end,
        end
    );
}

#[test]
fn every_cut_and_every_flipped_bit_is_refused_or_harmless() {
    for v6 in [false, true] {
        let whole = frame(&path(Some(5)), &tuple(v6), b"some payload");
        for len in 0..whole.len() {
            assert_eq!(
                parse(&whole[..len], &PathDefaults::new(1500)),
                Err(DropReason::Truncated),
                "{len} bytes"
            );
        }
        for bit in 0..whole.len() * 8 {
            let mut broken = whole.clone();
            broken[bit / 8] ^= 1 << (bit % 8);
            // Flow label, traffic class and hop limit of IPv6 and the link layer are covered by no
            // checksum; everything that matters to TCP is.
            if let Ok(received) = parse(&broken, &PathDefaults::new(1500)) {
                let segment = |frame: &[u8]| frame[frame.len() - 32..].to_vec();
                assert_eq!(segment(&broken), segment(&whole), "bit {bit}");
                assert_eq!(received.tuple.remote, tuple(v6).local);
            }
        }
    }
}

#[test]
fn fragments_are_left_to_the_kernel() {
    for field in [0x2000_u16, 0x0001, 0x1fff] {
        let mut frame = frame(&path(None), &tuple(false), b"x");
        frame[20..22].copy_from_slice(&field.to_be_bytes());
        frame[24..26].fill(0);
        let sum = checksum::fold(checksum::sum(&frame[14..34]));
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
        assert_eq!(
            parse(&frame, &PathDefaults::new(1500)),
            Err(DropReason::Fragment)
        );
    }
}

#[test]
fn group_addresses_have_no_connections() {
    let mut to_group = frame(&path(None), &tuple(false), b"x");
    to_group[0] |= 1;
    assert_eq!(
        parse(&to_group, &PathDefaults::new(1500)),
        Err(DropReason::GroupAddress)
    );
    let mut tuple = tuple(false);
    tuple.local.addr = [224, 0, 0, 1].into();
    assert_eq!(
        parse(&frame(&path(None), &tuple, b"x"), &PathDefaults::new(1500)),
        Err(DropReason::GroupAddress)
    );
}

#[test]
fn other_protocols_are_not_ours() {
    let mut arp = frame(&path(None), &tuple(false), b"x");
    arp[12..14].copy_from_slice(&[0x08, 0x06]);
    assert_eq!(
        parse(&arp, &PathDefaults::new(1500)),
        Err(DropReason::NotIp)
    );
    let mut esp = frame(&path(None), &tuple(true), b"x");
    esp[20] = 50;
    assert_eq!(
        parse(&esp, &PathDefaults::new(1500)),
        Err(DropReason::OtherProtocol)
    );
}

#[test]
fn emit_refuses_what_no_ip_packet_can_be() {
    let mut out = [0; 64];
    let mut try_emit = |tuple: FourTuple, segment_len, room: usize| {
        let ends = (tuple.local.addr, tuple.remote.addr);
        let out = &mut out[..room];
        let what = (Protocol::Tcp, segment_len);
        emit(&path(None), ends, what, Ecn::NotEct, out)
    };
    assert_eq!(try_emit(tuple(false), 20, 34), Some(34));
    assert_eq!(try_emit(tuple(false), 65_535, 64), None);
    assert_eq!(try_emit(tuple(false), 20, 33), None);
    let mut mixed = tuple(false);
    mixed.local = tuple(true).local;
    assert_eq!(try_emit(mixed, 20, 64), None);
}

#[test]
fn an_sctp_packet_is_told_from_a_segment_and_its_checksum_left_to_sctp() {
    for v6 in [false, true] {
        let tuple = tuple(v6);
        let packet: Vec<u8> = [
            tuple.local.port.to_be_bytes(),
            tuple.remote.port.to_be_bytes(),
        ]
        .concat()
        .into_iter()
        .chain([0; 8])
        .collect();
        let path = path(Some(7));
        let mut frame = vec![0; path.headers_len(tuple.remote.addr)];
        let what = (Protocol::Sctp, packet.len());
        let ends = (tuple.local.addr, tuple.remote.addr);
        emit(&path, ends, what, Ecn::NotEct, &mut frame).unwrap();
        frame.extend(&packet);
        let received = parse(&frame, &PathDefaults::new(1500)).unwrap();
        assert_eq!(received.protocol, Protocol::Sctp);
        assert_eq!(received.tuple, FourTuple::new(tuple.remote, tuple.local));
        assert_eq!(frame[received.data], packet);
        let flow = flow(&frame, frame.len()).unwrap();
        assert_eq!(flow.protocol, Protocol::Sctp);
        assert_eq!(flow.ports, Some((tuple.local.port, tuple.remote.port)));
        // One byte less is no SCTP packet.
        let at = if v6 { 18 + 5 } else { 18 + 3 };
        frame[at] -= 1;
        frame.pop();
        let error = parse(&frame, &PathDefaults::new(1500));
        let expected = if v6 {
            DropReason::Truncated
        } else {
            DropReason::IpChecksum
        };
        assert_eq!(error, Err(expected));
    }
}

/// An SCTP packet from `tuple.local`, in UDP.
fn in_udp(tuple: &FourTuple, ports: UdpPorts, packet: &[u8]) -> Vec<u8> {
    let path = path(None);
    let ends = (tuple.local.addr, tuple.remote.addr);
    let before = path.headers_len(ends.1);
    let mut frame = [&vec![0; before + UDP_HEADER][..], packet].concat();
    write_udp(ends, ports, &mut frame[before..]).unwrap();
    let what = (Protocol::Udp, frame.len() - before);
    emit(&path, ends, what, Ecn::NotEct, &mut frame).unwrap();
    frame
}

const UDP_PORTS: UdpPorts = UdpPorts {
    source: 9899,
    destination: 40_000,
};

fn sctp_packet(tuple: &FourTuple, rest: &[u8]) -> Vec<u8> {
    let ports = [tuple.local.port, tuple.remote.port].map(u16::to_be_bytes);
    [&ports.concat()[..], &[0; 8], rest].concat()
}

#[test]
fn an_sctp_packet_in_udp_is_found_by_its_own_ports() {
    for v6 in [false, true] {
        let tuple = tuple(v6);
        for rest in [0, 1, 1000] {
            let packet = sctp_packet(&tuple, &vec![7; rest]);
            let frame = in_udp(&tuple, UDP_PORTS, &packet);
            let sliced = etherparse::SlicedPacket::from_ethernet(&frame).unwrap();
            let Some(etherparse::TransportSlice::Udp(udp)) = sliced.transport else {
                panic!("{sliced:?}");
            };
            assert_eq!((udp.source_port(), udp.destination_port()), (9899, 40_000));
            let received = parse(&frame, &PathDefaults::new(1500)).unwrap();
            assert_eq!(received.protocol, Protocol::Sctp);
            assert_eq!(received.udp, Some(UDP_PORTS));
            assert_eq!(received.tuple, FourTuple::new(tuple.remote, tuple.local));
            assert_eq!(frame[received.data], packet);
            let flow = flow(&frame, frame.len()).unwrap();
            assert_eq!(flow.protocol, Protocol::Sctp);
            assert_eq!(flow.ports, Some((tuple.local.port, tuple.remote.port)));
        }
    }
}

#[test]
fn damage_in_udp_is_found_and_ipv4_alone_may_go_without_a_checksum() {
    for v6 in [false, true] {
        let tuple = tuple(v6);
        let whole = in_udp(&tuple, UDP_PORTS, &sctp_packet(&tuple, b"data"));
        let udp = path(None).headers_len(tuple.remote.addr);
        let parsed = |change: &dyn Fn(&mut Vec<u8>)| {
            let mut frame = whole.clone();
            change(&mut frame);
            parse(&frame, &PathDefaults::new(1500)).map(|received| received.udp)
        };
        for at in [udp, udp + 3, udp + 6, udp + UDP_HEADER, whole.len() - 1] {
            let damaged = parsed(&|frame| frame[at] ^= 0x10);
            assert_eq!(damaged, Err(DropReason::UdpChecksum), "byte {at}");
        }
        let none = parsed(&|frame| frame[udp + 6..udp + 8].fill(0));
        let expected = match v6 {
            false => Ok(Some(UDP_PORTS)),
            true => Err(DropReason::UdpChecksum),
        };
        assert_eq!(none, expected);
        for len in [0, 7, 8, 23, 25, u16::MAX] {
            let wrong =
                parsed(&|frame| frame[udp + 4..udp + 6].copy_from_slice(&len.to_be_bytes()));
            assert_eq!(wrong, Err(DropReason::Truncated), "{len}");
        }
    }
}

#[test]
fn where_the_kernel_has_seen_the_checksum_udp_may_go_without_over_both_families() {
    for v6 in [false, true] {
        let tuple = tuple(v6);
        let mut frame = in_udp(&tuple, UDP_PORTS, &sctp_packet(&tuple, b"data"));
        let udp = path(None).headers_len(tuple.remote.addr);
        frame[udp + 6..udp + 8].fill(0);
        let defaults = PathDefaults::new(1500);
        let parsed = |how| parse_parts(&frame, std::iter::empty(), &defaults, how);
        assert!(parsed(Checksum::Unnecessary).is_ok());
        assert_eq!(parsed(Checksum::Verify).is_ok(), !v6);
    }
}

/// RFC 768: a computed checksum of zero is sent as all ones.
#[test]
fn a_udp_checksum_is_never_zero() {
    let tuple = tuple(false);
    let checksum = |word: u16| {
        let packet = sctp_packet(&tuple, &word.to_be_bytes());
        let frame = in_udp(&tuple, UDP_PORTS, &packet);
        let at = path(None).headers_len(tuple.remote.addr) + 6;
        u16::from_be_bytes([frame[at], frame[at + 1]])
    };
    // The word that has the sum be what gives zero.
    let word = checksum(0);
    assert_eq!(checksum(word), u16::MAX);
}

/// An IPv4 frame whose header has these options.
fn with_options(options: &[u8]) -> Vec<u8> {
    let mut bytes = frame(&path(None), &tuple(false), b"x");
    let at = ETHERNET_HEADER;
    let words = options.len().div_ceil(4);
    let mut padded = options.to_vec();
    padded.resize(4 * words, 0);
    bytes.splice(at + IPV4_HEADER..at + IPV4_HEADER, padded);
    bytes[at] += words as u8;
    let total = u16::from_be_bytes([bytes[at + 2], bytes[at + 3]]) + 4 * words as u16;
    bytes[at + 2..at + 4].copy_from_slice(&total.to_be_bytes());
    bytes[at + 10..at + 12].fill(0);
    let sum = !checksum::sum(&bytes[at..at + IPV4_HEADER + 4 * words]).folded();
    bytes[at + 10..at + 12].copy_from_slice(&sum.to_be_bytes());
    bytes
}

#[test]
fn a_packet_with_a_source_route_is_dropped_and_other_options_are_not_looked_at() {
    let defaults = PathDefaults::new(1500);
    let of = |options: &[u8]| parse(&with_options(options), &defaults).map(drop);
    let record_route = [7, 7, 4, 0, 0, 0, 0];
    for route in [131, 137] {
        let route = [route, 7, 4, 198, 18, 0, 1];
        for before in [&[][..], &[1, 1, 1], &[148, 4, 0, 0], &record_route] {
            let options = [before, &route].concat();
            assert_eq!(of(&options), Err(DropReason::SourceRoute), "{options:?}");
        }
    }
    let others: [&[u8]; 6] = [
        &[],
        &[1; 40],
        &record_route,
        // After the end of options, and after one that has no length.
        &[1, 0, 131, 7],
        &[7, 1, 131, 7],
        &[7, 60, 4, 0],
    ];
    for options in others {
        assert_eq!(of(options), Ok(()), "{options:?}");
    }
}
