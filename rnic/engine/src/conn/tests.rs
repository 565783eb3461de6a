//! The received stream of a connection, whatever the order and cut of what comes.

use rnic_xsk::{ChunkSize, Frame, Umem};

use super::*;

const WINDOW: u32 = 4096;

struct Bench {
    frames: Frames,
    inbound: Inbound,
    count: usize,
}

impl Bench {
    fn new(frames: u32) -> Self {
        let (umem, pool) = Umem::heap(frames, ChunkSize::Bytes2048);
        let held = ParkedFrames::new(umem.frames(), WINDOW as usize);
        Self {
            frames: Frames { umem, pool, held },
            inbound: Inbound::new(WINDOW),
            count: frames as usize,
        }
    }

    /// Byte `o` of the stream.
    fn byte(o: u64) -> u8 {
        (o % 251) as u8
    }

    fn frame(&mut self, ranges: &[NewRange]) -> Frame {
        let mut frame = self.frames.pool.alloc().unwrap();
        let bytes = self.frames.umem.bytes_mut(&mut frame);
        let mut end = 0;
        for range in ranges {
            for i in 0..range.len {
                bytes[range.start + i] = Self::byte(range.offset + i as u64);
            }
            end = end.max(range.start + range.len);
        }
        frame.set_len(end);
        frame
    }

    fn arrive(&mut self, ranges: &[NewRange], in_order: u64, spare: bool) {
        let frame = self.frame(ranges);
        self.inbound
            .arrived(frame, ranges, in_order, spare, &mut self.frames)
            .unwrap();
    }

    /// Checks and consumes everything in order; says how many bytes.
    fn drain(&mut self) -> usize {
        let mut total = 0;
        loop {
            let mut slices: [&[u8]; SLICES_MAX] = [&[]; SLICES_MAX];
            let filled = self
                .inbound
                .slices(&self.frames.umem, &self.frames.held, &mut slices);
            let bytes = slices[..filled].concat();
            if bytes.is_empty() {
                return total;
            }
            let from = self.inbound.consumed_to();
            for (i, byte) in bytes.iter().enumerate() {
                assert_eq!(*byte, Self::byte(from + i as u64));
            }
            total += bytes.len();
            self.inbound.consume(bytes.len(), &mut self.frames);
        }
    }

    fn assert_nothing_held(&self) {
        assert_eq!(self.frames.held.count(), 0);
        assert_eq!(self.frames.pool.available(), self.count);
    }
}

fn range(offset: u64, start: usize, len: usize) -> NewRange {
    NewRange { offset, start, len }
}

#[test]
fn bytes_out_of_order_park_in_their_frames_and_come_out_in_order() {
    let mut bench = Bench::new(8);
    bench.arrive(&[range(200, 66, 100)], 0, true);
    bench.arrive(&[range(100, 66, 100)], 0, true);
    assert_eq!(bench.drain(), 0);
    assert_eq!(bench.frames.held.count(), 2);
    bench.arrive(&[range(0, 66, 100)], 300, true);
    assert!(!bench.inbound.is_bouncing());
    assert_eq!(bench.drain(), 300);
    bench.assert_nothing_held();
}

#[test]
fn a_frame_with_several_pieces_is_free_after_the_last() {
    let mut bench = Bench::new(8);
    bench.arrive(&[range(100, 54, 50)], 0, true);
    bench.arrive(&[range(0, 54, 100), range(150, 204, 50)], 200, true);
    assert_eq!(bench.drain(), 200);
    bench.assert_nothing_held();
}

#[test]
fn without_spare_frames_bytes_are_bounced_and_none_is_lost() {
    let mut bench = Bench::new(8);
    let mut offset = 0;
    for round in 0..50 {
        bench.arrive(&[range(offset + 700, 54, 300)], offset, round % 2 == 0);
        bench.arrive(&[range(offset, 54, 700)], offset + 1000, true);
        assert_eq!(bench.drain(), 1000);
        offset += 1000;
        assert!(!bench.inbound.is_bouncing(), "empty means back to frames");
    }
    bench.assert_nothing_held();
}

#[test]
fn pieces_in_frames_are_bounced_with_their_bytes() {
    let mut bench = Bench::new(128);
    for i in 0..100 {
        bench.arrive(&[range(i * 3, 54, 3)], i * 3 + 3, true);
    }
    bench.inbound.consume(4, &mut bench.frames);
    bench.inbound.start_bouncing(&mut bench.frames);
    bench.assert_nothing_held();
    assert_eq!(bench.drain(), 296);
}

#[test]
fn bytes_outside_the_window_are_our_own_fault_and_refused() {
    let mut bench = Bench::new(8);
    for outside in [
        range(u64::from(WINDOW) - 10, 0, 11),
        range(u64::MAX - 5, 0, 1),
    ] {
        let frame = bench.frames.pool.alloc().unwrap();
        let result = bench
            .inbound
            .arrived(frame, &[outside], 0, true, &mut bench.frames);
        assert_eq!(result, Err(OutsideWindow));
    }
    bench.assert_nothing_held();
}

