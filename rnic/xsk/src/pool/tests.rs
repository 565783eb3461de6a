use crate::{ChunkSize, Packet, Umem};

#[test]
fn the_frame_used_last_is_given_first() {
    let (_umem, mut pool) = Umem::heap(4, ChunkSize::Bytes2048);
    let (a, b) = (pool.alloc().unwrap(), pool.alloc().unwrap());
    let last = a.index();
    pool.free(b);
    pool.free(a);
    assert_eq!(pool.alloc().unwrap().index(), last);
}

#[test]
fn every_frame_is_given_once_and_comes_back_empty() {
    let (umem, mut pool) = Umem::heap(8, ChunkSize::Bytes2048);
    let mut frames: Vec<_> = std::iter::from_fn(|| pool.alloc()).collect();
    assert_eq!(frames.len(), umem.frames());
    let mut indexes: Vec<_> = frames.iter().map(|frame| frame.index()).collect();
    indexes.sort_unstable();
    assert_eq!(indexes, (0..8).collect::<Vec<_>>());
    assert_eq!(pool.available(), 0);
    frames[0].set_len(100);
    frames.drain(..).for_each(|frame| pool.free(frame));
    assert!(std::iter::from_fn(|| pool.alloc()).all(|frame| frame.is_empty()));
}

#[test]
fn shares_are_even_in_both_kinds_and_have_no_frame_in_common() {
    for chunk in [ChunkSize::Bytes2048, ChunkSize::Bytes16384] {
        let (umem, pool) = Umem::heap(64, chunk);
        let all = pool.free_chunks();
        let mut shares = pool.shares(3);
        for bytes in [100, umem.frame_capacity()] {
            let counts: Vec<_> = shares.iter().map(|it| it.available_for(bytes)).collect();
            assert!(
                counts
                    .iter()
                    .all(|it| counts[2] <= *it && *it <= counts[2] + 1),
                "{counts:?}"
            );
        }
        assert_eq!(
            shares
                .iter()
                .map(crate::FramePool::free_chunks)
                .sum::<usize>(),
            all
        );
        let frames = |pool: &mut crate::FramePool| -> Vec<usize> {
            let wide = umem.frame_capacity();
            let kinds =
                [100, wide].map(|bytes| std::iter::from_fn(|| pool.alloc_for(bytes)).collect());
            let all: [Vec<crate::Frame>; 2] = kinds;
            all.iter().flatten().map(crate::Frame::index).collect()
        };
        let mut indexes: Vec<_> = shares.iter_mut().flat_map(frames).collect();
        let count = indexes.len();
        indexes.sort_unstable();
        indexes.dedup();
        assert_eq!(indexes.len(), count);
    }
}

#[test]
#[should_panic = "a frame of another UMEM"]
fn a_pool_takes_no_frame_of_another_umem() {
    let (_a, mut pool) = Umem::heap(1, ChunkSize::Bytes2048);
    let (_b, mut other) = Umem::heap(1, ChunkSize::Bytes2048);
    pool.free(other.alloc().unwrap());
}

#[test]
fn packets_of_one_chunk_come_back_together() {
    let (_umem, mut pool) = Umem::heap(4, ChunkSize::Bytes2048);
    let mut frames: Vec<_> = std::iter::from_fn(|| pool.alloc()).collect();
    frames[0].set_len(100);
    let last = frames[3].index();
    pool.free_singles(frames.drain(..).map(Packet::from));
    assert_eq!(pool.available(), 4);
    let first = pool.alloc().unwrap();
    assert_eq!((first.index(), first.len()), (last, 0));
    assert!(std::iter::from_fn(|| pool.alloc()).all(|frame| frame.is_empty()));
}

#[test]
#[should_panic = "a frame of another UMEM"]
fn nor_packets_of_another_one() {
    let (_a, mut pool) = Umem::heap(1, ChunkSize::Bytes2048);
    let (_b, mut other) = Umem::heap(1, ChunkSize::Bytes2048);
    pool.free_singles(other.alloc().map(Packet::from).into_iter());
}

#[test]
#[should_panic = "a packet of one chunk"]
fn a_packet_of_several_frames_is_none_of_one() {
    let (umem, mut pool) = Umem::heap(2, ChunkSize::Bytes2048);
    let mut frames = [pool.alloc(), pool.alloc()];
    pool.free_singles(Packet::of(&umem, &mut frames).into_iter());
}

#[test]
#[should_panic = "a packet of one chunk"]
fn nor_is_one_in_a_wide_frame() {
    let (umem, mut pool) = Umem::heap(8, ChunkSize::TwoOf4096);
    let wide = pool.alloc_for(umem.frame_capacity()).unwrap();
    pool.free_singles(std::iter::once(Packet::from(wide)));
}
