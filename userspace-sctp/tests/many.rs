//! Many associations of two stacks at a time: they begin and end in each other's places, some in peace and some not,
//! and none is forgotten or mistaken for another.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use userspace_net::Instant;
use userspace_sctp::{AssocId, Config, Ends, Event, Outgoing, Stack};

/// Associations that live at a time, and rounds in which all of them are replaced.
const MANY: u16 = 200;
const ROUNDS: u16 = 6;

/// Messages of each association and direction.
const MESSAGES: usize = 5;

fn end(side: usize, port: u16) -> SocketAddr {
    SocketAddr::new([198, 18, 0, 1 + side as u8].into(), port)
}

#[derive(Debug, Default)]
struct Life {
    came: usize,
    end: Option<Event>,
}

struct World {
    stacks: [Stack<[u8; 2]>; 2],
    /// By side and association.
    lives: [BTreeMap<AssocId, Life>; 2],
    now: Instant,
}

impl World {
    fn new() -> Self {
        let config = Config {
            associations: MANY.into(),
            ..Config::default()
        };
        let make = |key| Stack::new(config.clone(), [key; 16], Instant::ZERO);
        let mut stacks = [make(1), make(2)];
        stacks[1].listen(end(1, 5000)).unwrap();
        Self {
            stacks,
            lives: Default::default(),
            now: Instant::ZERO,
        }
    }

    /// A message says the port of its association.
    fn post_all(&mut self, side: usize, id: AssocId) {
        let ends = self.stacks[side].info(id).unwrap().agreed.ends;
        let port = if side == 0 { ends.local } else { ends.remote };
        for _ in 0..MESSAGES {
            let outgoing = Outgoing {
                stream: 0,
                protocol: 0,
                buffer: port.port().to_be_bytes(),
            };
            self.stacks[side].post(self.now, id, outgoing).unwrap();
        }
    }

    fn take_events(&mut self, side: usize) {
        while let Some((id, event)) = self.stacks[side].poll_event() {
            let life = self.lives[side].entry(id).or_default();
            assert_eq!(life.end, None);
            match event {
                Event::Incoming(_) | Event::Established(_) => self.post_all(side, id),
                Event::Closed | Event::Aborted(_) | Event::Failed(_) => life.end = Some(event),
                _ => {}
            }
        }
    }

    /// Until nothing is to be sent.
    fn settle(&mut self) {
        let (mut out, mut is_moving) = ([0; 1500], true);
        while is_moving {
            is_moving = false;
            for from in 0..2 {
                while let Some(sent) = self.stacks[from].poll_transmit(self.now, &mut out) {
                    is_moving = true;
                    self.receive(1 - from, sent.ends, &out[..sent.len]);
                }
            }
        }
    }

    fn receive(&mut self, to: usize, sent: Ends, packet: &[u8]) {
        let lives = &mut self.lives[to];
        let port = if to == 0 { sent.remote } else { sent.local };
        let (local, remote) = (sent.remote.ip(), sent.local.ip());
        self.stacks[to].receive(self.now, local, remote, None, packet, |id, message| {
            assert_eq!(message.payload, port.port().to_be_bytes());
            lives.entry(id).or_default().came += 1;
        });
        self.take_events(to);
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
        for side in 0..2 {
            self.stacks[side].advance(self.now);
            self.take_events(side);
        }
        self.settle();
    }
}

#[test]
fn associations_come_and_go_in_each_others_places() {
    let mut world = World::new();
    for round in 0..ROUNDS {
        let begun: Vec<_> = (0..MANY)
            .map(|number| {
                let ends = Ends {
                    local: end(0, 10_000 + round * MANY + number),
                    remote: end(1, 5000),
                };
                // One that ends before it has sent anything leaves its place to this one.
                let short = world.stacks[0].connect(world.now, ends).unwrap();
                assert!(world.stacks[0].close(world.now, short));
                world.stacks[0].connect(world.now, ends).unwrap()
            })
            .collect();
        // Answers are bounded, so that some INITs have to go again.
        for _ in 0..200 {
            world.settle();
            world.pass(Duration::from_millis(100));
        }
        let now = world.now;
        for (number, id) in begun.iter().enumerate() {
            match number % 3 {
                0 => world.stacks[0].abort(now, *id, b"enough"),
                _ => world.stacks[0].close(now, *id),
            };
            // As long as there is room for what tells the peer.
            world.settle();
        }
        for _ in 0..50 {
            world.pass(Duration::from_millis(100));
        }
        for stack in &world.stacks {
            assert_eq!(stack.associations().count(), 0);
        }
    }
    let all = usize::from(MANY * ROUNDS);
    for (side, lives) in world.lives.iter().enumerate() {
        assert_eq!(lives.len(), all);
        assert!(lives.values().all(|life| life.came == MESSAGES));
        let closed = lives.values().filter(|l| l.end == Some(Event::Closed));
        assert_eq!(closed.count(), usize::from(ROUNDS) * 133);
        let aborted = lives
            .values()
            .filter(|life| matches!(life.end, Some(Event::Aborted(_))));
        assert_eq!(aborted.count(), side * usize::from(ROUNDS) * 67);
    }
}
