use super::*;
use crate::ChunkSize;

fn frame_of(umem: &Umem, pool: &mut FramePool, bytes: &[u8]) -> Frame {
    let mut frame = pool.alloc().unwrap();
    umem.bytes_mut(&mut frame)[..bytes.len()].copy_from_slice(bytes);
    frame.set_len(bytes.len());
    frame
}

#[test]
fn frames_arrive_in_order_with_their_bytes_and_come_back_with_their_cookies() {
    let (umem_a, mut pool_a) = Umem::heap(8, ChunkSize::Bytes2048);
    let (umem_b, mut pool_b) = Umem::heap(8, ChunkSize::Bytes2048);
    let (mut a, mut b) = MemoryPort::pair(&umem_a, &umem_b, 8);
    for number in 0..5_u8 {
        let frame = frame_of(&umem_a, &mut pool_a, &[number; 60]);
        a.transmit(frame, u64::from(number) + 100).unwrap();
    }
    let mut out = Vec::new();
    assert_eq!(
        b.receive(&mut pool_b, &mut out, 8),
        0,
        "nothing leaves before flush"
    );
    assert_eq!(a.unsent(), 5);
    a.flush().unwrap();
    assert_eq!(b.receive(&mut pool_b, &mut out, 3), 3);
    assert_eq!(b.receive(&mut pool_b, &mut out, 8), 2);
    for (number, frame) in (0..).zip(&out) {
        assert_eq!(umem_b.bytes(frame.first()), [number; 60]);
    }
    for number in 0..5_u8 {
        let (frame, cookie) = a.completed().unwrap();
        assert_eq!(cookie, u64::from(number) + 100);
        assert_eq!(umem_a.bytes(&frame), [number; 60]);
        pool_a.free(frame);
    }
    assert!(a.completed().is_none());
    assert_eq!(pool_a.available(), 8);
    assert_eq!(
        (a.statistics().transmitted, b.statistics().received),
        (5, 5)
    );
    assert_eq!(b.statistics().received_bytes, 300);
}

#[test]
fn a_full_wire_holds_frames_back_and_loses_none() {
    let (umem, mut pool) = Umem::heap(16, ChunkSize::Bytes2048);
    let (mut a, mut b) = MemoryPort::pair(&umem, &umem, 2);
    let send = |a: &mut MemoryPort, pool: &mut FramePool, number: u8| {
        let frame = frame_of(&umem, pool, &[number; 60]);
        a.transmit(frame, 0).map_err(|frame| pool.free(frame))
    };
    for number in 0..2 {
        send(&mut a, &mut pool, number).unwrap();
    }
    a.flush().unwrap();
    while let Some((frame, _)) = a.completed() {
        pool.free(frame);
    }
    for number in 2..4 {
        send(&mut a, &mut pool, number).unwrap();
    }
    assert_eq!(a.transmit_room(), 0);
    send(&mut a, &mut pool, 4).unwrap_err();
    a.flush().unwrap();
    assert!(a.completed().is_none(), "the wire is full");
    assert_eq!(a.unsent(), 2);
    let mut out = Vec::new();
    assert_eq!(b.receive(&mut pool, &mut out, 8), 2);
    a.flush().unwrap();
    assert_eq!(b.receive(&mut pool, &mut out, 8), 2);
    let numbers: Vec<u8> = out
        .iter()
        .map(|frame| umem.bytes(frame.first())[0])
        .collect();
    assert_eq!(numbers, [0, 1, 2, 3]);
    assert_eq!(
        (a.statistics().transmit_ring_full, a.statistics().send_busy),
        (1, 1)
    );
}

#[test]
fn without_a_free_frame_nothing_is_received_and_nothing_is_lost() {
    let (umem_a, mut pool_a) = Umem::heap(2, ChunkSize::Bytes2048);
    let (umem_b, mut pool_b) = Umem::heap(1, ChunkSize::Bytes2048);
    let (mut a, mut b) = MemoryPort::pair(&umem_a, &umem_b, 4);
    a.transmit(frame_of(&umem_a, &mut pool_a, &[1; 60]), 0)
        .unwrap();
    a.flush().unwrap();
    let held = pool_b.alloc().unwrap();
    let mut out = Vec::new();
    assert_eq!(b.receive(&mut pool_b, &mut out, 8), 0);
    assert_eq!(b.statistics().receive_no_frame, 1);
    pool_b.free(held);
    assert_eq!(b.receive(&mut pool_b, &mut out, 8), 1);
}

