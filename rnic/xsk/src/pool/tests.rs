use crate::{ChunkSize, Umem};

#[test]
fn the_frame_used_last_is_given_first() {
    let (_umem, mut pool) = Umem::heap(4, ChunkSize::Octets2048);
    let (a, b) = (pool.alloc().unwrap(), pool.alloc().unwrap());
    let last = a.index();
    pool.free(b);
    pool.free(a);
    assert_eq!(pool.alloc().unwrap().index(), last);
}

#[test]
fn every_frame_is_given_once_and_comes_back_empty() {
    let (umem, mut pool) = Umem::heap(8, ChunkSize::Octets2048);
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
fn a_split_pool_shares_no_frame() {
    let (umem, mut pool) = Umem::heap(8, ChunkSize::Octets2048);
    let mut other = pool.split(3);
    assert_eq!((pool.available(), other.available()), (5, 3));
    let all = std::iter::from_fn(|| pool.alloc()).chain(std::iter::from_fn(|| other.alloc()));
    let mut indexes: Vec<_> = all.map(|frame| frame.index()).collect();
    indexes.sort_unstable();
    indexes.dedup();
    assert_eq!(indexes.len(), umem.frames());
}

#[test]
#[should_panic = "a frame of another UMEM"]
fn a_pool_takes_no_frame_of_another_umem() {
    let (_a, mut pool) = Umem::heap(1, ChunkSize::Octets2048);
    let (_b, mut other) = Umem::heap(1, ChunkSize::Octets2048);
    pool.free(other.alloc().unwrap());
}
