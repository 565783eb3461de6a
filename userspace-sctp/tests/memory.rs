//! What a stack takes of memory: nothing for packets of an association that exists, whether packets are lost or not,
//! and nothing for a flood of INITs or packets out of the blue.
#![allow(clippy::unwrap_used)]

#[path = "../../userspace-tcp/tests/memory/meter.rs"]
mod meter;

use std::net::SocketAddr;
use std::time::Duration;

use meter::Meter;
use userspace_net::Instant;
use userspace_sctp::chunk::{Chunk, Init};
use userspace_sctp::packet::{Header, Writer};
use userspace_sctp::parameter::Parameters;
use userspace_sctp::{AssocId, Config, Ends, Event, Outgoing, Stack, Tsn};

type Buffer = &'static [u8];

static MESSAGE: [u8; 1400] = [5; 1400];

fn end(side: usize) -> SocketAddr {
    SocketAddr::new([198, 18, 0, 1 + side as u8].into(), 5000)
}

/// Two stacks with one association.
struct Pair {
    stacks: [Stack<Buffer>; 2],
    ids: [Option<AssocId>; 2],
    now: Instant,
    /// Packets since the beginning, and which of them are lost: each so many.
    packets: u64,
    loss: u64,
    came: usize,
    packet: [u8; 1500],
}

impl Pair {
    fn new() -> Self {
        let now = Instant::ZERO;
        let make = |key| Stack::new(Config::default(), [key; 16], now);
        let mut stacks = [make(1), make(2)];
        stacks[1].listen(end(1)).unwrap();
        let ends = Ends {
            local: end(0),
            remote: end(1),
        };
        stacks[0].connect(now, ends).unwrap();
        Self {
            stacks,
            ids: [None; 2],
            now,
            packets: 0,
            loss: u64::MAX,
            came: 0,
            packet: [0; 1500],
        }
    }

    /// Moves packets until none is left, and then the time to the next deadline.
    fn turn(&mut self) {
        let mut is_moving = true;
        while is_moving {
            is_moving = false;
            for from in 0..2 {
                while let Some(sent) = self.stacks[from].poll_transmit(self.now, &mut self.packet) {
                    is_moving = true;
                    self.packets += 1;
                    if self.packets.is_multiple_of(self.loss) {
                        continue;
                    }
                    self.receive(1 - from, sent.len);
                }
            }
        }
        self.now += Duration::from_millis(100);
        for stack in &mut self.stacks {
            stack.advance(self.now);
            while stack.poll_released().is_some() {}
        }
    }

    fn receive(&mut self, to: usize, len: usize) {
        let (now, packet) = (self.now, &self.packet[..len]);
        let mut bytes = 0;
        let (local, remote) = (end(to).ip(), end(1 - to).ip());
        let stack = &mut self.stacks[to];
        stack.receive(now, local, remote, None, packet, |_, message| {
            bytes += message.payload.len();
        });
        while let Some((id, event)) = stack.poll_event() {
            if matches!(event, Event::Incoming(_) | Event::Established(_)) {
                self.ids[to] = Some(id);
            }
        }
        self.came += bytes;
        if let Some(id) = self.ids[to] {
            stack.consumed(now, id, bytes);
        }
    }

    fn transfer(&mut self, count: usize) {
        let all = self.came + 2 * count * MESSAGE.len();
        let mut left = [count; 2];
        while self.came < all {
            for (at, left) in left.iter_mut().enumerate() {
                let id = self.ids[at].expect("an association");
                while *left > 0 && self.stacks[at].room(id) > 0 {
                    let outgoing = Outgoing {
                        stream: 0,
                        protocol: 0,
                        buffer: &MESSAGE[..],
                    };
                    self.stacks[at].post(self.now, id, outgoing).unwrap();
                    *left -= 1;
                }
            }
            self.turn();
        }
    }
}

#[test]
fn packets_of_an_association_take_no_memory() {
    let mut pair = Pair::new();
    pair.turn();
    pair.transfer(3000);
    for loss in [u64::MAX, 13] {
        pair.loss = loss;
        let mut meter = Meter::default();
        meter.run(|| pair.transfer(2000));
        assert_eq!((meter.allocations, meter.bytes), (0, 0), "loss {loss}");
    }
}

#[test]
fn floods_take_no_memory() {
    let mut pair = Pair::new();
    pair.turn();
    let mut meter = Meter::default();
    let counters = meter.run(|| {
        let stack = &mut pair.stacks[1];
        let mut packet = [0; 200];
        for number in 1..=100_000 {
            let ports = Header {
                source: (number % 60_000 + 1) as u16,
                destination: 5000,
                tag: number % 2,
            };
            let mut writer = Writer::new(&mut packet, ports).unwrap();
            let init = Chunk::Init(Init {
                tag: number,
                window: 100_000,
                outbound_streams: 1,
                inbound_streams: 1,
                initial_tsn: Tsn(1),
                parameters: Parameters::default(),
            });
            let stray = Chunk::Heartbeat(b"beat");
            let chunk = if number % 2 == 0 { init } else { stray };
            writer.chunk(&chunk).unwrap();
            let len = writer.finish();
            let (local, remote) = (end(1).ip(), [198, 18, 0, 9].into());
            stack.receive(pair.now, local, remote, None, &packet[..len], |_, _| {});
        }
        stack.counters()
    });
    assert_eq!((meter.allocations, meter.bytes), (0, 0));
    assert_eq!(counters.strangers, 50_000);
    assert!(counters.answers_dropped > 0);
    assert_eq!(pair.stacks[1].associations().count(), 1);
}
