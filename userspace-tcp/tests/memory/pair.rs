//! Two stacks and a link in memory that swaps segments. Each stack's allocations are counted apart
//! from the other's and from the test's.

use std::net::Ipv4Addr;
use std::time::Duration;

use userspace_net::{Endpoint, FourTuple, Instant, checksum};
use userspace_tcp::{
    Config, ConnId, ConnOptions, Event, Flags, Outgoing, Segment, SeqNum, SoftError, Stack,
    TcpHeader,
};

use crate::meter::Meter;

pub const BACKLOG: usize = 64;

const OPTIONS: ConnOptions = ConnOptions { mss: 1460 };

/// Bytes of each segment.
const LEN: usize = 200;

pub struct Pair {
    pub meters: [Meter; 2],
    /// Of segments with payload; 0: none is lost.
    pub lose_one_in: usize,
    stacks: [Stack<()>; 2],
    /// By side and number.
    conns: [Vec<ConnId>; 2],
    now: Instant,
    next_port: u32,
    /// Segments with payload that were sent.
    sent: usize,
    flight: Vec<(usize, FourTuple, TcpHeader, usize)>,
}

fn local() -> Endpoint {
    Endpoint::new(Ipv4Addr::new(198, 18, 0, 1).into(), 7000)
}

impl Pair {
    pub fn new(config: Config) -> Self {
        let now = Instant::ZERO + Duration::from_secs(1);
        let mut meters = [Meter::default(), Meter::default()];
        let stacks = [0, 1].map(|side: u8| {
            let config = config.clone();
            meters[usize::from(side)].run(|| Stack::new(config, [side; 16], now))
        });
        let mut pair = Self {
            meters,
            lose_one_in: 0,
            stacks,
            conns: [Vec::new(), Vec::new()],
            now,
            next_port: 0,
            sent: 0,
            flight: Vec::new(),
        };
        let listened = pair.on(1, |stack, _| stack.listen(local(), BACKLOG));
        listened.unwrap();
        pair
    }

    fn on<T>(&mut self, side: usize, call: impl FnOnce(&mut Stack<()>, Instant) -> T) -> T {
        let (stack, now) = (&mut self.stacks[side], self.now);
        self.meters[side].run(|| call(stack, now))
    }

    /// Side 0 opens connections to side 1.
    pub fn open(&mut self, count: usize) {
        for _ in 0..count {
            self.next_port += 1;
            let addr = Ipv4Addr::new(198, 18, 1, (self.next_port / 50_000) as u8);
            let port = 1024 + (self.next_port % 50_000) as u16;
            let tuple = FourTuple::new((addr.into(), port), local());
            let conn = self.on(0, |stack, now| stack.connect(now, tuple, OPTIONS));
            self.conns[0].push(conn.unwrap());
            self.swap();
        }
        assert_eq!(self.conns[1].len(), self.conns[0].len());
    }

    /// Each of these connections sends so many segments, both ways. Every second one comes late.
    pub fn transfer(&mut self, conns: &[usize], segments: usize) {
        for side in 0..2 {
            for &conn in conns {
                let conn = self.conns[side][conn];
                for _ in 0..segments {
                    let outgoing = Outgoing {
                        buf: (),
                        len: LEN as u32,
                        payload_sum: checksum::sum(&[0; LEN]),
                    };
                    self.on(side, |stack, now| stack.send(conn, now, outgoing))
                        .unwrap();
                }
            }
        }
        self.swap();
    }

    /// Of both sides.
    pub fn retransmits(&self) -> u64 {
        let totals = self.stacks.iter().map(Stack::totals);
        totals.map(|totals| totals.retransmits).sum()
    }

    /// Connections are opened, used and closed.
    pub fn churn(&mut self, count: usize) {
        self.open(count);
        let all: Vec<usize> = (0..count).collect();
        self.transfer(&all, 4);
        for side in 0..2 {
            for conn in std::mem::take(&mut self.conns[side]) {
                self.on(side, |stack, _| stack.close(conn));
                self.swap();
            }
        }
        self.now += Duration::from_millis(1);
        self.swap();
        assert_eq!(self.stacks[0].connections_at(local()), 0);
    }

    /// A SYN of a stranger to side 1; the answer is lost.
    pub fn stray_syn(&mut self, source: u32) {
        let addr = Ipv4Addr::from(0xc613_0000 + source / 50_000);
        let remote = Endpoint::new(addr.into(), 1024 + (source % 50_000) as u16);
        let header = TcpHeader {
            seq: SeqNum(source),
            flags: Flags::SYN,
            window: 1000,
            ..TcpHeader::default()
        };
        self.on(1, |stack, now| {
            let tuple = FourTuple::new(local(), remote);
            stack.receive(now, tuple, &Segment::new(header, &[]), OPTIONS);
            while stack.poll_transmit(now).is_some() {}
        });
    }

    /// Until neither side has anything to say.
    fn swap(&mut self) {
        loop {
            for side in 0..2 {
                self.collect(side);
            }
            if !self.flight.is_empty() {
                self.deliver();
                continue;
            }
            // Delayed acknowledgments and retransmissions, but no end of TIME-WAIT.
            let soon = self.now + Duration::from_secs(2);
            let next = self.stacks.iter().filter_map(Stack::next_deadline).min();
            let Some(next) = next.filter(|&next| next <= soon) else {
                return;
            };
            self.now = self.now.max(next);
            for side in 0..2 {
                self.on(side, |stack, now| stack.advance(now));
            }
        }
    }

    /// What a side wants to send.
    fn collect(&mut self, side: usize) {
        while let Some(transmit) = self.on(side, |stack, now| stack.poll_transmit(now)) {
            let mut len = 0;
            if let (Some(conn), Some(payload)) = (transmit.conn, transmit.payload) {
                len = payload.len as usize;
                let back = |stack: &mut Stack<()>, _| stack.transmitted(conn, payload.id, ());
                let _ = self.on(side, back);
                self.sent += 1;
                if self.lose_one_in > 0 && self.sent.is_multiple_of(self.lose_one_in) {
                    continue;
                }
            }
            let tuple = FourTuple {
                local: transmit.tuple.remote,
                remote: transmit.tuple.local,
            };
            self.flight.push((1 - side, tuple, transmit.header, len));
        }
        while self.on(side, |stack, _| stack.poll_released()).is_some() {}
    }

    /// Two neighbours change places.
    fn deliver(&mut self) {
        let mut flight = std::mem::take(&mut self.flight);
        for pair in flight.chunks_mut(2) {
            pair.reverse();
        }
        self.now += Duration::from_micros(100);
        for (side, tuple, header, len) in flight.drain(..) {
            let payload = [0; LEN];
            let segment = Segment::new(header, &payload[..len]);
            let received = self.on(side, |stack, now| {
                stack.receive(now, tuple, &segment, OPTIONS)
            });
            while let Some((conn, event)) = self.on(side, |stack, _| stack.poll_event()) {
                match event {
                    Event::Incoming { .. } => self.conns[side].push(conn),
                    Event::Established | Event::PeerClosed => {}
                    Event::Closed | Event::TimeWaitOver => {}
                    // Where one in ten is lost, some segment is lost each time that it goes out.
                    Event::SoftError(SoftError::NoAnswer) if self.lose_one_in > 0 => {}
                    event => panic!("{event:?}"),
                }
            }
            if let Some(conn) = received.conn {
                self.on(side, |stack, _| stack.consumed(conn, received.in_order_to));
            }
        }
        self.flight = flight;
    }
}
