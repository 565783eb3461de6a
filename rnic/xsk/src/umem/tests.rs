use super::*;
use crate::XskError;

#[test]
fn bytes_of_one_frame_are_not_those_of_another() {
    let (umem, mut pool) = Umem::heap(16, ChunkSize::Bytes4096);
    let mut frames: Vec<Frame> = std::iter::from_fn(|| pool.alloc()).collect();
    for frame in &mut frames {
        let mark = frame.index() as u8;
        assert_eq!(umem.bytes_mut(frame).len(), umem.frame_capacity());
        umem.bytes_mut(frame).fill(mark);
        frame.set_len(umem.frame_capacity());
    }
    for frame in &frames {
        assert!(
            umem.bytes(frame)
                .iter()
                .all(|&byte| byte == frame.index() as u8)
        );
    }
}

#[test]
fn a_frame_shows_as_many_bytes_as_it_says() {
    let (umem, mut pool) = Umem::heap(1, ChunkSize::Bytes2048);
    let mut frame = pool.alloc().unwrap();
    assert_eq!(umem.bytes(&frame), &[]);
    umem.bytes_mut(&mut frame)[..3].copy_from_slice(b"abc");
    frame.set_len(3);
    assert_eq!(umem.bytes(&frame), b"abc");
}

#[test]
#[should_panic = "do not fit"]
fn a_frame_can_not_be_longer_than_its_chunk() {
    let (umem, mut pool) = Umem::heap(1, ChunkSize::Bytes2048);
    pool.alloc().unwrap().set_len(umem.frame_capacity() + 1);
}

#[test]
#[should_panic = "a frame of another UMEM"]
fn a_umem_shows_no_frame_of_another() {
    let (umem, _pool) = Umem::heap(1, ChunkSize::Bytes2048);
    let (_other, mut pool) = Umem::heap(1, ChunkSize::Bytes2048);
    umem.bytes(&pool.alloc().unwrap());
}

#[test]
fn data_moves_within_its_chunk_in_both_directions() {
    let (umem, mut pool) = Umem::heap(2, ChunkSize::Bytes2048);
    let mut frame = pool.alloc().unwrap();
    umem.bytes_mut(&mut frame)[..5].copy_from_slice(b"hello");
    frame.set_len(5);
    for start in [258, 1000, CHUNK_HEADROOM, 2043] {
        umem.move_data_to(&mut frame, start);
        assert_eq!((frame.start(), umem.bytes(&frame)), (start, &b"hello"[..]));
    }
    assert_eq!(frame.capacity(), 5);
}

#[test]
fn frames_of_two_threads_are_used_at_the_same_time() {
    let (umem, pool) = Umem::heap(64, ChunkSize::Bytes2048);
    let mut halves = pool.shares(2);
    std::thread::scope(|scope| {
        for (mark, pool) in (1..).zip(&mut halves) {
            let umem = umem.clone();
            scope.spawn(move || {
                while let Some(mut frame) = pool.alloc() {
                    umem.bytes_mut(&mut frame).fill(mark);
                    frame.set_len(frame.capacity());
                    assert!(umem.bytes(&frame).iter().all(|&byte| byte == mark));
                }
            });
        }
    });
}

#[test]
fn chunks_hold_a_frame_of_the_mtu_with_a_vlan_tag() {
    assert_eq!(ChunkSize::for_mtu(1500).unwrap(), ChunkSize::Bytes2048);
    assert_eq!(ChunkSize::for_mtu(1774).unwrap(), ChunkSize::Bytes2048);
    assert_eq!(ChunkSize::for_mtu(1775).unwrap(), ChunkSize::Bytes4096);
    assert_eq!(ChunkSize::for_mtu(3822).unwrap(), ChunkSize::Bytes4096);
    assert_eq!(ChunkSize::for_mtu(3823).unwrap(), ChunkSize::TwoOf4096);
    assert_eq!(ChunkSize::for_mtu(7662).unwrap(), ChunkSize::TwoOf4096);
    assert_eq!(ChunkSize::for_mtu(7663).unwrap(), ChunkSize::ThreeOf4096);
    assert_eq!(ChunkSize::for_mtu(11502).unwrap(), ChunkSize::ThreeOf4096);
    assert!(matches!(
        ChunkSize::for_mtu(11503),
        Err(XskError::MtuTooLarge {
            mtu: 11503,
            most: 11502
        })
    ));
    assert_eq!(ChunkSize::Bytes2048.frame_capacity(), 1792);
    assert_eq!(ChunkSize::Bytes4096.frame_capacity(), 3840);
}

#[test]
fn sizes_that_can_not_be_right_are_refused() {
    let good = UmemConfig::default();
    for config in [
        UmemConfig {
            frames: 0,
            ..good.clone()
        },
        UmemConfig {
            frames: MAX_FRAMES + 1,
            ..good.clone()
        },
        UmemConfig {
            fill_ring: 500,
            ..good.clone()
        },
        UmemConfig {
            fill_ring: 0,
            ..good.clone()
        },
        UmemConfig {
            completion_ring: 1 << 16,
            ..good.clone()
        },
    ] {
        let error = Umem::new(&config).unwrap_err();
        assert!(
            matches!(error, XskError::Invalid { .. }),
            "{config:?}: {error}"
        );
    }
}

#[test]
fn wide_frames_have_their_chunks_for_themselves() {
    for chunk in [ChunkSize::TwoOf4096, ChunkSize::ThreeOf4096] {
        let (umem, mut pool) = Umem::heap(32, chunk);
        assert_eq!(pool.free_chunks(), 32);
        let mut frames: Vec<Frame> = std::iter::from_fn(|| pool.alloc()).collect();
        assert!(frames.len() >= 16, "half is received into");
        let single = frames.len();
        frames.extend(std::iter::from_fn(|| pool.alloc_for(3841)));
        assert_eq!(frames.len() - single, (32 - single) / chunk.chunks());
        for (mark, frame) in (1..).zip(&mut frames) {
            // Whatever was in the headroom of chunks in the middle is data now, and back again.
            umem.wide_mut(frame).fill(mark);
            frame.set_len(frame.capacity());
            umem.spread(frame);
            umem.gather(frame);
        }
        for (mark, frame) in (1..).zip(&frames) {
            assert!(umem.bytes(frame).iter().all(|&byte| byte == mark));
        }
        assert_eq!(frames[single].len(), umem.frame_capacity());
    }
}

#[test]
fn spread_data_lies_behind_each_headroom_and_comes_together_again() {
    let (umem, mut pool) = Umem::heap(8, ChunkSize::ThreeOf4096);
    for len in [3841, 7680, 7681, 9014, 11520] {
        let mut frame = pool.alloc_for(len).unwrap();
        let bytes: Vec<u8> = (0..len).map(|at| (at % 251) as u8).collect();
        umem.bytes_mut(&mut frame)[..len].copy_from_slice(&bytes);
        frame.set_len(len);
        let parts = umem.spread(&mut frame);
        assert_eq!(parts, len.div_ceil(3840));
        let memory = umem.wide_mut(&mut frame).to_vec();
        let spread: Vec<&[u8]> = (0..parts)
            .map(|part| &memory[part * 4096 + 256..][..umem.part_len(len, part)])
            .collect();
        assert_eq!(spread.concat(), bytes);
        umem.gather(&mut frame);
        assert_eq!(umem.bytes(&frame), bytes);
        pool.free(frame);
    }
}
