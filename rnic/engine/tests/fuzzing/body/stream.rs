//! A peer whose stream is anything, cut anywhere and presented in any order.
//!
//! Beside what [`super::work`] checks: as long as there is no error it makes no difference whether segments come together,
//! so that the shard merges them (GRO), or each alone.

use rnic_engine::metrics::Counted;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use rnic_ipc::control::{MarkerUse, MpaOptions, RtrModes};
use rnic_ipc::id::CqId;
use rnic_ipc::work::Completion;
use rnic_proto::mpa::marker::Markers;

use super::draft::{self, Numbers};
use super::grants::Grants;
use super::input::Input;
use super::peer::TcpPeer;
use super::work::Work;

/// More is not looked at: an input that goes on for ever finds nothing more.
const STEPS_MAX: usize = 300;

/// Runs a stream as `bytes` say, its segments together and then each alone, and checks all the while
/// that the engine keeps its word.
pub fn run(bytes: &[u8]) {
    let together = run_once(bytes, false);
    let alone = run_once(bytes, true);
    for (step, (together, alone)) in together.0.iter().zip(&alone.0).enumerate() {
        assert_eq!(together, alone, "trains make a difference at step {step}");
    }
    if let (Some(together), Some(alone)) = (together.1, alone.1) {
        assert_eq!(together, alone, "trains make a difference to the end");
    }
}

/// What has become of a stream until now.
#[derive(Debug, PartialEq, Eq)]
struct Look {
    memory: u64,
    completions: Vec<(CqId, Completion)>,
    counters: Vec<(&'static str, u64)>,
}

/// The looks, and what was wrong with the stream's bytes; not where more came than may wait for an
/// answer, which trains may be the cause of.
fn run_once(bytes: &[u8], alone: bool) -> (Vec<Look>, Option<[u64; 2]>) {
    let mut world = World::new(Input::new(bytes), alone);
    if world.connect() {
        let mut steps = 0;
        while !world.input.is_empty() && steps < STEPS_MAX {
            world.step();
            world.check();
            steps += 1;
        }
        world.present_all();
        world.check();
    }
    world.finish();
    let counters = world.work.node.shard.qp_counters();
    let damage = [counters.crc_errors, counters.marker_errors];
    let comparable = world.work.receives_only() && counters.refused_ird_exceeded == 0;
    (world.looks, comparable.then_some(damage))
}

struct World<'a> {
    input: Input<'a>,
    /// The node works after each frame, and not after all that come together.
    alone: bool,
    work: Work,
    peer: TcpPeer,
    /// What the peer sends behind the start-up.
    stream: Vec<u8>,
    /// Bytes of the start-up.
    startup: usize,
    /// How much of the stream was presented in order.
    presented: usize,
    crc: bool,
    markers: Markers,
    numbers: Numbers,
    choice: u8,
    /// Looks at a stream without an error, where only receives are posted: other work goes on between
    /// segments that come alone, and at the end of a train.
    looks: Vec<Look>,
}

impl<'a> World<'a> {
    fn new(mut input: Input<'a>, alone: bool) -> Self {
        let choice = input.byte();
        let work = Work::new(choice);
        Self {
            input,
            alone,
            peer: TcpPeer::new(work.node.address),
            work,
            stream: Vec::new(),
            startup: 0,
            presented: 0,
            crc: true,
            markers: Markers::Off,
            numbers: Numbers::default(),
            choice,
            looks: Vec::new(),
        }
    }

