use super::*;
use crate::ChunkSize;

/// A packet of frames with these bytes, each a frame's.
fn packet(umem: &Umem, pool: &mut FramePool, parts: &[&[u8]]) -> Packet {
    let frames = parts.iter().map(|part| {
        let mut frame = pool.alloc().unwrap();
        umem.bytes_mut(&mut frame)[..part.len()].copy_from_slice(part);
        frame.set_len(part.len());
        Some(frame)
    });
    Packet::of(umem, &mut frames.collect::<Vec<_>>()).unwrap()
}

#[test]
fn a_packet_shows_the_bytes_of_its_frames_in_order() {
    let (umem, mut pool) = Umem::heap(24, ChunkSize::ThreeOf4096);
    let packet = packet(&umem, &mut pool, &[b"one", b"", b"three"]);
    assert_eq!((packet.len(&umem), packet.is_single()), (8, false));
    let (first, rest) = packet.first_and_rest(&umem);
    assert_eq!(first, b"one");
    assert_eq!(rest.collect::<Vec<_>>(), [&b""[..], b"three"]);
    let slices: Vec<_> = packet.slices(&umem).collect();
    assert_eq!(slices, [&b"one"[..], b"", b"three"]);
}

#[test]
fn a_packet_becomes_one_frame_by_a_copy_or_is_given_up() {
    let (umem, mut pool) = Umem::heap(24, ChunkSize::ThreeOf4096);
    let all = pool.free_chunks();
    let large = vec![1; 3840];
    let both = packet(&umem, &mut pool, &[&large, b"end"]);
    let whole = both.into_frame(&umem, &mut pool).unwrap();
    assert_eq!(umem.bytes(&whole), [&large[..], b"end"].concat());
    let mut wide = vec![whole];
    wide.extend(std::iter::from_fn(|| pool.alloc_for(9000)));
    let other = packet(&umem, &mut pool, &[&large, b"end"]);
    assert!(
        other.into_frame(&umem, &mut pool).is_none(),
        "no wide frame is free"
    );
    let alone = packet(&umem, &mut pool, &[b"alone"]);
    let alone = alone.into_frame(&umem, &mut pool).unwrap();
    assert_eq!(umem.bytes(&alone), b"alone");
    wide.into_iter().for_each(|frame| pool.free(frame));
    pool.free(alone);
    assert_eq!(pool.free_chunks(), all);
}

#[test]
fn a_frame_that_was_in_a_packet_of_several_is_alone_in_its_next() {
    let (umem, mut pool) = Umem::heap(3, ChunkSize::Bytes4096);
    let several = packet(&umem, &mut pool, &[b"a", b"b", b"c"]);
    assert_eq!(several.frame_count(), 3);
    pool.free_packet(several);
    assert_eq!(pool.available(), 3);
    for _ in 0..3 {
        let frame = pool.alloc().unwrap();
        assert_eq!(umem.chains().following(&frame), None);
    }
}

#[test]
fn the_largest_packet_lies_in_as_many_frames_as_one_may_take_and_a_larger_one_is_none() {
    let (umem, mut pool) = Umem::heap(20, ChunkSize::Bytes4096);
    let bytes: Vec<u8> = (0..18 + 65_535_u32).map(|at| (at * 7) as u8).collect();
    let packet = Packet::from_bytes(&umem, &mut pool, &bytes).unwrap();
    assert_eq!(packet.frame_count(), CHUNKS_MAX);
    assert_eq!(packet.slices(&umem).collect::<Vec<_>>().concat(), bytes);
    assert_eq!(packet.len(&umem), bytes.len());
    assert!(
        packet.into_frame(&umem, &mut pool).is_none(),
        "no frame has so many bytes"
    );
    assert_eq!(pool.available(), 20);
    let larger = vec![0; CHUNKS_MAX * 3840 + 1];
    assert_eq!(Packet::from_bytes(&umem, &mut pool, &larger), None);
    assert_eq!(pool.available(), 20);
}
