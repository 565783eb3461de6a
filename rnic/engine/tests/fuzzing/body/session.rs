//! A peer over SCTP whose DDP Stream Session is anything: messages that come in any order, twice, or not at all, and
//! chunks of SCTP's own between them.

use std::net::SocketAddr;
use std::time::Duration;

use rnic_ipc::control::{MarkerUse, MpaOptions, RtrModes};
use rnic_net::Path;
use userspace_sctp::Tsn;
use userspace_sctp::chunk::{Chunk, Sack};

use super::draft::{self, Numbers};
use super::input::Input;
use super::sctp_peer::{
    CONTROL, Heard, INITIATE, SEGMENT, SctpPeer, TERMINATE, control, data, segment,
};
use super::work::{Peer, Work};

/// More is not looked at: an input that goes on for ever finds nothing more.
const STEPS_MAX: usize = 300;
/// What `choice` says: the node connects; the enhanced forms are used.
const CONNECTS: u8 = 32;
const ENHANCED: u8 = 16;
/// RFC 6581 section 7; the function code of the Accept is the next one, as without the enhanced form.
const ENHANCED_INITIATE: u16 = 5;
const PEER: &str = "198.18.0.9:5000";
const PATH: Path = Path {
    src_mac: [2, 0, 0, 0, 0, 0],
    dst_mac: [2, 0, 0, 0, 0, 9],
    vlan: None,
    mtu: 1500,
    hop_limit: 64,
};
/// Bytes of chunks that a packet has.
const PACKET: usize = 1400;
/// Frames that are given at once.
const BATCH: usize = 16;

/// Runs a session as `bytes` say, and checks all the while that the engine keeps its word. Whether a queue pair had it.
pub fn run(bytes: &[u8]) -> bool {
    let mut world = World::new(Input::new(bytes));
    let is_there = world.connect();
    let mut steps = 0;
    while !world.input.is_empty() && steps < STEPS_MAX {
        world.step();
        world.work.check();
        steps += 1;
    }
    world.present_all();
    world.work.check();
    world.finish();
    is_there
}

impl Peer for SctpPeer {
    fn take(&mut self, frame: &[u8]) {
        SctpPeer::take(self, frame);
    }

    fn answers(&mut self) -> Vec<Vec<u8>> {
        SctpPeer::answers(self)
    }
}

/// A message of the peer's, whose TSN is its place in the list.
struct Message {
    protocol: u32,
    bytes: Vec<u8>,
}

struct World<'a> {
    input: Input<'a>,
    /// The node works after each frame, and not after all that come together.
    alone: bool,
    work: Work,
    peer: SctpPeer,
    /// What the peer sends in this life of the association, and how much was presented in order.
    messages: Vec<Message>,
    presented: usize,
    first: Tsn,
    /// Of the next message.
    ssn: u16,
    numbers: Numbers,
    choice: u8,
}

impl<'a> World<'a> {
    fn new(mut input: Input<'a>) -> Self {
        let choice = input.byte();
        let work = Work::new(choice);
        let node = match choice & CONNECTS {
            0 => work.node.address,
            _ => SocketAddr::new(work.node.address.ip(), 40_000),
        };
        let peer = SctpPeer::new(PEER, PATH.dst_mac[5], node, PATH.src_mac[5]);
        Self {
            input,
            alone: choice & 1 != 0,
            first: peer.tsn,
            peer,
            work,
            messages: Vec::new(),
            presented: 0,
            ssn: 0,
            numbers: Numbers::default(),
            choice,
        }
    }

    /// SCTP and the session, with some work posted. Whether there is a session.
    fn connect(&mut self) -> bool {
        let choice = self.choice;
        let mpa = MpaOptions {
            revision: if choice & ENHANCED == 0 { 1 } else { 2 },
            crc: false,
            markers: MarkerUse::Off,
            aligned: false,
            rtr: RtrModes::NONE,
            ird: 3,
            ord: 3,
        };
        match choice & CONNECTS {
            0 => self.associate(),
            _ => {
                let local = SocketAddr::new(self.work.node.address.ip(), 40_000);
                self.work.connect(local, PEER.parse().unwrap(), PATH, mpa);
                self.give(&[]);
            }
        }
        // What is before the session's first chunk is wrong, or out of order.
        if choice & 2 != 0 {
            self.step();
        }
        self.initiate();
        if choice & 4 != 0 {
            self.step();
        }
        self.present_all();
        // It waits for the answer, if that is the node's.
        if choice & 8 != 0 {
            for _ in 0..self.input.below(5) {
                self.append_draft();
            }
            self.present_all();
        }
        let is_there = self.work.accept(mpa);
        self.give(&[]);
        if is_there {
            for _ in 0..self.input.below(5) {
                self.work.post(&mut self.input);
            }
            self.give(&[]);
        }
        self.work.check();
        is_there
    }

