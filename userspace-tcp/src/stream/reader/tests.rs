use super::super::test_memory::{HEADROOM, Heap};
use super::*;
use crate::interface::{NewRange, NewRanges};

const WINDOW: usize = 1000;

/// The byte at a position.
fn byte(at: u64) -> u8 {
    (at % 251) as u8
}

struct Bench {
    heap: Heap,
    reader: ByteReader<Vec<u8>>,
    in_order: u64,
    read: u64,
}

impl Bench {
    fn new(pieces_max: usize) -> Self {
        Self {
            heap: Heap::new(),
            reader: ByteReader::new(WINDOW, pieces_max),
            in_order: 0,
            read: 0,
        }
    }

    /// A segment at `start` of which `ranges` (offset, length) are new.
    fn arrive(&mut self, start: u64, len: u64, ranges: &[(u64, u64)], in_order: u64) -> bool {
        let payload: Vec<u8> = (start..start + len).map(byte).collect();
        let mut new = NewRanges::default();
        for &(offset, len) in ranges {
            assert!(new.push(NewRange {
                offset,
                skip: (offset - start) as u32,
                len: len as u32,
            }));
        }
        self.in_order = in_order;
        let received = Received {
            conn: None,
            new,
            in_order_to: in_order,
        };
        let buf = self.heap.received(&payload);
        self.reader
            .arrived(&mut self.heap, buf, HEADROOM, &received)
    }

    /// A segment that is new as a whole.
    fn whole(&mut self, start: u64, len: u64, in_order: u64) {
        assert!(self.arrive(start, len, &[(start, len)], in_order));
    }

    /// Reads `most` bytes and compares them.
    fn read(&mut self, most: usize) -> usize {
        let mut slices: [&[u8]; 8] = [&[]; 8];
        let filled = self.reader.slices(&self.heap, &mut slices);
        let mut bytes = slices[..filled].concat();
        bytes.truncate(most);
        for (at, found) in (self.read..).zip(&bytes) {
            assert_eq!(*found, byte(at), "byte {at}");
        }
        self.read += bytes.len() as u64;
        let to = self.reader.consume(&mut self.heap, bytes.len());
        assert_eq!(to, self.read);
        bytes.len()
    }

    fn read_all(&mut self) {
        while self.read(usize::MAX) > 0 {}
        assert_eq!(self.read, self.in_order);
        assert_eq!(self.reader.available(), 0);
    }
}

#[test]
fn bytes_in_order_are_read_where_they_lie() {
    let mut bench = Bench::new(16);
    bench.whole(0, 100, 100);
    bench.whole(100, 50, 150);
    assert_eq!(bench.reader.available(), 150);
    assert_eq!(bench.reader.buffers(), 2);
    bench.read_all();
    assert_eq!(bench.heap.alive, 0);
}

#[test]
fn what_comes_early_waits_for_what_is_missing() {
    let mut bench = Bench::new(16);
    bench.whole(200, 100, 0);
    bench.whole(100, 100, 0);
    bench.whole(500, 1, 0);
    assert_eq!(bench.read(usize::MAX), 0);
    bench.whole(0, 100, 300);
    bench.read_all();
    assert_eq!(bench.heap.alive, 1, "the last one still waits");
    bench.whole(300, 200, 501);
    bench.read_all();
    assert_eq!(bench.heap.alive, 0);
}

#[test]
fn a_partial_read_keeps_its_buffer() {
    let mut bench = Bench::new(16);
    bench.whole(0, 100, 100);
    bench.whole(100, 100, 200);
    for most in [1, 98, 2, 90] {
        assert_eq!(bench.read(most), most);
    }
    assert_eq!(bench.heap.alive, 1);
    bench.read_all();
    assert_eq!(bench.heap.alive, 0);
}

#[test]
fn several_new_ranges_of_one_segment_share_its_buffer() {
    let mut bench = Bench::new(16);
    bench.whole(10, 10, 0);
    bench.whole(30, 10, 0);
    assert!(bench.arrive(0, 50, &[(0, 10), (20, 10), (40, 10)], 50));
    assert_eq!(bench.heap.alive, 3);
    assert_eq!(bench.read(15), 15);
    bench.read_all();
    assert_eq!(bench.heap.alive, 0);
}

#[test]
fn old_bytes_in_front_are_skipped() {
    let mut bench = Bench::new(16);
    bench.whole(0, 60, 60);
    bench.read_all();
    assert!(bench.arrive(40, 60, &[(60, 40)], 100));
    bench.read_all();
}

#[test]
fn a_segment_with_nothing_new_gives_its_buffer_back() {
    let mut bench = Bench::new(16);
    assert!(bench.arrive(0, 10, &[], 0));
    assert_eq!(bench.heap.alive, 0);
}

#[test]
fn too_many_pieces_are_copied_until_they_are_read() {
    let mut bench = Bench::new(4);
    for at in (1..WINDOW as u64).rev() {
        bench.whole(at, 1, 0);
        assert!(bench.heap.alive <= 4);
    }
    assert!(bench.reader.is_copying());
    bench.whole(0, 1, WINDOW as u64);
    assert_eq!(bench.read(700), 700);
    // Around the ring's end.
    bench.whole(1000, 600, 1600);
    bench.read_all();
    assert!(!bench.reader.is_copying());
    bench.whole(1600, 10, 1610);
    assert_eq!(bench.heap.alive, 1);
    bench.read_all();
    assert_eq!(bench.heap.alive, 0);
}

#[test]
fn what_can_not_be_of_this_connection_is_not_taken() {
    let mut bench = Bench::new(16);
    bench.whole(0, 100, 100);
    bench.read_all();
    let edge = 100 + WINDOW as u64;
    for (start, len) in [(99, 10), (edge - 9, 10), (u64::MAX - 5, 5)] {
        assert!(!bench.arrive(start, len, &[(start, len)], 100), "{start}");
    }
    assert!(
        !bench.arrive(100, 5, &[(100, 10)], 110),
        "beyond its buffer"
    );
    assert_eq!(bench.heap.alive, 0);
    bench.whole(edge - 10, 10, 100);
    assert_eq!(bench.heap.alive, 1);
}

#[test]
fn clearing_gives_every_buffer_back() {
    let mut bench = Bench::new(16);
    bench.whole(0, 100, 100);
    bench.whole(300, 100, 100);
    bench.reader.clear(&mut bench.heap);
    assert_eq!(bench.heap.alive, 0);
    assert_eq!(bench.reader.available(), 0);
}