#[test]
fn a_frame_too_large_for_the_other_end_is_lost_as_on_any_link() {
    let (umem_a, mut pool_a) = Umem::heap(2, ChunkSize::Bytes4096);
    let (umem_b, mut pool_b) = Umem::heap(2, ChunkSize::Bytes2048);
    let (mut a, mut b) = MemoryPort::pair(&umem_a, &umem_b, 4);
    a.transmit(frame_of(&umem_a, &mut pool_a, &[1; 3000]), 7)
        .unwrap();
    a.transmit(frame_of(&umem_a, &mut pool_a, &[2; 60]), 8)
        .unwrap();
    a.flush().unwrap();
    let mut out = Vec::new();
    assert_eq!(b.receive(&mut pool_b, &mut out, 8), 1);
    assert_eq!(umem_b.bytes(out[0].first()), [2; 60]);
    assert_eq!(a.completed().unwrap().1, 7);
    assert_eq!(a.completed().unwrap().1, 8);
    assert_eq!(a.statistics().send_dropped, 1);
}

#[test]
fn large_frames_arrive_in_as_many_chunks_as_they_take() {
    let (umem_a, mut pool_a) = Umem::heap(24, ChunkSize::ThreeOf4096);
    let (umem_b, mut pool_b) = Umem::heap(24, ChunkSize::ThreeOf4096);
    let (mut a, mut b) = MemoryPort::pair(&umem_a, &umem_b, 8);
    let all = pool_b.available();
    for len in [3840, 3841, 9014, 11520] {
        let bytes: Vec<u8> = (0..len).map(|at| (at % 253) as u8).collect();
        let mut frame = pool_a.alloc_for(len).unwrap();
        umem_a.bytes_mut(&mut frame)[..len].copy_from_slice(&bytes);
        frame.set_len(len);
        a.transmit(frame, 1).unwrap();
        a.flush().unwrap();
        pool_a.free(a.completed().unwrap().0);

        // All of its chunks or none.
        let missing = len.div_ceil(3840) - 1;
        let taken: Vec<Frame> = std::iter::from_fn(|| pool_b.alloc()).collect();
        let mut taken = taken.into_iter();
        taken
            .by_ref()
            .take(missing)
            .for_each(|frame| pool_b.free(frame));
        let mut out = Vec::new();
        assert_eq!(b.receive(&mut pool_b, &mut out, 8), 0);
        assert_eq!(pool_b.available(), missing);
        taken.for_each(|frame| pool_b.free(frame));

        assert_eq!(b.receive(&mut pool_b, &mut out, 8), 1);
        let packet = out.remove(0);
        assert_eq!(packet.frame_count(), missing + 1);
        let slices: Vec<_> = packet.slices(&umem_b).collect();
        assert_eq!(slices.concat(), bytes);
        pool_b.free_packet(packet);
        assert_eq!(pool_b.available(), all);
    }
}

#[test]
fn a_test_stands_between_a_port_and_the_world() {
    let (umem, mut pool) = Umem::heap(4, ChunkSize::Bytes2048);
    let (mut port, wire) = MemoryPort::intercepted(&umem, 2);
    let mut bytes = Vec::new();
    assert!(!wire.take(&mut bytes));
    port.transmit(frame_of(&umem, &mut pool, b"an outgoing frame"), 0)
        .unwrap();
    port.flush().unwrap();
    assert_eq!(wire.waiting(), 1);
    assert!(wire.take(&mut bytes));
    assert_eq!(bytes, b"an outgoing frame");

    assert!(wire.push(b"first"));
    assert!(wire.push(b"second"));
    assert!(!wire.push(b"third"), "the wire is bounded");
    assert!(!wire.push(&[0; 1793]), "larger than a frame");
    let mut out = Vec::new();
    assert_eq!(port.receive(&mut pool, &mut out, 8), 2);
    assert_eq!(umem.bytes(out[1].first()), b"second");
}

#[test]
fn a_packet_that_is_larger_than_a_frame_comes_in_several() {
    let (umem, mut pool) = Umem::heap(18, ChunkSize::Bytes2048);
    let (mut port, wire) = MemoryPort::intercepted_with_super_packets(&umem, 2);
    let bytes: Vec<u8> = (0..18 * 1792_u32).map(|at| (at * 5) as u8).collect();
    let mut out = Vec::new();
    for _ in 0..2 {
        assert!(wire.push(&bytes));
        assert_eq!(port.receive(&mut pool, &mut out, 8), 1);
        let packet = out.pop().unwrap();
        assert_eq!(packet.frame_count(), 18);
        assert_eq!(packet.slices(&umem).collect::<Vec<_>>().concat(), bytes);
        pool.free_packet(packet);
    }
    assert!(!wire.push(&vec![0; 18 * 1792 + 1]));
}

#[test]
#[should_panic = "a frame of another UMEM"]
fn a_port_takes_no_frame_of_another_umem() {
    let (umem, _pool) = Umem::heap(1, ChunkSize::Bytes2048);
    let (_other, mut pool) = Umem::heap(1, ChunkSize::Bytes2048);
    let (mut port, _wire) = MemoryPort::intercepted(&umem, 2);
    let _ = port.transmit(pool.alloc().unwrap(), 0);
}
