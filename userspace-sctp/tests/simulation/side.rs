//! One side: a stack, and an application that posts numbered messages and takes those of its peer.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use userspace_net::Instant;
use userspace_sctp::{AssocId, Config, Ends, Event, Outgoing, PostError, Route, Stack};

use crate::link::Parcel;
use crate::random::Random;
use crate::trace::trace;

/// What happened to one association.
#[derive(Debug, Default)]
pub struct Life {
    /// Numbers of the messages that came.
    pub came: BTreeSet<u32>,
    /// Numbers of the messages that were taken from us.
    pub posted: BTreeSet<u32>,
    pub restarted: bool,
    pub end: Option<Event>,
}

pub struct Side {
    pub stack: Stack<Vec<u8>>,
    pub local: SocketAddr,
    /// The association that the application uses.
    pub used: Option<AssocId>,
    pub is_established: bool,
    pub is_closed: bool,
    /// It has aborted, and wants no association any more.
    refuses: bool,
    pub lives: BTreeMap<AssocId, Life>,
    /// The first message does not wait for the association.
    pub posts_early: bool,
    next: u32,
    messages: u32,
    longest: u64,
    pub lent: usize,
    /// What is to be consumed, and when.
    held: BTreeMap<u64, Vec<(AssocId, usize)>>,
}

/// The bytes of a message: its number, and what follows of it.
fn message(number: u32, len: usize) -> Vec<u8> {
    let mut bytes = number.to_be_bytes().to_vec();
    bytes.resize(len.max(4), number as u8);
    bytes
}

impl Side {
    pub fn new(config: Config, key: u8, local: SocketAddr, messages: u32, longest: u64) -> Self {
        Self {
            stack: Stack::new(config, [key; 16], Instant::ZERO),
            local,
            used: None,
            is_established: false,
            is_closed: false,
            refuses: false,
            lives: BTreeMap::new(),
            posts_early: false,
            next: 0,
            messages,
            longest,
            lent: 0,
            held: BTreeMap::new(),
        }
    }

    pub fn connect(&mut self, now: u64, remote: SocketAddr, udp: Option<u16>) {
        let ends = Ends {
            local: self.local,
            remote,
        };
        let route = Route { ends, udp };
        // The peer may have been quicker.
        if self.used.is_none() {
            let id = self.stack.connect(Instant::from_nanos(1000 * now), route);
            self.use_it(id.unwrap());
        }
    }

    fn use_it(&mut self, id: AssocId) {
        self.used = Some(id);
        self.lives.entry(id).or_default();
    }

    pub fn receive(&mut self, now: u64, parcel: &Parcel, patience: u64) {
        let Parcel {
            udp, from, bytes, ..
        } = parcel;
        let mut shown = Vec::new();
        let time = Instant::from_nanos(1000 * now);
        let (local, remote) = (self.local.ip(), from.ip());
        self.stack
            .receive(time, local, remote, *udp, bytes, |id, came| {
                let number = u32::from_be_bytes(came.payload[..4].try_into().unwrap());
                assert_eq!(came.payload, message(number, came.payload.len()));
                assert_eq!(
                    (u32::from(came.stream), came.protocol),
                    (number % 4, number + 7)
                );
                shown.push((id, number, came.payload.len()));
            });
        // Those of a restart are of the new life.
        self.take_events(now);
        let held = self.held.entry(now + patience).or_default();
        for (id, number, len) in shown {
            let life = self.lives.entry(id).or_default();
            assert!(life.came.insert(number), "message {number} came twice");
            held.push((id, len));
        }
    }

    pub fn take_events(&mut self, now: u64) {
        while let Some((id, event)) = self.stack.poll_event() {
            trace(|| format!("{now} at {}: {event:?} of {id:?}", self.local));
            let life = self.lives.entry(id).or_default();
            assert_eq!(life.end, None, "{event:?} after the end");
            match event {
                Event::Incoming(_) => {
                    // One that comes of an old cookie is nobody's.
                    if self.used.is_none() {
                        self.use_it(id);
                        self.is_established = true;
                    } else if self.refuses {
                        let time = Instant::from_nanos(1000 * now);
                        self.stack.abort(time, id, b"enough");
                    }
                }
                Event::Established(_) => self.is_established = true,
                Event::Restarted(_) => {
                    *life = Life {
                        restarted: true,
                        ..Life::default()
                    };
                    self.next = 0;
                }
                Event::PeerClosed => self.is_closed |= self.used == Some(id),
                Event::PathDown { .. }
                | Event::PathConfirmed { .. }
                | Event::PathUp { .. }
                | Event::MtuChanged { .. } => {}
                Event::Closed | Event::Aborted(_) | Event::Failed(_) => life.end = Some(event),
            }
        }
        while self.stack.poll_released().is_some() {
            self.lent -= 1;
        }
    }

    /// Posts and consumes what is due.
    pub fn act(&mut self, now: u64, random: &mut Random) {
        let time = Instant::from_nanos(1000 * now);
        while let Some(entry) = self.held.first_entry().filter(|due| *due.key() <= now) {
            for (id, bytes) in entry.remove() {
                self.stack.consumed(time, id, bytes);
            }
        }
        let is_early = self.posts_early && self.next == 0;
        let may_post = (self.is_established || is_early) && !self.is_closed;
        let Some(id) = self.used.filter(|_| may_post) else {
            return;
        };
        // The first one is on stream 0.
        let mut burst = match self.is_established {
            true => random.within(1, 8),
            false => 1,
        };
        while self.next < self.messages && burst > 0 {
            burst -= 1;
            let number = self.next;
            let max = self.stack.message_max(id).max(4);
            let len = random.within(4, self.longest) as usize;
            let outgoing = Outgoing {
                stream: (number % 4) as u16,
                protocol: number + 7,
                buffer: message(number, len.min(max)),
            };
            match self.stack.post(time, id, outgoing) {
                Ok(()) => {
                    self.lent += 1;
                    self.next += 1;
                    self.lives.get_mut(&id).unwrap().posted.insert(number);
                }
                Err(refused) => {
                    let all = [PostError::QueueFull, PostError::Gone];
                    assert!(all.contains(&refused.error), "{}", refused.error);
                    break;
                }
            }
        }
    }

    pub fn has_posted_all(&self) -> bool {
        self.is_established && self.next == self.messages
    }

    pub fn close(&mut self, now: u64) {
        if let Some(id) = self.used.filter(|_| !self.is_closed) {
            self.is_closed = true;
            self.stack.close(Instant::from_nanos(1000 * now), id);
        }
    }

    /// `false` when there is nothing to abort yet.
    pub fn abort(&mut self, now: u64) -> bool {
        let Some(id) = self.used else {
            return false;
        };
        (self.is_closed, self.refuses) = (true, true);
        self.stack
            .abort(Instant::from_nanos(1000 * now), id, b"enough");
        true
    }

    /// When something is to be consumed.
    pub fn next_due(&self) -> Option<u64> {
        self.held.keys().next().copied()
    }
}
