//! Both ends, their link and their messages.

use std::time::Duration;

use rnic_tests::pattern::Pattern;
use userspace_net::Instant;
use userspace_sctp::{AssocId, Config, Ends, Event, Outgoing, Stack};

use super::link::{Conditions, Link};

/// Messages each way.
const MESSAGES: usize = 200;
const STREAMS: u16 = 16;
/// The identifier of WebRTC's binary messages: `sctp-proto` knows only WebRTC's.
pub const PPID: u32 = 53;
/// A message begins with its number.
const NUMBER_LEN: usize = 4;
/// One chunk of ours, in a packet of 1500 bytes.
const OURS_MAX: usize = 1432;
/// Up to four fragments.
const THEIRS_MAX: usize = 4000;
/// Of virtual time.
const LIMIT: Duration = Duration::from_secs(600);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    WeShutDown,
    WeAbort,
    ThePeerShutsDown,
    ThePeerAborts,
}

impl Ending {
    pub const ALL: [Self; 4] = [
        Self::WeShutDown,
        Self::WeAbort,
        Self::ThePeerShutsDown,
        Self::ThePeerAborts,
    ];
}

#[derive(Clone, Copy, Debug)]
pub struct Run {
    pub seed: u64,
    pub conditions: Conditions,
    pub we_connect: bool,
    pub ending: Ending,
}

/// A message: its stream, its identifier, its bytes.
pub type Message = (u16, u32, Vec<u8>);

/// The other SCTP. Its time is that since it was made.
pub trait Peer {
    fn connect(&mut self);
    fn receive(&mut self, now: Duration, packet: &[u8]);
    /// Expires timers.
    fn advance(&mut self, now: Duration);
    fn deadline(&self) -> Option<Duration>;
    /// All packets that it sends now.
    fn packets(&mut self, now: Duration) -> Vec<Vec<u8>>;
    fn is_connected(&self) -> bool;
    /// Unordered.
    fn send(&mut self, message: Message);
    /// The next that came.
    fn message(&mut self) -> Option<Message>;
    fn shut_down(&mut self);
    fn abort(&mut self);
    fn is_over(&self) -> bool;
}

/// Message `number` of one of the sides.
fn message(ours: bool, number: usize, max: usize) -> Message {
    let len = NUMBER_LEN + 1 + (number * 977) % (max - NUMBER_LEN);
    let mut bytes = Pattern::bytes(2 * number as u64 + u64::from(ours), len);
    bytes[..NUMBER_LEN].copy_from_slice(&(number as u32).to_be_bytes());
    ((number % usize::from(STREAMS)) as u16, PPID, bytes)
}

/// Which messages came.
struct Seen {
    ours: bool,
    max: usize,
    seen: [bool; MESSAGES],
}

impl Seen {
    fn new(ours: bool, max: usize) -> Self {
        Self {
            ours,
            max,
            seen: [false; MESSAGES],
        }
    }

    fn see(&mut self, got: (u16, u32, &[u8])) {
        let number = got.2.first_chunk().expect("a message has a number");
        let number = u32::from_be_bytes(*number) as usize;
        assert!(!self.seen[number], "message {number} came twice");
        self.seen[number] = true;
        let (stream, ppid, bytes) = message(self.ours, number, self.max);
        assert!(
            got == (stream, ppid, &bytes[..]),
            "message {number} differs"
        );
    }

    fn is_all(&self) -> bool {
        self.seen.iter().all(|seen| *seen)
    }
}

/// Ours.
struct Us {
    stack: Stack<Vec<u8>>,
    ends: Ends,
    id: Option<AssocId>,
    seen: Seen,
    sent: usize,
    posted: usize,
    end: Option<Event>,
}

fn at(now: Duration) -> Instant {
    Instant::ZERO + now
}

impl Us {
    fn new(seed: u64) -> Self {
        let secret = u128::from(seed)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .to_be_bytes();
        // Both are at port 5000, as in WebRTC.
        let ends = Ends {
            local: ([198, 18, 0, 1], 5000).into(),
            remote: ([198, 18, 0, 2], 5000).into(),
        };
        Self {
            stack: Stack::new(Config::default(), secret, Instant::ZERO),
            ends,
            id: None,
            seen: Seen::new(false, THEIRS_MAX),
            sent: 0,
            posted: 0,
            end: None,
        }
    }

