//! What a segment costs, in nanoseconds, by hand:
//! `cargo test --release -p userspace-tcp --test cost -- --ignored --nocapture`.
#![allow(clippy::unwrap_used)]

use std::net::Ipv4Addr;
use std::time::{Duration, Instant as Clock};

use userspace_net::{Endpoint, FourTuple, Instant, checksum};
use userspace_tcp::{
    Config, ConnId, ConnOptions, Flags, Options, Outgoing, SackBlock, Segment, SeqNum, Stack,
    TcpHeader, Timestamps,
};

const SMSS: u32 = 1448;
const OPTIONS: ConnOptions = ConnOptions { mss: 1460 };
const IN_FLIGHT: u32 = 8192;

fn tuple() -> FourTuple {
    let end = |last| Endpoint::new(Ipv4Addr::new(198, 18, 0, last).into(), 7000);
    FourTuple::new(end(1), end(2))
}

fn config() -> Config {
    Config {
        receive_window: 1 << 30,
        send_queue_segments: IN_FLIGHT as usize,
        window_segments: IN_FLIGHT as usize,
        ..Config::default()
    }
}

/// A stack with a connection, and its peer by hand.
struct Sender {
    stack: Stack<u32>,
    conn: ConnId,
    now: Instant,
    iss: SeqNum,
    echo: u32,
    sent: u32,
}

impl Sender {
    fn new() -> Self {
        let now = Instant::ZERO + Duration::from_secs(1);
        let mut stack = Stack::new(config(), [1; 16], now);
        let conn = stack.connect(now, tuple(), OPTIONS).unwrap();
        let syn = stack.poll_transmit(now).unwrap().header;
        let mut sender = Self {
            stack,
            conn,
            now: now + Duration::from_micros(100),
            iss: syn.seq,
            echo: syn.options.timestamps.unwrap().value,
            sent: 0,
        };
        let options = Options {
            mss: Some(1460),
            window_scale: Some(14),
            sack_permitted: true,
            timestamps: Some(Timestamps {
                value: 1,
                echo: sender.echo,
            }),
            ..Options::default()
        };
        sender.give(Flags::SYN | Flags::ACK, 0, 1, options);
        while sender.stack.poll_event().is_some() {}
        while sender.stack.poll_transmit(now).is_some() {}
        sender
    }

    fn give(&mut self, flags: Flags, seq: u32, ack: u32, options: Options) {
        let header = TcpHeader {
            source_port: 7000,
            destination_port: 7000,
            seq: SeqNum(seq),
            ack: self.iss.add(ack),
            flags,
            window: u16::MAX,
            options,
            ..TcpHeader::default()
        };
        let payload = &[];
        let segment = Segment::new(header, payload);
        self.stack.receive(self.now, tuple(), &segment, OPTIONS);
        while self.stack.poll_released().is_some() {}
    }

    /// An ACK of the first `ack` segments and of ranges of segments.
    fn ack(&mut self, ack: u32, sacked: &[(u32, u32)]) {
        let mut options = Options {
            timestamps: Some(Timestamps {
                value: 1,
                echo: self.echo,
            }),
            ..Options::default()
        };
        let seq = |segment: u32| self.iss.add(1 + segment * SMSS);
        for &(left, right) in sacked {
            options.sack.push(SackBlock {
                left: seq(left),
                right: seq(right),
            });
        }
        self.give(Flags::ACK, 1, 1 + ack * SMSS, options);
    }

    /// Sends what may go, up to `most` in flight; how many went that were not sent before.
    fn send(&mut self, una: u32, most: u32) -> u32 {
        let before = self.sent;
        while self.sent - una < most && self.stack.send_room(self.conn) >= SMSS as usize {
            let outgoing = Outgoing {
                buf: self.sent,
                len: SMSS,
                payload_sum: checksum::PartialSum::ZERO,
            };
            self.stack.send(self.conn, self.now, outgoing).unwrap();
            self.sent += 1;
        }
        self.transmit();
        self.sent - before
    }

    fn transmit(&mut self) {
        while let Some(transmit) = self.stack.poll_transmit(self.now) {
            if let Some(timestamps) = transmit.header.options.timestamps {
                self.echo = timestamps.value;
            }
            if let Some(payload) = transmit.payload {
                let back = self.stack.transmitted(self.conn, payload.id, payload.buf);
                assert!(back.is_none());
            }
        }
    }

    /// Until 8192 segments are in flight; the first of them.
    fn fill(&mut self) -> u32 {
        let mut una = 0;
        loop {
            self.send(una, IN_FLIGHT);
            self.now += Duration::from_micros(100);
            if self.sent - una == IN_FLIGHT {
                return una;
            }
            while una < self.sent {
                una = (una + 2).min(self.sent);
                self.ack(una, &[]);
            }
        }
    }
}