    /// TCP and MPA, up to RDMA mode, with some work posted.
    fn connect(&mut self) -> bool {
        let choice = self.choice;
        let syn = self.peer.syn();
        self.give(&[syn]);
        assert!(self.peer.is_connected());
        let (their_crc, our_crc) = (choice & 3 == 0, choice & 4 == 0);
        self.crc = their_crc || our_crc;
        let markers = choice & 8 == 0;
        self.markers = Markers::when(markers);
        let flags = u8::from(choice & 16 == 0) << 7 | u8::from(their_crc) << 6;
        let mut request = b"MPA ID Req Frame".to_vec();
        request.extend_from_slice(&[flags, 1, 0, 0]);
        self.startup = request.len();
        let frame = self.peer.segment(0, &request);
        self.give(&[frame]);
        let mpa = MpaOptions {
            revision: 1,
            crc: our_crc,
            markers: MarkerUse::of_flag(markers),
            aligned: choice & 32 == 0,
            rtr: RtrModes::ALL,
            ird: 3,
            ord: 3,
        };
        assert!(self.work.accept(mpa), "no connection");
        self.give(&[]);
        for _ in 0..self.input.below(5) {
            self.work.post(&mut self.input);
        }
        self.give(&[]);
        true
    }

    fn step(&mut self) {
        match self.input.byte() % 16 {
            0 => {
                let len = self.input.below(64);
                let bytes = self.input.take(len);
                self.stream.extend_from_slice(bytes);
            }
            1 => {
                let len = self.input.below(100);
                let ulpdu = self.input.take(len).to_vec();
                self.append(&ulpdu);
            }
            2..=8 => {
                let ulpdu = draft::ulpdu(&mut self.input, &mut self.numbers);
                self.append(&ulpdu);
            }
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
            14 => self.wait(),
            _ => self.flip(),
        }
    }

    /// Another FPDU at the end of the stream.
    fn append(&mut self, ulpdu: &[u8]) {
        let at = self.stream.len() as u64;
        let fpdu = draft::fpdu(ulpdu, self.markers, at, self.crc);
        self.stream.extend_from_slice(&fpdu);
    }

    /// What is left, in order, in segments of some size.
    fn present_all(&mut self) {
        let size = 1 + self.input.below(1448);
        let frames: Vec<_> = self.stream[self.presented..]
            .chunks(size.max(64))
            .scan(self.presented, |at, bytes| {
                let from = *at;
                *at += bytes.len();
                Some(self.peer.segment(self.startup + from, bytes))
            })
            .collect();
        self.presented = self.stream.len();
        for frames in frames.chunks(16) {
            self.give(frames);
        }
    }

    /// Pieces from anywhere, a second time perhaps, or before their turn, a few together.
    fn present_somewhere(&mut self) {
        let pieces = 1 + self.input.below(4);
        let frames: Vec<_> = (0..pieces).map(|_| self.piece()).collect();
        self.give(&frames);
    }

    fn piece(&mut self) -> Vec<u8> {
        let back = self.presented.saturating_sub(200);
        let from = back + self.input.below(self.stream.len() - back);
        let len = (1 + self.input.below(1448)).min(self.stream.len() - from);
        if from <= self.presented {
            self.presented = self.presented.max(from + len);
        }
        let bytes = &self.stream[from..from + len];
        self.peer.segment(self.startup + from, bytes)
    }

    /// A bit of what was not presented in order yet is another.
    fn flip(&mut self) {
        let left = self.stream.len() - self.presented;
        if left > 0 {
            let at = self.presented + self.input.below(left);
            self.stream[at] ^= 1 << (self.input.byte() % 8);
        }
    }

    fn wait(&mut self) {
        self.work.now += Duration::from_micros(self.input.word().into());
        self.give(&[]);
    }

    /// Gives the node frames, and lets it work until it has nothing to do.
    fn give(&mut self, frames: &[Vec<u8>]) {
        self.peer.sent = self.startup + self.presented;
        self.work.give(&mut self.peer, frames, self.alone);
    }

    fn check(&mut self) {
        if self.work.check() && self.work.receives_only() {
            let mut memory = DefaultHasher::new();
            Grants::read(&self.work.node).hash(&mut memory);
            self.looks.push(Look {
                memory: memory.finish(),
                completions: std::mem::take(&mut self.work.completions),
                counters: self.work.node.shard.qp_counters().named(),
            });
        }
    }

    fn finish(&mut self) {
        let fin = self.peer.fin(self.startup + self.presented);
        self.give(&[fin]);
        self.check();
        self.work.finish(&mut self.peer, self.alone);
    }
}
