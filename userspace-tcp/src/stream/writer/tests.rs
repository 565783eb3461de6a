use std::net::Ipv4Addr;
use std::time::Duration;

use super::super::test_memory::{HEADROOM, Heap};
use super::*;
use crate::StreamOffset;
use crate::config::{Config, ConnOptions};
use crate::interface::Event;
use crate::segment::Segment;
use crate::tuple::{Endpoint, FourTuple};

/// Full segment of the connection: 1000 octets of payload, and timestamps.
const MSS: usize = 1000;

/// A writer, and a peer that acknowledges when it is told to.
struct Bench {
    heap: Heap,
    stack: Stack<Vec<u8>>,
    writer: ByteWriter<Vec<u8>>,
    peer: Stack<Vec<u8>>,
    now: Instant,
    /// Everything that the peer has received.
    got: Vec<u8>,
    sent: u64,
    fin: bool,
    /// Most that the peer's window field says.
    peer_offers: u16,
}

fn octet(at: u64) -> u8 {
    (at % 251) as u8
}

impl Bench {
    fn new(nodelay: bool) -> Self {
        Self::with_peer(nodelay, u16::MAX)
    }

    fn with_peer(nodelay: bool, peer_offers: u16) -> Self {
        let now = Instant::ZERO + Duration::from_secs(1);
        let config = Config {
            mss: MSS as u16 + 12,
            window_scale: peer_offers == u16::MAX,
            ..Config::default()
        };
        let mut stack = Stack::new(config.clone(), [1; 16], now);
        let mut peer = Stack::new(config, [2; 16], now);
        let end = |host| Endpoint::new(Ipv4Addr::new(198, 18, 0, host).into(), 5000);
        peer.listen(end(2), 1).unwrap();
        let options = ConnOptions {
            mss: MSS as u16 + 12,
        };
        let conn = stack
            .connect(now, FourTuple::new(end(1), end(2)), options)
            .unwrap();
        let mut bench = Self {
            heap: Heap::new(),
            stack,
            writer: ByteWriter::new(conn, nodelay),
            peer,
            now,
            got: Vec::new(),
            sent: 0,
            fin: false,
            peer_offers,
        };
        for _ in 0..3 {
            bench.deliver();
            bench.acknowledge();
        }
        assert_eq!(bench.stack.poll_event(), Some((conn, Event::Established)));
        bench
    }

    fn write(&mut self, len: usize) -> usize {
        let octets: Vec<u8> = (self.sent..self.sent + len as u64).map(octet).collect();
        let taken = self
            .writer
            .write(&mut self.stack, self.now, &mut self.heap, &octets);
        self.sent += taken as u64;
        taken
    }

    fn push(&mut self) {
        self.writer.push(&mut self.stack, self.now, &mut self.heap);
    }

    /// What the writer's side sends now goes to the peer; the sizes of its segments.
    fn deliver(&mut self) -> Vec<usize> {
        let mut sizes = Vec::new();
        while let Some(transmit) = self.stack.poll_transmit(self.now) {
            let mut bytes = vec![0; transmit.header.header_len()];
            transmit.header.emit(&mut bytes);
            self.fin |= transmit.header.flags.fin();
            if let Some(payload) = transmit.payload {
                let octets = &payload.buf[HEADROOM..HEADROOM + payload.len as usize];
                assert_eq!(checksum::sum(octets), payload.sum);
                bytes.extend_from_slice(octets);
                sizes.push(octets.len());
                let conn = transmit.conn.unwrap();
                if let Some(buf) = self.stack.transmitted(conn, payload.id, payload.buf) {
                    self.heap.free(buf);
                }
            }
            let tuple = FourTuple::new(transmit.tuple.remote, transmit.tuple.local);
            let segment = Segment::parse(&bytes).unwrap();
            let options = ConnOptions {
                mss: MSS as u16 + 12,
            };
            let received = self.peer.receive(self.now, tuple, &segment, options);
            for range in received.new.iter() {
                assert_eq!(range.offset, self.got.len() as StreamOffset);
                let skip = range.skip as usize;
                self.got
                    .extend(&segment.payload[skip..skip + range.len as usize]);
            }
        }
        sizes
    }

    /// The peer acknowledges what it has, after its delay.
    fn acknowledge(&mut self) {
        self.now += Duration::from_millis(10);
        self.peer.advance(self.now);
        while let Some(transmit) = self.peer.poll_transmit(self.now) {
            let mut header = transmit.header;
            header.window = header.window.min(self.peer_offers);
            let mut bytes = vec![0; header.header_len()];
            header.emit(&mut bytes);
            let tuple = FourTuple::new(transmit.tuple.remote, transmit.tuple.local);
            let segment = Segment::parse(&bytes).unwrap();
            let options = ConnOptions { mss: MSS as u16 };
            self.stack.receive(self.now, tuple, &segment, options);
        }
        while let Some(buf) = self.stack.poll_released() {
            self.heap.free(buf);
        }
        self.writer
            .settle(&mut self.stack, self.now, &mut self.heap);
    }

    fn assert_got(&self, octets: u64) {
        assert_eq!(self.got.len() as u64, octets);
        assert!((0..).zip(&self.got).all(|(at, found)| *found == octet(at)));
    }
}