    /// A new association, or the peer has restarted.
    fn associate(&mut self) {
        let init = self.peer.init();
        self.give(&[init]);
        if self.peer.heard.contains(&Heard::InitAck) {
            let echo = self.peer.cookie_echo(&[]);
            self.give(&[echo]);
        }
    }

    /// The first chunk of the session: the Initiate, or the answer to the node's.
    fn initiate(&mut self) {
        let answers = u16::from(self.choice & CONNECTS != 0);
        let mut bytes = match self.choice & ENHANCED {
            0 => control(0, INITIATE + answers, b"who"),
            // Flags and depths (RFC 6581 section 7).
            _ => control(0, ENHANCED_INITIATE + answers, &[0, 3, 0, 3]),
        };
        if self.input.one_in(16) {
            let at = self.input.below(bytes.len());
            bytes[at] ^= self.input.byte();
        }
        bytes[..2].copy_from_slice(&self.ssn.to_be_bytes());
        self.push(CONTROL, bytes);
    }

    fn step(&mut self) {
        match self.input.byte() % 20 {
            0 => {
                let len = 1 + self.input.below(64);
                let bytes = self.input.take(len).to_vec();
                let protocol = self.input.pick(&[SEGMENT, CONTROL, 0, 18, SEGMENT << 24]);
                self.push(protocol, bytes);
            }
            1 => {
                let len = self.input.below(100);
                let ulpdu = self.input.take(len).to_vec();
                self.append(&ulpdu);
            }
            2..=8 => self.append_draft(),
            9 => self.present_all(),
            10 | 11 => self.present_somewhere(),
            12 => {
                self.work.post(&mut self.input);
                self.give(&[]);
            }
            13 if self.work.shares_receives() && self.input.one_in(2) => {
                self.work.arm(&mut self.input);
            }
            13 => self.work.revoke(&mut self.input),
            14 => {
                self.work.now += Duration::from_micros(self.input.word().into());
                self.give(&[]);
            }
            15 => self.flip(),
            16 => self.speak(),
            17 => self.say_what_came(),
            18 => self.take_or_not(),
            _ => self.restart(),
        }
    }

    fn append_draft(&mut self) {
        let ulpdu = draft::ulpdu(&mut self.input, &mut self.numbers);
        self.append(&ulpdu);
    }

    /// Another segment, whose place is most often the next.
    fn append(&mut self, ulpdu: &[u8]) {
        let ulpdu = &ulpdu[..ulpdu.len().min(PACKET)];
        let ssn = self.next_ssn();
        self.push(SEGMENT, segment(ssn, ulpdu));
    }

    fn next_ssn(&mut self) -> u16 {
        match self.input.one_in(32) {
            true => self.input.near(self.ssn.into()) as u16,
            false => self.ssn,
        }
    }

    fn push(&mut self, protocol: u32, bytes: Vec<u8>) {
        self.messages.push(Message { protocol, bytes });
        self.ssn = self.ssn.wrapping_add(1);
    }

