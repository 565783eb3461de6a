use std::time::Duration;

use etherparse::{NetSlice, SlicedPacket};

use crate::linksim::testing::{buffers, checksums_are_right, direction, pass, segment, udp};

#[test]
fn what_fits_exactly_passes() {
    let frame = segment(6, 1, &[7; 500]);
    let exact = frame.len() - 14;
    for (mtu, passes) in [(exact, 1), (exact - 1, 0)] {
        let mut direction = direction(1, &[&format!("mtu={mtu}")]);
        // Padding of Ethernet is not the packet's.
        let mut padded = frame.clone();
        padded.extend([0; 10]);
        let (left, _) = pass(
            &mut direction,
            &mut buffers(16),
            &[padded],
            Duration::ZERO,
            &mut (),
        );
        assert_eq!(left.len(), passes);
    }
}

#[test]
fn ipv4_without_df_is_fragmented_and_the_fragments_are_the_packet() {
    let payload: Vec<u8> = (0..1400).map(|at| (at % 251) as u8).collect();
    let mut frame = udp(4, &payload);
    frame[20] = 0;
    for mtu in [68, 500, 576, 1000, 1400] {
        let mut direction = direction(1, &[&format!("mtu={mtu}")]);
        let (left, answers) = pass(
            &mut direction,
            &mut buffers(64),
            &[frame.clone()],
            Duration::ZERO,
            &mut (),
        );
        assert!(answers.is_empty());
        let counters = direction.counters();
        assert_eq!((counters.fragmented, counters.too_big), (1, 0));
        assert!(counters.balanced(0));
        let mut whole: Vec<u8> = Vec::new();
        for (place, (_, fragment)) in left.iter().enumerate() {
            assert!(fragment.len() - 14 <= mtu);
            assert!(checksums_are_right(fragment));
            let packet = SlicedPacket::from_ethernet(fragment).unwrap();
            let Some(NetSlice::Ipv4(ip)) = packet.net else {
                panic!("not IPv4");
            };
            let header = ip.header();
            assert_eq!(
                usize::from(header.fragments_offset().value()) * 8,
                whole.len()
            );
            assert_eq!(header.more_fragments(), place + 1 < left.len());
            whole.extend(ip.payload().payload);
        }
        assert_eq!(whole, frame[34..]);
    }
}

#[test]
fn ipv4_without_df_and_with_options_is_dropped() {
    let mut frame = udp(4, &[7; 1000]);
    frame[20] = 0;
    frame[14] = 0x46;
    let mut direction = direction(1, &["mtu=600"]);
    let (left, answers) = pass(
        &mut direction,
        &mut buffers(16),
        &[frame],
        Duration::ZERO,
        &mut (),
    );
    assert!(left.is_empty() && answers.is_empty());
    assert_eq!(direction.counters().too_big, 1);
}

#[test]
fn a_packet_behind_vlan_tags_is_found() {
    let mut frame = segment(6, 1, &[7; 1000]);
    frame.splice(12..12, [0x88, 0xa8, 0, 5, 0x81, 0, 0, 7]);
    let mut direction = direction(1, &["mtu=600"]);
    let (_, answers) = pass(
        &mut direction,
        &mut buffers(16),
        &[frame],
        Duration::ZERO,
        &mut (),
    );
    assert_eq!(answers[0][12..20], [0x88, 0xa8, 0, 5, 0x81, 0, 0, 7]);
    assert!(checksums_are_right(&answers[0]));
}