/// The least of several measurements: what else the machine does only adds to it.
#[derive(Default)]
struct Best(Option<Duration>);

impl Best {
    fn take(&mut self, spent: Duration, count: u32) {
        let each = spent / count;
        self.0 = Some(self.0.map_or(each, |best| best.min(each)));
    }

    fn show(&self, what: &str) {
        println!("{what}: {:?}", self.0.unwrap());
    }
}

#[test]
#[ignore = "a measurement"]
fn acknowledgments_without_loss() {
    let mut sender = Sender::new();
    let mut una = sender.fill();
    let mut best = Best::default();
    for _ in 0..400 {
        let start = Clock::now();
        for _ in 0..1000 {
            sender.now += Duration::from_nanos(50);
            una += 2;
            sender.ack(una, &[]);
            sender.send(una, IN_FLIGHT);
        }
        best.take(start.elapsed(), 1000);
    }
    best.show("an ACK of two segments without loss, and sending two");
}

#[test]
#[ignore = "a measurement"]
fn acknowledgments_with_one_hole() {
    let mut best = Best::default();
    for _ in 0..20 {
        let mut sender = Sender::new();
        let una = sender.fill();
        let start = Clock::now();
        for segment in una + 1..una + IN_FLIGHT {
            sender.now += Duration::from_nanos(50);
            sender.ack(una, &[(una + 1, segment + 1)]);
            sender.transmit();
        }
        best.take(start.elapsed(), IN_FLIGHT);
    }
    best.show("an ACK with one hole at the front");
}

#[test]
#[ignore = "a measurement"]
fn acknowledgments_with_many_holes() {
    let mut best = Best::default();
    for _ in 0..10 {
        let mut acks = 0;
        let mut sender = Sender::new();
        let una = sender.fill();
        let start = Clock::now();
        for segment in una + 1..una + IN_FLIGHT {
            let (island, place) = ((segment - una) / 10, (segment - una) % 10);
            if place == 0 {
                continue;
            }
            sender.now += Duration::from_nanos(50);
            let at = |island: u32| una + island * 10;
            let mut blocks = vec![(at(island) + 1, segment + 1)];
            for before in (island.saturating_sub(2)..island).rev() {
                blocks.push((at(before) + 1, at(before) + 10));
            }
            sender.ack(una, &blocks);
            sender.transmit();
            acks += 1;
        }
        best.take(start.elapsed(), acks);
    }
    best.show("an ACK with every tenth segment lost");
}

/// Two stacks, a wire between them, full segments one way.
#[test]
#[ignore = "a measurement"]
fn both_ends() {
    let mut now = Instant::ZERO + Duration::from_secs(1);
    let here = tuple();
    let there = FourTuple::new(here.remote, here.local);
    let mut a: Stack<u32> = Stack::new(Config::default(), [1; 16], now);
    let mut b: Stack<u32> = Stack::new(Config::default(), [2; 16], now);
    b.listen(there.local, 1).unwrap();
    let conn = a.connect(now, here, OPTIONS).unwrap();
    let bytes = vec![0; SMSS as usize];
    let chunk = 4000;
    let (mut sent, mut received) = (0_u32, 0_u32);
    let mut peer = None;
    let mut best = Best::default();
    let mut chunks = 0;
    let mut start = Clock::now();
    while chunks < 500 {
        if received >= chunk {
            best.take(start.elapsed(), received);
            (received, start) = (0, Clock::now());
            chunks += 1;
        }
        now += Duration::from_micros(1);
        while a.poll_event().is_some() {}
        while a.send_room(conn) >= SMSS as usize && a.mss(conn) == SMSS as usize {
            let outgoing = Outgoing {
                buf: sent,
                len: SMSS,
                payload_sum: checksum::PartialSum::ZERO,
            };
            a.send(conn, now, outgoing).unwrap();
            sent += 1;
        }
        while let Some(transmit) = a.poll_transmit(now) {
            let payload = match transmit.payload {
                Some(payload) => {
                    assert!(a.transmitted(conn, payload.id, payload.buf).is_none());
                    &bytes[..payload.len as usize]
                }
                None => &[],
            };
            let segment = Segment::new(transmit.header, payload);
            let got = b.receive(now, there, &segment, OPTIONS);
            while let Some((id, _)) = b.poll_event() {
                peer = Some(id);
            }
            if let (Some(peer), false) = (peer, got.new.is_empty()) {
                received += 1;
                b.consumed(peer, got.in_order_to);
            }
        }
        now += Duration::from_micros(1);
        while let Some(transmit) = b.poll_transmit(now) {
            let segment = Segment::new(transmit.header, &[]);
            a.receive(now, here, &segment, OPTIONS);
        }
        while a.poll_released().is_some() {}
    }
    best.show("a segment, both ends");
}
