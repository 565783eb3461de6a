use etherparse::icmpv4::{self, DestUnreachableHeader};
use etherparse::icmpv6::{self, DestUnreachableCode};
use etherparse::{
    Icmpv4Type, Icmpv6Type, IpFragOffset, IpNumber, Ipv6FragmentHeader, PacketBuilder, TcpHeader,
};
use proptest::prelude::*;

use super::*;

const OURS_V4: [u8; 4] = [198, 18, 0, 1];
const PEER_V4: [u8; 4] = [198, 18, 1, 1];
const ROUTER_V4: [u8; 4] = [198, 18, 0, 254];
const OURS_V6: [u8; 16] = [0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
const PEER_V6: [u8; 16] = [0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2];
const ROUTER_V6: [u8; 16] = [0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3];

fn segment() -> TcpHeader {
    TcpHeader::new(7471, 40000, 0x1234_5678, 512)
}

/// A segment of ours in an IPv4 packet.
fn sent_v4() -> Vec<u8> {
    let mut packet = Vec::new();
    PacketBuilder::ipv4(OURS_V4, PEER_V4, 60)
        .tcp_header(segment())
        .write(&mut packet, &[7; 100])
        .unwrap();
    packet
}

fn sent_v6() -> Vec<u8> {
    let mut packet = Vec::new();
    PacketBuilder::ipv6(OURS_V6, PEER_V6, 60)
        .tcp_header(segment())
        .write(&mut packet, &[7; 100])
        .unwrap();
    packet
}

fn error_v4(kind: Icmpv4Type, quoted: &[u8]) -> Vec<u8> {
    let mut packet = Vec::new();
    PacketBuilder::ipv4(ROUTER_V4, OURS_V4, 64)
        .icmpv4(kind)
        .write(&mut packet, quoted)
        .unwrap();
    packet
}

/// The message alone: without the IP header.
fn error_v6(kind: Icmpv6Type, quoted: &[u8]) -> Vec<u8> {
    let mut packet = Vec::new();
    PacketBuilder::ipv6(ROUTER_V6, OURS_V6, 64)
        .icmpv6(kind)
        .write(&mut packet, quoted)
        .unwrap();
    packet.split_off(IPV6_HEADER)
}

fn expected(v6: bool, error: IcmpError) -> Option<IcmpReport> {
    let (local, remote): (IpAddr, IpAddr) = if v6 {
        (OURS_V6.into(), PEER_V6.into())
    } else {
        (OURS_V4.into(), PEER_V4.into())
    };
    Some(IcmpReport {
        tuple: FourTuple::new((local, 7471), (remote, 40000)),
        quoted: Quoted::Segment {
            seq: SeqNum(0x1234_5678),
        },
        error,
    })
}

fn too_big_v4(next_hop_mtu: u16) -> Icmpv4Type {
    Icmpv4Type::DestinationUnreachable(DestUnreachableHeader::FragmentationNeeded { next_hop_mtu })
}

#[test]
fn a_packet_too_big_names_the_segment_and_the_mtu() {
    for mtu in [0, 68, 1400, u16::MAX] {
        let packet = error_v4(too_big_v4(mtu), &sent_v4());
        let error = IcmpError::PacketTooBig { mtu: mtu.into() };
        assert_eq!(parse_icmp(&packet), expected(false, error));
    }
    for mtu in [0, 1280, 1400, u32::MAX] {
        let message = error_v6(Icmpv6Type::PacketTooBig { mtu }, &sent_v6());
        assert_eq!(
            parse_icmpv6(&message),
            expected(true, IcmpError::PacketTooBig { mtu })
        );
    }
}

#[test]
fn eight_bytes_of_the_segment_are_enough_and_seven_are_not() {
    for (len, enough) in [
        (28, true),
        (27, false),
        (20, false),
        (19, false),
        (0, false),
    ] {
        let packet = error_v4(too_big_v4(1400), &sent_v4()[..len]);
        assert_eq!(parse_icmp(&packet).is_some(), enough, "{len} bytes");
    }
    let kind = Icmpv6Type::PacketTooBig { mtu: 1400 };
    for (len, enough) in [
        (48, true),
        (47, false),
        (40, false),
        (39, false),
        (0, false),
    ] {
        let message = error_v6(kind, &sent_v6()[..len]);
        assert_eq!(parse_icmpv6(&message).is_some(), enough, "{len} bytes");
    }
}

#[test]
fn hard_and_soft_errors_are_told_apart() {
    let unreachable = Icmpv4Type::DestinationUnreachable;
    for (kind, hard) in [
        (unreachable(DestUnreachableHeader::Network), false),
        (unreachable(DestUnreachableHeader::Host), false),
        (unreachable(DestUnreachableHeader::Protocol), true),
        (unreachable(DestUnreachableHeader::Port), true),
        (unreachable(DestUnreachableHeader::SourceRouteFailed), false),
        (unreachable(DestUnreachableHeader::HostProhibited), true),
        (unreachable(DestUnreachableHeader::FilterProhibited), true),
        (
            Icmpv4Type::TimeExceeded(icmpv4::TimeExceededCode::TtlExceededInTransit),
            false,
        ),
        (
            Icmpv4Type::ParameterProblem(icmpv4::ParameterProblemHeader::PointerIndicatesError(1)),
            false,
        ),
    ] {
        let packet = error_v4(kind.clone(), &sent_v4());
        let error = IcmpError::Unreachable { hard };
        assert_eq!(parse_icmp(&packet), expected(false, error), "{kind:?}");
    }
    let unreachable = Icmpv6Type::DestinationUnreachable;
    for (kind, hard) in [
        (unreachable(DestUnreachableCode::NoRoute), false),
        (unreachable(DestUnreachableCode::Prohibited), true),
        (unreachable(DestUnreachableCode::Address), false),
        (unreachable(DestUnreachableCode::Port), true),
        (
            Icmpv6Type::TimeExceeded(icmpv6::TimeExceededCode::HopLimitExceeded),
            false,
        ),
    ] {
        let message = error_v6(kind, &sent_v6());
        let error = IcmpError::Unreachable { hard };
        assert_eq!(parse_icmpv6(&message), expected(true, error), "{kind:?}");
    }
}

/// An SCTP packet of ours in an IPv4 packet: tag, and a chunk of a type with the number 9 in it.
fn sctp_v4(kind: u8) -> Vec<u8> {
    let mut packet = sent_v4();
    packet[9] = 132;
    packet[24..28].copy_from_slice(&0xaabb_ccdd_u32.to_be_bytes());
    packet[32..40].copy_from_slice(&[kind, 0, 0, 20, 0, 0, 0, 9]);
    packet
}

fn sctp_v6(kind: u8) -> Vec<u8> {
    let mut packet = sent_v6();
    packet[6] = 132;
    packet[44..48].copy_from_slice(&0xaabb_ccdd_u32.to_be_bytes());
    packet[52..60].copy_from_slice(&[kind, 0, 0, 20, 0, 0, 0, 9]);
    packet
}

/// RFC9260-10-4, RFC9260-10-6, RFC9260-10-8, RFC9260-10-10.
#[test]
fn an_error_about_an_sctp_packet_has_its_tag_and_whether_the_host_knows_no_sctp() {
    let quoted = |report: Option<IcmpReport>| report.map(|report| report.quoted);
    let expected = |init_tag, no_protocol| {
        Some(Quoted::Packet {
            tag: 0xaabb_ccdd,
            init_tag,
            no_protocol,
        })
    };
    let unreachable = Icmpv4Type::DestinationUnreachable;
    for (kind, no_protocol) in [
        (unreachable(DestUnreachableHeader::Protocol), true),
        (unreachable(DestUnreachableHeader::Port), false),
        (unreachable(DestUnreachableHeader::Host), false),
        (too_big_v4(1400), false),
    ] {
        let data = parse_icmp(&error_v4(kind.clone(), &sctp_v4(0)));
        assert_eq!(quoted(data), expected(None, no_protocol), "{kind:?}");
        let init = parse_icmp(&error_v4(kind.clone(), &sctp_v4(1)));
        assert_eq!(quoted(init), expected(Some(9), no_protocol), "{kind:?}");
    }
    let problem = |code| {
        let header = icmpv6::ParameterProblemHeader { code, pointer: 6 };
        Icmpv6Type::ParameterProblem(header)
    };
    let unknown = icmpv6::ParameterProblemCode::UnrecognizedNextHeader;
    let other = icmpv6::ParameterProblemCode::UnrecognizedIpv6Option;
    let port = Icmpv6Type::DestinationUnreachable(DestUnreachableCode::Port);
    for (kind, no_protocol) in [
        (problem(unknown), true),
        (problem(other), false),
        (port, false),
        (Icmpv6Type::PacketTooBig { mtu: 1400 }, false),
    ] {
        let data = parse_icmpv6(&error_v6(kind, &sctp_v6(0)));
        assert_eq!(quoted(data), expected(None, no_protocol), "{kind:?}");
        let init = parse_icmpv6(&error_v6(kind, &sctp_v6(1)));
        assert_eq!(quoted(init), expected(Some(9), no_protocol), "{kind:?}");
    }
}

/// The same in UDP (RFC 6951), where it is the port that is not there.
#[test]
fn an_error_about_an_sctp_packet_in_udp_has_its_ports_and_whether_nobody_takes_it() {
    let in_udp = |mut packet: Vec<u8>, protocol: usize, header: usize| {
        packet[protocol] = 17;
        let udp = [9899_u16, 40_001, 128, 0].map(u16::to_be_bytes).concat();
        packet.splice(header..header, udp);
        packet
    };
    let quoted = |no_protocol| Quoted::Packet {
        tag: 0xaabb_ccdd,
        init_tag: Some(9),
        no_protocol,
    };
    let v4 = in_udp(sctp_v4(1), 9, IPV4_HEADER);
    let unreachable = Icmpv4Type::DestinationUnreachable;
    for (kind, no_protocol) in [
        (unreachable(DestUnreachableHeader::Protocol), false),
        (unreachable(DestUnreachableHeader::Port), true),
        (too_big_v4(1400), false),
    ] {
        let report = parse_icmp(&error_v4(kind, &v4)).unwrap();
        assert_eq!(report.quoted, quoted(no_protocol));
        let (ours, theirs) = ((OURS_V4.into(), 7471), (PEER_V4.into(), 40_000));
        let ends: [(IpAddr, u16); 2] = [ours, theirs];
        assert_eq!(report.tuple, FourTuple::new(ends[0], ends[1]));
    }
    let v6 = in_udp(sctp_v6(1), 6, IPV6_HEADER);
    let port = Icmpv6Type::DestinationUnreachable(DestUnreachableCode::Port);
    for (kind, no_protocol) in [
        (port, true),
        (Icmpv6Type::PacketTooBig { mtu: 1400 }, false),
    ] {
        let report = parse_icmpv6(&error_v6(kind, &v6)).unwrap();
        assert_eq!(report.quoted, quoted(no_protocol));
    }
    // The UDP header alone does not tell which association it is about.
    for len in [IPV4_HEADER + 7, IPV4_HEADER + 8, IPV4_HEADER + 15] {
        let kind = unreachable(DestUnreachableHeader::Port);
        assert_eq!(parse_icmp(&error_v4(kind, &v4[..len])), None, "{len}");
    }
}

#[test]
fn a_first_fragment_of_ours_has_the_ports_and_a_later_one_has_not() {
    for (offset, ours) in [(0_u8, true), (100, false)] {
        let mut sent = sent_v4();
        sent[6..8].copy_from_slice(&[0x20, offset]);
        let packet = error_v4(too_big_v4(1400), &sent);
        assert_eq!(parse_icmp(&packet).is_some(), ours);

        let mut fragment = Vec::new();
        let offset = IpFragOffset::try_new(offset.into()).unwrap();
        Ipv6FragmentHeader::new(IpNumber::TCP, offset, true, 9)
            .write(&mut fragment)
            .unwrap();
        let mut sent = sent_v6();
        sent[6] = PROTOCOL_FRAGMENT;
        sent.splice(IPV6_HEADER..IPV6_HEADER, fragment);
        let message = error_v6(Icmpv6Type::PacketTooBig { mtu: 1400 }, &sent);
        assert_eq!(parse_icmpv6(&message).is_some(), ours);
    }
}

#[test]
fn an_error_in_a_frame_is_what_it_is_without_and_nothing_else_is_one() {
    let v4 = error_v4(too_big_v4(1400), &sctp_v4(1));
    let mut frame = vec![0; 12];
    frame.extend([0x08, 0x00]);
    frame.extend(&v4);
    assert!(parse_icmp(&v4).is_some());
    assert_eq!(parse_icmp_frame(&frame), parse_icmp(&v4));
    let v6 = error_v6(Icmpv6Type::PacketTooBig { mtu: 1400 }, &sctp_v6(1));
    let mut frame = vec![0; 12];
    frame.extend([0x86, 0xdd]);
    let mut header = [0; IPV6_HEADER];
    header[6] = 58;
    frame.extend(header);
    frame.extend(&v6);
    assert!(parse_icmpv6(&v6).is_some());
    assert_eq!(parse_icmp_frame(&frame), parse_icmpv6(&v6));
    // UDP with the same bytes.
    frame[14 + 6] = 17;
    assert_eq!(parse_icmp_frame(&frame), None);
    assert_eq!(parse_icmp_frame(&frame[..10]), None);
}

#[test]
fn what_is_no_error_about_a_segment_of_ours_is_left_out() {
    let echo = etherparse::IcmpEchoHeader { id: 1, seq: 1 };
    assert_eq!(
        parse_icmp(&error_v4(Icmpv4Type::EchoRequest(echo), &sent_v4())),
        None
    );
    assert_eq!(
        parse_icmpv6(&error_v6(Icmpv6Type::EchoRequest(echo), &sent_v6())),
        None
    );
    // Source Quench (RFC 9293 MUST-55).
    let mut quench = error_v4(too_big_v4(0), &sent_v4());
    quench[20..24].fill(0);
    quench[20] = 4;
    let sum = checksum::fold(checksum::sum(&quench[20..])).to_be_bytes();
    quench[22..24].copy_from_slice(&sum);
    assert_eq!(parse_icmp(&quench), None);

    let (mut esp, mut esp6) = (sent_v4(), sent_v6());
    esp[9] = 50;
    esp6[6] = 50;
    assert_eq!(parse_icmp(&error_v4(too_big_v4(1400), &esp)), None);
    let too_big = Icmpv6Type::PacketTooBig { mtu: 1400 };
    assert_eq!(parse_icmpv6(&error_v6(too_big, &esp6)), None);
    assert_eq!(parse_icmpv6(&error_v6(too_big, &sent_v4())), None);
    assert_eq!(parse_icmp(&error_v4(too_big_v4(1400), &sent_v6())), None);

    // Sent to us about somebody else's segment.
    let mut other = sent_v4();
    other[15] = 77;
    assert_eq!(parse_icmp(&error_v4(too_big_v4(1400), &other)), None);
}

#[test]
fn any_flipped_bit_of_an_icmp_message_is_seen() {
    let packet = error_v4(too_big_v4(1400), &sent_v4());
    for bit in 20 * 8..packet.len() * 8 {
        let mut broken = packet.clone();
        broken[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(parse_icmp(&broken), None, "bit {bit}");
    }
}

proptest! {
    #[test]
    fn no_bytes_do_harm(mut bytes in prop::collection::vec(any::<u8>(), 0..200), v4 in any::<bool>()) {
        if let Some(first) = bytes.first_mut() {
            *first = if v4 { 0x40 | (*first & 0x0f) } else { *first % 5 };
        }
        let _ = parse_icmp(&bytes);
        let _ = parse_icmpv6(&bytes);
    }

    #[test]
    fn no_cut_and_no_changed_byte_makes_it_read_beyond(
        at in 0..140_usize, byte in any::<u8>(), len in 0..170_usize,
    ) {
        let mut packet = error_v4(too_big_v4(1400), &sent_v4());
        packet[at] = byte;
        packet.truncate(len);
        let _ = parse_icmp(&packet);
        let mut message = error_v6(Icmpv6Type::PacketTooBig { mtu: 1400 }, &sent_v6());
        message[at] = byte;
        message.truncate(len);
        let _ = parse_icmpv6(&message);
    }
}
