//! A link that serves many connections in turn, as the queue of a busy switch does: some segments of
//! one, as many of the next, and so on. In which order segments reach the receiver does not depend on
//! how the sender schedules its connections.

use std::collections::VecDeque;
use std::ops::Range;

use rnic_xsk::{MemoryPort, MemoryWire, Umem};

/// Turns of connections that are carried at a time: fewer segments than the sender sends in a poll. So its
/// connections wait for their acknowledgments and not for one another, and no turn is cut short.
const TURNS: usize = 8;
/// Where the TCP source port is: after Ethernet and IPv4 headers, neither with options.
const SOURCE_PORT: Range<usize> = 34..36;

pub struct Interleaver {
    sender: MemoryWire,
    receiver: MemoryWire,
    /// Segments of one connection before the next gets its turn.
    segments: usize,
    /// The source port of the first connection; the others have those after it.
    first_port: u16,
    /// What the sender sent and the receiver does not have yet, by connection.
    queues: Vec<VecDeque<Vec<u8>>>,
    /// Connections with a queue that is not empty; the front one has its turn.
    active: VecDeque<usize>,
    /// Buffers that are free.
    spare: Vec<Vec<u8>>,
    sent: Runs,
    carried: Runs,
}

/// Consecutive segments of one connection.
#[derive(Default)]
struct Runs {
    /// The connection of the last one, and its segments in a row.
    last: Option<(usize, usize)>,
    runs: usize,
    /// Those of as many segments as a turn has.
    full: usize,
}

impl Runs {
    fn add(&mut self, connection: usize, turn: usize) {
        match &mut self.last {
            Some((last, segments)) if *last == connection => *segments += 1,
            last => {
                if let Some((_, segments)) = last.replace((connection, 1)) {
                    self.runs += 1;
                    self.full += usize::from(segments == turn);
                }
            }
        }
    }
}

impl Interleaver {
    /// The ports of sender and receiver, and the link between them for so many connections.
    pub fn new(
        [sender, receiver]: [&Umem; 2],
        depth: usize,
        segments: usize,
        first_port: u16,
        connections: usize,
    ) -> (MemoryPort, MemoryPort, Self) {
        let (sender_port, sender) = MemoryPort::intercepted(sender, depth);
        let (receiver_port, receiver) = MemoryPort::intercepted(receiver, depth);
        let interleaver = Self {
            sender,
            receiver,
            segments,
            first_port,
            queues: vec![VecDeque::new(); connections],
            active: VecDeque::with_capacity(connections),
            spare: Vec::new(),
            sent: Runs::default(),
            carried: Runs::default(),
        };
        (sender_port, receiver_port, interleaver)
    }

    /// Takes all that the sender sent, and hands over the next connections' turns.
    pub fn carry_out(&mut self) {
        let mut frame = self.spare.pop().unwrap_or_default();
        while self.sender.take(&mut frame) {
            let port = u16::from_be_bytes(frame[SOURCE_PORT].try_into().unwrap());
            let connection = usize::from(port - self.first_port);
            let next = self.spare.pop().unwrap_or_default();
            let frame = std::mem::replace(&mut frame, next);
            if self.queues[connection].is_empty() {
                self.active.push_back(connection);
            }
            self.queues[connection].push_back(frame);
            self.sent.add(connection, self.segments);
        }
        self.spare.push(frame);
        for _ in 0..TURNS {
            let Some(connection) = self.active.pop_front() else {
                break;
            };
            let queue = &mut self.queues[connection];
            let turn = queue.len().min(self.segments);
            for frame in queue.drain(..turn) {
                assert!(
                    self.receiver.push(&frame),
                    "the wire to the receiver is full"
                );
                self.carried.add(connection, self.segments);
                self.spare.push(frame);
            }
            if !queue.is_empty() {
                self.active.push_back(connection);
            }
        }
    }

    /// Hands over all that the receiver sent.
    pub fn carry_back(&mut self) {
        let mut frame = self.spare.pop().unwrap_or_default();
        while self.receiver.take(&mut frame) {
            assert!(self.sender.push(&frame), "the wire to the sender is full");
        }
        self.spare.push(frame);
    }

    /// That the connections took turns as long as was asked for, at the sender and at the receiver: else
    /// something else was measured.
    pub fn assert_took_turns(&self) {
        for (side, runs) in [("sender", &self.sent), ("receiver", &self.carried)] {
            assert!(
                runs.full * 10 >= runs.runs * 9,
                "{side}: {} of {} runs of one connection have {} segments; try another --window or more \
                --messages",
                runs.full,
                runs.runs,
                self.segments,
            );
        }
    }
}