    fn chunk(&self, number: usize) -> Chunk<'_> {
        let Message { protocol, bytes } = &self.messages[number];
        data(self.first.plus(number as u32), *protocol, bytes)
    }

    /// What is left, in order, as many in a packet as there is room for, or fewer.
    fn present_all(&mut self) {
        let most = 1 + self.input.below(16);
        let mut frames = Vec::new();
        while self.presented < self.messages.len() {
            let (from, mut bytes) = (self.presented, 0);
            while self.presented < self.messages.len() && self.presented - from < most {
                bytes += self.messages[self.presented].bytes.len() + 20;
                if bytes > PACKET && self.presented > from {
                    break;
                }
                self.presented += 1;
            }
            let chunks: Vec<_> = (from..self.presented).map(|at| self.chunk(at)).collect();
            frames.push(self.peer.packet(&chunks));
        }
        for frames in frames.chunks(BATCH) {
            self.give(frames);
        }
    }

    /// Messages from anywhere, a second time perhaps, or before their turn, a few together.
    fn present_somewhere(&mut self) {
        if self.messages.is_empty() {
            return;
        }
        let count = 1 + self.input.below(4);
        let frames: Vec<_> = (0..count)
            .map(|_| {
                let back = self.presented.saturating_sub(8);
                let at = back + self.input.below(self.messages.len() - back);
                if at == self.presented {
                    self.presented += 1;
                }
                let tsn = self.first.plus(at as u32).0;
                let odd = self.input.one_in(32);
                let odd = odd.then(|| (self.input.byte(), Tsn(self.input.near(tsn))));
                let mut chunk = self.chunk(at);
                if let (Chunk::Data(data), Some((flags, tsn))) = (&mut chunk, odd) {
                    data.unordered = flags & 1 == 0;
                    (data.begin, data.end) = (flags & 2 == 0, flags & 4 == 0);
                    data.stream = u16::from(flags >> 6);
                    data.tsn = tsn;
                }
                self.peer.packet(&[chunk])
            })
            .collect();
        self.give(&frames);
    }

    /// A bit of what was not presented in order yet is another.
    fn flip(&mut self) {
        let left = self.messages.len() - self.presented;
        let at = self.presented + self.input.below(left);
        if let Some(message) = self.messages.get_mut(at)
            && !message.bytes.is_empty()
        {
            let at = self.input.below(message.bytes.len());
            message.bytes[at] ^= 1 << (self.input.byte() % 8);
        }
    }

    fn speak(&mut self) {
        let function = match self.input.byte() {
            byte @ 0..8 => u16::from(byte),
            8..128 => TERMINATE,
            _ => self.input.short(),
        };
        let len = match function {
            TERMINATE => 0,
            _ => self.input.below(8),
        };
        let private_data = self.input.take(len).to_vec();
        let ssn = self.next_ssn();
        self.push(CONTROL, control(ssn, function, &private_data));
    }

    /// A chunk of SCTP's, or any bytes as one.
    fn say_what_came(&mut self) {
        let cumulative = Tsn(self.input.near(self.peer.cumulative.0));
        let window = self.input.near(self.peer.window);
        let len = 4 * self.input.below(4);
        let blocks = self.input.take(len).to_vec();
        let kind = self.input.byte();
        let whole = [&[kind % 16, kind >> 4, 0, 0], &blocks[..]].concat();
        let chunk = match self.input.byte() % 16 {
            0..=7 => Chunk::Sack(Sack::new(cumulative, window, &blocks, &[])),
            8 => Chunk::Shutdown { cumulative },
            9 => Chunk::ShutdownAck,
            10 => Chunk::Heartbeat(&blocks),
            11 => Chunk::HeartbeatAck(&blocks),
            12 if kind > 200 => Chunk::Abort {
                reflected: kind & 1 != 0,
                causes: userspace_sctp::cause::Causes::new(&blocks),
            },
            13 => Chunk::ShutdownComplete { reflected: false },
            14 => Chunk::CookieAck,
            _ => Chunk::Malformed {
                kind,
                whole: &whole,
            },
        };
        let packet = self.peer.packet(&[chunk]);
        self.give(&[packet]);
    }

    /// What the peer makes of what comes from now on.
    fn take_or_not(&mut self) {
        self.peer.answers = !self.input.one_in(4);
        self.peer.window = self.input.pick(&[0, 1, 1500, 100_000, u32::MAX]);
        let sack = self.peer.sack();
        self.give(&[sack]);
    }

    /// The peer has lost its association, and asks for another one; what it says next may come with the cookie.
    fn restart(&mut self) {
        if !self.input.one_in(8) {
            return;
        }
        let tag = self.peer.tag.wrapping_add(1).max(1);
        if self.input.one_in(2) {
            self.peer.move_to(5001 + u16::from(self.input.byte()));
        }
        self.peer.restart(tag);
        self.peer.window = self.peer.window.max(1500);
        self.first = self.peer.tsn;
        let init = self.peer.init();
        self.give(&[init]);
        if !self.peer.heard.contains(&Heard::InitAck) {
            return;
        }
        if self.input.one_in(2) {
            self.messages.drain(..self.presented);
        } else {
            self.messages.clear();
            self.ssn = 0;
            self.initiate();
        }
        self.presented = 0;
        let first = (!self.messages.is_empty()).then(|| self.chunk(0));
        let echo = self.peer.cookie_echo(first.as_slice());
        self.give(&[echo]);
    }

    /// Gives the node frames, and lets it work until it has nothing to do.
    fn give(&mut self, frames: &[Vec<u8>]) {
        self.work.give(&mut self.peer, frames, self.alone);
    }

    /// The end of the session, whatever is left of it.
    fn finish(&mut self) {
        let end = control(self.ssn, TERMINATE, b"");
        self.push(CONTROL, end);
        self.present_all();
        self.work.check();
        self.work.finish(&mut self.peer, self.alone);
    }
}
