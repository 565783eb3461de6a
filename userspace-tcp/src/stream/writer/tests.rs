use std::net::Ipv4Addr;
use std::time::Duration;

use userspace_net::{Endpoint, FourTuple};

use super::super::test_memory::{HEADROOM, Heap};
use super::*;
use crate::StreamOffset;
use crate::config::{Config, ConnOptions};
use crate::interface::{Event, IcmpError};
use crate::segment::Segment;

/// Full segment of the connection: 1000 bytes of payload, and timestamps.
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

fn byte(at: u64) -> u8 {
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
        let bytes: Vec<u8> = (self.sent..self.sent + len as u64).map(byte).collect();
        let taken = self
            .writer
            .write(&mut self.stack, self.now, &mut self.heap, &bytes);
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
                let data = &payload.buf[HEADROOM..HEADROOM + payload.len as usize];
                assert_eq!(checksum::sum(data), payload.sum);
                bytes.extend_from_slice(data);
                sizes.push(data.len());
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

    fn assert_got(&self, bytes: u64) {
        assert_eq!(self.got.len() as u64, bytes);
        assert!((0..).zip(&self.got).all(|(at, found)| *found == byte(at)));
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
fn the_end_goes_behind_the_last_byte_at_once() {
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

#[test]
fn a_source_puts_bytes_where_they_are_sent_from() {
    let mut bench = Bench::new(false);
    bench.write(300);
    let mut lens = Vec::new();
    let taken = bench
        .writer
        .fill(&mut bench.stack, bench.now, &mut bench.heap, |places| {
            lens = places.iter().map(|place| place.len()).collect();
            let mut left = 2345;
            for place in places {
                for place in place.iter_mut().take(left) {
                    *place = byte(bench.sent);
                    bench.sent += 1;
                    left -= 1;
                }
            }
            Ok::<_, ()>(2345)
        });
    assert_eq!(taken, Ok(2345));
    assert_eq!(lens[..3], [MSS - 300, MSS, MSS]);
    assert_eq!(bench.deliver(), [MSS, MSS]);
    bench.push();
    assert_eq!(bench.deliver(), [645]);
    bench.acknowledge();
    bench.assert_got(2645);
    assert_eq!(bench.heap.alive, 0);
}

#[test]
fn a_source_in_error_takes_no_buffer_along() {
    let mut bench = Bench::new(false);
    let Bench {
        writer,
        stack,
        heap,
        now,
        ..
    } = &mut bench;
    assert_eq!(
        writer.fill(stack, *now, heap, |_| Err("no bytes")),
        Err("no bytes")
    );
    assert_eq!(writer.fill(stack, *now, heap, |_| Ok::<_, ()>(0)), Ok(0));
    assert_eq!((writer.held(), heap.alive), (0, 0));
}

#[test]
fn what_comes_behind_a_pushed_segment_waits_for_its_own_push() {
    let mut bench = Bench::new(false);
    bench.write(10);
    bench.push();
    assert_eq!(bench.deliver(), [10]);
    bench.write(20);
    bench.push();
    assert_eq!(bench.deliver(), [], "Nagle");
    bench.write(MSS);
    assert_eq!(bench.deliver(), [MSS]);
    bench.acknowledge();
    assert_eq!(bench.deliver(), [], "not pushed");
    bench.push();
    assert_eq!(bench.deliver(), [20]);
    bench.assert_got(10 + 20 + MSS as u64);
}

#[test]
fn a_probe_of_the_path_and_what_comes_behind_it_lose_no_byte() {
    let mut bench = Bench::new(false);
    // A router that lets 700 bytes pass makes segments smaller, and ten minutes later something
    // larger is tried.
    bench.write(MSS);
    let sent = bench.stack.poll_transmit(bench.now).unwrap();
    let (conn, payload) = (sent.conn.unwrap(), sent.payload.unwrap());
    let too_big = IcmpError::PacketTooBig { mtu: 700 };
    assert!(
        bench
            .stack
            .icmp(bench.now, sent.tuple, sent.header.seq, too_big)
    );
    let back = bench.stack.transmitted(conn, payload.id, payload.buf);
    assert!(back.is_none());
    bench.deliver();
    bench.acknowledge();
    bench.now += Duration::from_secs(700);
    let mut sizes = Vec::new();
    for _ in 0..20 {
        bench.write(3 * MSS);
        bench.push();
        sizes.extend(bench.deliver());
        bench.acknowledge();
    }
    let small = 700 - 20 - 20 - 12;
    assert!(sizes.iter().any(|size| *size > small), "{sizes:?}");
    bench
        .writer
        .flush(&mut bench.stack, bench.now, &mut bench.heap);
    bench.deliver();
    bench.assert_got(bench.sent);
}

/// RFC 8985 section 7.3: a tail loss probe is a new segment when there is something to send, also where
/// the bytes wait in the layer above for the congestion window.
#[test]
fn a_tail_loss_probe_carries_what_was_not_sent_yet() {
    let mut bench = Bench::new(true);
    bench.write(30 * MSS);
    let sent = bench.deliver().len();
    assert!((10..29).contains(&sent), "the window is the limit: {sent}");
    let probe = std::iter::repeat_with(|| {
        bench.now = bench.stack.next_deadline().unwrap();
        bench.stack.advance(bench.now);
        bench.deliver()
    });
    let probe = probe.take(10).find(|sizes| !sizes.is_empty());
    assert_eq!(probe, Some(vec![MSS]));
    assert_eq!(bench.got.len(), (sent + 1) * MSS);
    let info = bench.stack.info(bench.writer.conn).unwrap();
    assert_eq!(info.counters.tail_probes, 1);
    assert_eq!(info.counters.retransmits, 0);
}