#[test]
fn clear_gives_every_frame_back() {
    let mut bench = Bench::new(8);
    bench.arrive(&[range(100, 54, 50)], 0, true);
    bench.arrive(&[range(0, 54, 20)], 20, true);
    bench.inbound.clear(&mut bench.frames);
    bench.assert_nothing_held();
    assert_eq!(bench.inbound.available(), 0);
}

impl Bench {
    fn place(&mut self, start: u64, end: u64) {
        let placed = Placed {
            start,
            end,
            header: [0; DDP_HEADER_MAX],
            ulpdu_len: 0,
        };
        self.inbound.placed(placed, &mut self.frames);
    }

    fn consume_placed(&mut self) {
        self.inbound.consume_placed(&mut self.frames);
    }

    /// The bytes around `offset` without a gap: from where, and how many.
    fn run(&self, offset: u64) -> Option<(u64, usize)> {
        let mut slices: [&[u8]; SLICES_MAX] = [&[]; SLICES_MAX];
        let (start, filled) = self.inbound.run(
            offset,
            SLICES_MAX / 2,
            &self.frames.umem,
            &self.frames.held,
            &mut slices,
        )?;
        let bytes = slices[..filled].concat();
        for (i, byte) in bytes.iter().enumerate() {
            assert_eq!(*byte, Self::byte(start + i as u64));
        }
        Some((start, bytes.len()))
    }
}

#[test]
fn what_is_placed_early_leaves_its_neighbours_and_frees_its_frames() {
    let mut bench = Bench::new(8);
    bench.arrive(&[range(100, 66, 300)], 0, true);
    bench.arrive(&[range(400, 66, 100)], 0, true);
    bench.arrive(&[range(600, 66, 100)], 0, true);
    assert_eq!(bench.run(400), Some((100, 400)));
    assert_eq!(bench.run(600), Some((600, 100)));
    // The middle of a frame, then a whole one.
    bench.place(200, 300);
    bench.place(400, 500);
    assert_eq!(bench.frames.held.count(), 2);
    assert_eq!(bench.run(300), Some((300, 100)));
    let begins = |offset| bench.inbound.begins_at(&bench.frames.held, offset);
    assert_eq!([200, 300, 400, 500].map(begins), [false, true, false, true]);
    // In order: as far as what was placed, which then has its turn.
    bench.arrive(&[range(0, 66, 100)], 500, true);
    assert!(bench.run(50).is_none(), "in order, not to be placed early");
    assert_eq!(bench.drain(), 200);
    let next = bench.inbound.next_placed().unwrap();
    assert_eq!((next.start, next.end), (200, 300));
    assert!(bench.inbound.reaches_placed());
    bench.consume_placed();
    assert!(
        bench.inbound.next_placed().is_none(),
        "100 bytes come before"
    );
    assert_eq!(bench.drain(), 100);
    bench.consume_placed();
    assert_eq!(bench.inbound.consumed_to(), 500);
    bench.arrive(&[range(500, 66, 100)], 700, true);
    assert_eq!(bench.drain(), 200);
    assert!(bench.inbound.is_empty());
    bench.assert_nothing_held();
}

#[test]
fn an_end_forgets_what_was_placed_early() {
    let mut bench = Bench::new(4);
    bench.arrive(&[range(100, 66, 300)], 0, true);
    bench.place(200, 300);
    bench.inbound.clear(&mut bench.frames);
    assert!(bench.inbound.is_empty() && !bench.inbound.reaches_placed());
    bench.assert_nothing_held();
}

/// The notes of all connections share one table: who finds it full waits, and nothing is asked of
/// the heap.
#[test]
fn what_may_be_placed_early_is_bounded_for_all_connections_together() {
    // Twelve notes.
    let mut bench = Bench::new(3);
    let mut other = Inbound::new(WINDOW);
    bench.arrive(&[range(100, 66, 400)], 0, true);
    for offset in (100..140).step_by(10) {
        assert!(bench.run(offset).is_some(), "there is room for one look");
        bench.place(offset, offset + 10);
    }
    std::mem::swap(&mut other, &mut bench.inbound);
    bench.arrive(&[range(100, 66, 400)], 0, true);
    assert!(bench.run(100).is_some());
    bench.place(100, 110);
    assert!(bench.run(110).is_none());
    std::mem::swap(&mut other, &mut bench.inbound);
    assert!(bench.run(140).is_none());
    bench.inbound.clear(&mut bench.frames);
    std::mem::swap(&mut other, &mut bench.inbound);
    assert!(bench.run(110).is_some(), "there is room again");
}