    fn receive(&mut self, now: Duration, packet: &[u8]) {
        let (local, remote) = (self.ends.local.ip(), self.ends.remote.ip());
        let (seen, mut came) = (&mut self.seen, None);
        self.stack
            .receive(at(now), local, remote, None, packet, |id, got| {
                seen.see((got.stream, got.protocol, got.payload));
                let before = came.map_or(0, |(_, bytes)| bytes);
                came = Some((id, before + got.payload.len()));
            });
        if let Some((id, bytes)) = came {
            self.stack.consumed(at(now), id, bytes);
        }
    }

    fn step(&mut self, now: Duration) {
        self.stack.advance(at(now));
        while let Some((id, event)) = self.stack.poll_event() {
            match event {
                Event::Incoming(_) | Event::Established(_) => self.id = Some(id),
                Event::Closed | Event::Aborted(_) | Event::Failed(_) => self.end = Some(event),
                _ => {}
            }
        }
        while self.stack.poll_released().is_some() {
            self.posted -= 1;
        }
        let Some(id) = self.id else {
            return;
        };
        while self.sent < MESSAGES && self.stack.room(id) > 0 {
            let (stream, protocol, buffer) = message(true, self.sent, OURS_MAX);
            let outgoing = Outgoing {
                stream,
                protocol,
                buffer,
            };
            self.stack
                .post(at(now), id, outgoing)
                .expect("there is room");
            self.sent += 1;
            self.posted += 1;
        }
    }

    fn is_done(&self) -> bool {
        self.seen.is_all() && self.sent == MESSAGES && self.posted == 0
    }
}

/// One association, from its set-up to its end.
pub fn run(mut peer: impl Peer, run: Run) {
    // Of a test that fails, the last one is the one that did.
    eprintln!("{run:?}");
    let mut us = Us::new(run.seed);
    let mut link = Link::new(run.conditions, run.seed);
    let mut seen = Seen::new(true, OURS_MAX);
    if run.we_connect {
        us.stack.connect(Instant::ZERO, us.ends).expect("good ends");
    } else {
        us.stack.listen(us.ends.local).expect("nobody listens");
        peer.connect();
    }
    let (mut now, mut has_sent, mut is_ending) = (Duration::ZERO, false, false);
    loop {
        while let Some((to_us, packet)) = link.arrived(now) {
            match to_us {
                true => us.receive(now, &packet),
                false => peer.receive(now, &packet),
            }
        }
        peer.advance(now);
        us.step(now);
        if peer.is_connected() && !has_sent {
            has_sent = true;
            (0..MESSAGES).for_each(|number| peer.send(message(false, number, THEIRS_MAX)));
        }
        while let Some((stream, ppid, bytes)) = peer.message() {
            seen.see((stream, ppid, &bytes));
        }
        if !is_ending && us.is_done() && seen.is_all() {
            is_ending = true;
            let id = us.id.expect("it was established");
            match run.ending {
                Ending::WeShutDown => assert!(us.stack.close(at(now), id)),
                Ending::WeAbort => assert!(us.stack.abort(at(now), id, b"enough")),
                Ending::ThePeerShutsDown => peer.shut_down(),
                Ending::ThePeerAborts => peer.abort(),
            }
        }
        let mut buffer = [0; 1500];
        while let Some(sent) = us.stack.poll_transmit(at(now), &mut buffer) {
            link.send(now, false, buffer[..sent.len].to_vec());
        }
        for packet in peer.packets(now) {
            link.send(now, true, packet);
        }
        let we_are_over = us.end.is_some() || run.ending == Ending::WeAbort;
        if is_ending && we_are_over && peer.is_over() {
            break;
        }
        let ours = us.stack.next_deadline();
        let ours = ours.map(|deadline| deadline.saturating_duration_since(Instant::ZERO));
        let next = [ours, peer.deadline(), link.next_arrival()];
        let next = next.into_iter().flatten().min();
        now = next.unwrap_or(LIMIT).max(now + Duration::from_micros(1));
        assert!(
            now < LIMIT,
            "{run:?}: it goes on; all of ours {}, of theirs {}, ending {is_ending}, our end {:?}, \
             peer over {}",
            seen.is_all(),
            us.seen.is_all(),
            us.end,
            peer.is_over()
        );
    }
    match (run.ending, us.end) {
        (Ending::WeShutDown | Ending::ThePeerShutsDown, Some(Event::Closed))
        | (Ending::WeAbort, None)
        | (Ending::ThePeerAborts, Some(Event::Aborted(_))) => {}
        (_, end) => panic!("{run:?}: our end is {end:?}"),
    }
}
