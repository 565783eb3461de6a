use std::time::Duration;

use etherparse::{SlicedPacket, TransportSlice};

use crate::linksim::testing::{
    VERSIONS, buffers, checksums_are_right, direction, pass, segment, udp,
};

/// Sequence number, flags that matter, and payload.
fn parts(frame: &[u8]) -> (u32, bool, Vec<u8>) {
    let packet = SlicedPacket::from_ethernet(frame).unwrap();
    let Some(TransportSlice::Tcp(tcp)) = packet.transport else {
        panic!("not TCP");
    };
    assert_eq!(tcp.acknowledgment_number(), 77);
    assert_eq!(tcp.window_size(), 3000);
    assert_eq!(tcp.options().len(), 12);
    (tcp.sequence_number(), tcp.psh(), tcp.payload().to_vec())
}

/// `count` segments of a stream whose bytes tell their place, beginning close to the wrap of
/// sequence numbers.
fn stream(version: u8, first: u32, sizes: &[usize]) -> (Vec<Vec<u8>>, Vec<u8>) {
    let mut bytes = Vec::new();
    let frames = sizes
        .iter()
        .map(|&size| {
            let begin = bytes.len();
            bytes.extend((begin..begin + size).map(|at| (at * 31 + at / 251) as u8));
            segment(version, first.wrapping_add(begin as u32), &bytes[begin..])
        })
        .collect();
    (frames, bytes)
}

fn reassemble(first: u32, frames: &[(Duration, Vec<u8>)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (_, frame) in frames {
        assert!(checksums_are_right(frame), "{frame:02x?}");
        let (sequence, _, payload) = parts(frame);
        assert_eq!(sequence, first.wrapping_add(bytes.len() as u32));
        bytes.extend(payload);
    }
    bytes
}

#[test]
fn any_segmentation_is_the_same_stream_with_right_checksums() {
    let first = u32::MAX - 5000;
    for version in VERSIONS {
        for pairs in [
            &["split=100%", "pieces=2"][..],
            &["split=50%", "pieces=9"],
            &["join=100%", "join-wait=1ms"],
            &["join=30%", "split=30%", "join-wait=1ms"],
        ] {
            let sizes: Vec<usize> = (0..300).map(|n| [1400, 1400, 2, 1, 700][n % 5]).collect();
            let (frames, bytes) = stream(version, first, &sizes);
            let mut direction = direction(9, pairs);
            let mut buffers = buffers(256);
            let gap = Duration::from_micros(10);
            let (left, _) = pass(&mut direction, &mut buffers, &frames, gap, &mut ());
            assert_eq!(reassemble(first, &left), bytes, "{version} {pairs:?}");
            let counters = direction.counters();
            assert!(counters.resegmented > 50, "{pairs:?} {counters:?}");
            assert!(counters.balanced(0), "{counters:?}");
            let longest = left.iter().map(|(_, frame)| frame.len()).max();
            let allowed = frames.iter().map(Vec::len).max();
            assert!(longest <= allowed, "a segment that no link would take");
        }
    }
}

#[test]
fn psh_stays_on_the_last_piece_only() {
    let frame = segment(4, 1, &[1; 1000]);
    let mut direction = direction(1, &["split=100%", "pieces=5"]);
    let (left, _) = pass(
        &mut direction,
        &mut buffers(16),
        &[frame],
        Duration::ZERO,
        &mut (),
    );
    assert!(left.len() > 1);
    for (place, (_, frame)) in left.iter().enumerate() {
        assert_eq!(parts(frame).1, place + 1 == left.len());
    }
}

#[test]
fn a_segment_that_waits_in_vain_leaves_in_time_and_before_what_comes_after_it() {
    let mut direction = direction(1, &["join=100%", "join-wait=300us"]);
    let mut buffers = buffers(16);
    let (frames, bytes) = stream(4, 1, &[100]);
    let (left, _) = pass(
        &mut direction,
        &mut buffers,
        &frames,
        Duration::ZERO,
        &mut (),
    );
    assert_eq!(left[0].0, Duration::from_micros(300));
    assert_eq!(reassemble(1, &left), bytes);

    // Another packet lets it go at once, and so does a segment that does not follow it.
    for other in [udp(4, b"other"), segment(4, 9_999, b"far away")] {
        let mut direction = super::super::testing::direction(1, &["join=100%"]);
        let frames = [frames[0].clone(), other];
        let (left, _) = pass(
            &mut direction,
            &mut buffers,
            &frames,
            Duration::ZERO,
            &mut (),
        );
        let left: Vec<&Vec<u8>> = left.iter().map(|(_, frame)| frame).collect();
        assert_eq!(left, frames.iter().collect::<Vec<_>>());
    }
}

#[test]
fn what_is_no_plain_segment_or_has_a_wrong_checksum_is_not_touched() {
    let mut wrong = segment(4, 1, &[1; 500]);
    wrong[60] ^= 1;
    let mut syn = segment(4, 1, &[1; 500]);
    syn[14 + 20 + 13] |= 2;
    let empty = segment(4, 1, &[]);
    let frames = vec![wrong, syn, empty, udp(4, &[1; 500]), udp(6, &[1; 500])];
    let mut direction = direction(1, &["split=100%", "join=100%"]);
    let (left, _) = pass(
        &mut direction,
        &mut buffers(16),
        &frames,
        Duration::ZERO,
        &mut (),
    );
    let left: Vec<Vec<u8>> = left.into_iter().map(|(_, frame)| frame).collect();
    assert_eq!(left, frames);
}
