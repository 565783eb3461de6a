use std::time::Duration;

use etherparse::icmpv4::DestUnreachableHeader;
use etherparse::{Icmpv4Type, Icmpv6Type, NetSlice, SlicedPacket, TransportSlice};

use crate::linksim::testing::{
    LEFT_MAC, LEFT_V4, LEFT_V6, RIGHT_MAC, RIGHT_V4, RIGHT_V6, VERSIONS, buffers,
    checksums_are_right, direction, pass, segment, udp,
};

/// What comes back, and what is counted, when a frame meets an MTU of 600 bytes.
fn answer(frame: Vec<u8>) -> (Vec<Vec<u8>>, u64) {
    let mut direction = direction(1, &["mtu=600"]);
    let (left, answers) = pass(
        &mut direction,
        &mut buffers(16),
        &[frame],
        Duration::ZERO,
        &mut (),
    );
    assert!(left.is_empty());
    assert_eq!(direction.counters().too_big, 1);
    (answers, direction.counters().icmp_sent)
}

fn whole(mut frame: Vec<u8>) -> Vec<u8> {
    // etherparse sets DF by itself.
    assert_eq!(frame[20] & 0x40, 0x40);
    frame[20] = 0x40;
    frame
}

#[test]
fn ipv4_with_df_is_answered_with_fragmentation_needed() {
    let frame = whole(segment(4, 0x1234_5678, &[7; 1000]));
    let (answers, sent) = answer(frame.clone());
    assert_eq!((answers.len(), sent), (1, 1));
    let bytes = &answers[0];
    assert!(checksums_are_right(bytes));
    assert_eq!(
        (&bytes[..6], &bytes[6..12]),
        (&LEFT_MAC[..], &RIGHT_MAC[..])
    );
    let packet = SlicedPacket::from_ethernet(bytes).unwrap();
    let Some(NetSlice::Ipv4(ip)) = &packet.net else {
        panic!("not IPv4");
    };
    assert_eq!(ip.header().source(), RIGHT_V4);
    assert_eq!(ip.header().destination(), LEFT_V4);
    assert_eq!(bytes.len() - 14, 576);
    let Some(TransportSlice::Icmpv4(icmp)) = &packet.transport else {
        panic!("not ICMP");
    };
    let Icmpv4Type::DestinationUnreachable(DestUnreachableHeader::FragmentationNeeded {
        next_hop_mtu,
    }) = icmp.icmp_type()
    else {
        panic!("{:?}", icmp.icmp_type());
    };
    assert_eq!(next_hop_mtu, 600);
    assert_eq!(icmp.payload(), &frame[14..14 + 576 - 28]);
}

#[test]
fn ipv6_is_answered_with_packet_too_big() {
    let frame = segment(6, 0x1234_5678, &[7; 1400]);
    let (answers, sent) = answer(frame.clone());
    assert_eq!((answers.len(), sent), (1, 1));
    let bytes = &answers[0];
    assert!(checksums_are_right(bytes));
    let packet = SlicedPacket::from_ethernet(bytes).unwrap();
    let Some(NetSlice::Ipv6(ip)) = &packet.net else {
        panic!("not IPv6");
    };
    assert_eq!(ip.header().source(), RIGHT_V6);
    assert_eq!(ip.header().destination(), LEFT_V6);
    assert_eq!(bytes.len() - 14, 1280);
    let Some(TransportSlice::Icmpv6(icmp)) = &packet.transport else {
        panic!("not ICMPv6");
    };
    assert_eq!(icmp.icmp_type(), Icmpv6Type::PacketTooBig { mtu: 600 });
    assert_eq!(icmp.payload(), &frame[14..14 + 1280 - 48]);
}

#[test]
fn nobody_is_told_when_that_is_asked_for() {
    for version in VERSIONS {
        let mut direction = direction(1, &["mtu=600", "too-big=silent"]);
        let frames = [segment(version, 1, &[7; 1000])];
        let (left, answers) = pass(
            &mut direction,
            &mut buffers(16),
            &frames,
            Duration::ZERO,
            &mut (),
        );
        assert!(left.is_empty() && answers.is_empty());
        assert_eq!(direction.counters().too_big, 1);
    }
}

#[test]
fn what_must_not_be_answered_is_not() {
    let mut to_group = segment(6, 1, &[7; 1000]);
    to_group[0] |= 1;
    let mut from_group = segment(6, 1, &[7; 1000]);
    from_group[14 + 8] = 0xff;
    let mut from_nobody = whole(segment(4, 1, &[7; 1000]));
    from_nobody[14 + 12..14 + 16].fill(0);
    // An ICMP error of either version, as large as it may not be.
    let mut error_v4 = whole(udp(4, &[3; 1000]));
    error_v4[14 + 9] = 1;
    error_v4[14 + 20] = 3;
    let mut error_v6 = udp(6, &[3; 1000]);
    error_v6[14 + 6] = 58;
    error_v6[14 + 40] = 2;
    for frame in [to_group, from_group, from_nobody, error_v4, error_v6] {
        assert_eq!(answer(frame), (Vec::new(), 0));
    }
}
