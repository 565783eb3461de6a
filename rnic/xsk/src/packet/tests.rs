use super::*;
use crate::ChunkSize;

/// A packet of frames with these bytes, each a frame's.
fn packet(umem: &Umem, pool: &mut FramePool, parts: &[&[u8]]) -> Packet {
    let mut frames = parts.iter().map(|part| {
        let mut frame = pool.alloc().unwrap();
        umem.bytes_mut(&mut frame)[..part.len()].copy_from_slice(part);
        frame.set_len(part.len());
        frame
    });
    let mut packet = Packet::from(frames.next().unwrap());
    frames.for_each(|frame| packet.push(frame).unwrap());
    packet
}

#[test]
fn a_packet_shows_the_bytes_of_its_frames_in_order() {
    let (umem, mut pool) = Umem::heap(24, ChunkSize::ThreeOf4096);
    let packet = packet(&umem, &mut pool, &[b"one", b"", b"three"]);
    assert_eq!((packet.len(), packet.is_single()), (8, false));
    let mut out = [&[][..]; CHUNKS_MAX];
    let (first, rest) = packet.first_and_rest(&umem, &mut out);
    assert_eq!((first, rest), (&b"one"[..], &[&b""[..], b"three"][..]));
    assert_eq!(packet.slices(&umem, &mut out), [&b"one"[..], b"", b"three"]);
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
