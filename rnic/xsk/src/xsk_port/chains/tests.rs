use super::*;
use crate::{ChunkSize, Umem};

/// Frames of a UMEM, and how many.
fn frames() -> (Umem, FramePool, usize) {
    let (umem, pool) = Umem::heap(24, ChunkSize::Bytes4096);
    let all = pool.available();
    (umem, pool, all)
}

#[test]
fn chunks_become_the_packet_that_they_are_of() {
    let (umem, mut pool, _) = frames();
    let mut gathering = Gathering::default();
    let chain: Vec<Frame> = (0..3).map_while(|_| pool.alloc()).collect();
    let indexes: Vec<usize> = chain.iter().map(Frame::index).collect();
    for (frame, more) in chain.into_iter().zip([true, true, false]) {
        match gathering.add(Some(frame), more, &umem, &mut pool) {
            Gathered::Whole(packet) => {
                assert!(!more);
                let found: Vec<usize> = packet.frames(&umem).map(Frame::index).collect();
                assert_eq!(found, indexes);
                pool.free_packet(packet);
            }
            other => assert_eq!((other, more), (Gathered::Waiting, true)),
        }
        assert_eq!(gathering.is_idle(), !more);
    }
}

#[test]
fn a_packet_of_too_many_chunks_is_lost_to_its_end_and_the_next_is_not() {
    let (umem, mut pool, all) = frames();
    let mut gathering = Gathering::default();
    for at in 0..CHUNKS_MAX + 2 {
        let more = at <= CHUNKS_MAX;
        let frame = pool.alloc();
        let expected = if more {
            Gathered::Waiting
        } else {
            Gathered::Lost
        };
        assert_eq!(gathering.add(frame, more, &umem, &mut pool), expected);
    }
    assert_eq!(pool.available(), all, "no frame is lost with it");
    let frame = pool.alloc();
    assert!(matches!(
        gathering.add(frame, false, &umem, &mut pool),
        Gathered::Whole(_)
    ));
}

#[test]
fn a_packet_with_a_chunk_that_can_not_be_used_is_lost() {
    for bad in 0..3 {
        let (umem, mut pool, all) = frames();
        let mut gathering = Gathering::default();
        for at in 0..3 {
            let frame = pool.alloc();
            let frame = match at == bad {
                true => {
                    pool.free(frame.unwrap());
                    None
                }
                false => frame,
            };
            let expected = if at < 2 {
                Gathered::Waiting
            } else {
                Gathered::Lost
            };
            let gathered = gathering.add(frame, at < 2, &umem, &mut pool);
            assert_eq!(gathered, expected, "chunk {at}, {bad} is bad");
        }
        assert_eq!(pool.available(), all);
        assert!(gathering.is_idle());
    }
}

#[test]
fn a_wide_frame_is_back_with_the_last_of_its_chunks_and_each_counts_once() {
    let mut parts = Parts::new(10, 4, 3);
    assert_eq!(parts.done(3), Done::Frame(3), "a frame of its own");
    parts.sent(7, 3);
    assert_eq!(parts.done(9), Done::Part);
    assert_eq!(parts.done(9), Done::Never, "twice");
    assert_eq!(parts.done(4), Done::Never, "never sent");
    assert_eq!(parts.done(10), Done::Never, "beyond the UMEM");
    assert_eq!(parts.done(usize::MAX), Done::Never);
    assert_eq!(parts.done(7), Done::Part);
    assert_eq!(parts.done(8), Done::Frame(7));
    assert_eq!(parts.done(8), Done::Never);
    parts.sent(4, 2);
    assert_eq!(parts.done(6), Done::Never, "it has no data there");
    assert_eq!(parts.done(4), Done::Part);
    assert_eq!(parts.done(5), Done::Frame(4));
}