#[test]
fn small_writes_join_in_full_segments() {
    let mut bench = Bench::new(false);
    for _ in 0..25 {
        assert_eq!(bench.write(100), 100);
    }
    assert_eq!(bench.deliver(), [MSS, MSS]);
    assert_eq!(bench.writer.held(), 500);
}

#[test]
fn a_large_write_is_cut_in_full_segments() {
    let mut bench = Bench::new(false);
    assert_eq!(bench.write(4321), 4321);
    assert_eq!(bench.deliver(), [MSS; 4]);
    bench.push();
    assert_eq!(bench.deliver(), [321], "its small end goes at once");
    bench.acknowledge();
    bench.assert_got(4321);
    assert_eq!(bench.heap.alive, 0);
}

#[test]
fn what_is_not_pushed_waits_for_company() {
    let mut bench = Bench::new(false);
    bench.write(10);
    bench.acknowledge();
    assert_eq!(bench.deliver(), []);
    bench.push();
    assert_eq!(bench.deliver(), [10]);
}

#[test]
fn a_second_small_segment_waits_for_the_first_ones_acknowledgment() {
    let mut bench = Bench::new(false);
    bench.write(10);
    bench.push();
    assert_eq!(bench.deliver(), [10]);
    for _ in 0..5 {
        bench.write(20);
        bench.push();
        assert_eq!(bench.deliver(), []);
    }
    bench.acknowledge();
    assert_eq!(bench.deliver(), [100]);
    bench.acknowledge();
    bench.assert_got(110);
}

#[test]
fn full_segments_go_whatever_is_unacknowledged() {
    let mut bench = Bench::new(false);
    bench.write(10);
    bench.push();
    bench.write(MSS + 5);
    bench.push();
    assert_eq!(bench.deliver(), [10, MSS]);
    bench.acknowledge();
    assert_eq!(bench.deliver(), [5]);
}

#[test]
fn without_nagles_rule_every_push_is_a_segment() {
    let mut bench = Bench::new(true);
    for _ in 0..3 {
        bench.write(10);
        bench.push();
    }
    assert_eq!(bench.deliver(), [10, 10, 10]);
}

#[test]
fn a_flush_does_not_wait() {
    let mut bench = Bench::new(false);
    bench.write(10);
    bench.push();
    bench.write(10);
    bench
        .writer
        .flush(&mut bench.stack, bench.now, &mut bench.heap);
    assert_eq!(bench.deliver(), [10, 10]);
}

#[test]
fn the_end_goes_behind_the_last_octet_at_once() {
    let mut bench = Bench::new(false);
    bench.write(10);
    bench.push();
    bench.write(20);
    bench
        .writer
        .close(&mut bench.stack, bench.now, &mut bench.heap);
    assert!(bench.writer.is_closing());
    assert_eq!(bench.write(1), 0, "nothing behind the end");
    assert_eq!(bench.deliver(), [10, 20]);
    assert!(bench.fin);
    bench.acknowledge();
    bench.assert_got(30);
    assert_eq!(bench.heap.alive, 0);
}

#[test]
fn the_end_waits_for_room() {
    let mut bench = Bench::new(false);
    let mut written = 0;
    loop {
        let taken = bench.write(777);
        written += taken as u64;
        if taken < 777 {
            break;
        }
    }
    assert!(bench.writer.held() > 0);
    bench
        .writer
        .close(&mut bench.stack, bench.now, &mut bench.heap);
    bench.deliver();
    assert!(!bench.fin);
    while !bench.fin {
        bench.acknowledge();
        bench.deliver();
    }
    bench.acknowledge();
    bench.assert_got(written);
    assert_eq!(bench.heap.alive, 0);
}

#[test]
fn no_more_is_taken_than_the_windows_let_go_and_one_segment() {
    let mut bench = Bench::new(false);
    let room = bench.stack.send_room(bench.writer.conn);
    assert_eq!(bench.writer.room(&bench.stack), room);
    let taken = bench.write(1 << 20);
    assert!(taken >= room && taken <= room + MSS, "{taken} of {room}");
    assert!(bench.writer.room(&bench.stack) < MSS);
}

#[test]
fn without_a_buffer_nothing_is_taken() {
    let mut bench = Bench::new(false);
    bench.heap.limit = 2;
    assert_eq!(bench.write(5 * MSS), 2 * MSS);
    bench.deliver();
    bench.acknowledge();
    assert_eq!(bench.write(5 * MSS), 2 * MSS);
}

#[test]
fn segments_are_at_most_half_of_a_small_peers_window() {
    let mut bench = Bench::with_peer(false, 600);
    assert_eq!(bench.stack.cut(bench.writer.conn), 300);
    bench.write(700);
    assert_eq!(bench.deliver(), [300, 300]);
    bench.push();
    assert_eq!(bench.deliver(), [], "its window is full");
    bench.acknowledge();
    assert_eq!(bench.deliver(), [100]);
}

#[test]
fn a_gone_connection_takes_nothing() {
    let mut bench = Bench::new(false);
    bench.write(10);
    bench.stack.abort(bench.writer.conn);
    assert_eq!(bench.write(10), 0);
    assert_eq!(bench.writer.room(&bench.stack), 0);
    bench.push();
    bench.writer.release(&mut bench.heap);
    assert_eq!(bench.heap.alive, 0);
}
