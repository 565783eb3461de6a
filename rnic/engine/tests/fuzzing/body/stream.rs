//! A queue pair with memory, receives and Reads, and a peer whose stream is anything, cut anywhere
//! and presented in any order.
//!
//! Whatever comes, no byte changes that nobody may change. Each piece of work completes once. The first error is the
//! only one, with at most one Terminate. After it nothing changes and nothing is sent. In the end every frame is back.
//! As long as there is no error it makes no difference whether segments come together, so that the shard merges them
//! (GRO), or each alone.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use rnic_engine::command::{Answer, Command, ShardEvent};
use rnic_ipc::control::{Event, MarkerUse, MpaOptions, QpAttributes, QpState, RtrModes};
use rnic_ipc::id::{CqId, QpNum, SrqId};
use rnic_ipc::ring::WorkRequest;
use rnic_ipc::work::{
    Completion, Sge, WC_WITH_INVALIDATE, WR_SIGNALED, WR_SOLICITED, WcStatus, WrOpcode,
};
use rnic_proto::Stag;
use rnic_proto::mpa::marker::Markers;
use userspace_net::Instant;

use super::draft::{self, Numbers};
use super::grants::{BASES, Grants, PD, REGION, STAGS, THROUGH_WINDOW, WINDOW, place};
use super::input::Input;
use super::node::{Node, Settings};
use super::peer::Peer;

/// More is not looked at: an input that goes on for ever finds nothing more.
const STEPS_MAX: usize = 300;
/// Work requests of each queue that are outstanding at most.
const WORK_MAX: usize = 20;

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
    let counters = world.node.shard.qp_counters();
    let damage = [counters.crc_errors, counters.marker_errors];
    let comparable = world.receives_only() && counters.refused_ird_exceeded == 0;
    (world.looks, comparable.then_some(damage))
}

struct World<'a> {
    input: Input<'a>,
    /// The node works after each frame, and not after all that come together.
    alone: bool,
    node: Node,
    peer: Peer,
    grants: Grants,
    qp: QpNum,
    now: Instant,
    /// What the peer sends behind the start-up.
    stream: Vec<u8>,
    /// Bytes of the start-up.
    startup: usize,
    /// How much of the stream was presented in order.
    presented: usize,
    crc: bool,
    markers: Markers,
    numbers: Numbers,
    next_id: u64,
    /// How the start-up is, and where receives come from.
    choice: u8,
    /// The shared receive queue that the queue pair takes from, if it does.
    srq: Option<SrqId>,
    /// Work that has not completed: its name, what it does, and to which STag.
    outstanding: Vec<(u64, WrOpcode, u32)>,
    /// Those that came since the last look.
    completions: Vec<(CqId, Completion)>,
    /// Looks at a stream without an error, where only receives are posted: other work goes on between
    /// segments that come alone, and at the end of a train.
    looks: Vec<Look>,
    /// Receives of the shared queue, which stay when the queue pair ends.
    shared: Vec<u64>,
    /// The window may be bound.
    bound: bool,
    /// Limit events that may still come.
    limits: usize,
    /// What was sent when the stream came to its end.
    silent: Option<u64>,
}

impl<'a> World<'a> {
    fn new(mut input: Input<'a>, alone: bool) -> Self {
        let choice = input.byte();
        let settings = Settings::new(0, 1500);
        let memory = settings.memory();
        let mut node = Node::new(0, settings, memory, Vec::new());
        let grants = Grants::new(&mut node);
        let srq = (choice & 64 != 0).then(|| node.create_srq(2));
        let qp = node.create_qp(QpAttributes {
            srq,
            signal_all: true,
            ..Node::attributes(PD, [CqId(0), CqId(1)])
        });
        Self {
            input,
            alone,
            peer: Peer::new(node.address),
            node,
            grants,
            qp,
            now: Instant::from_nanos(1_000_000),
            stream: Vec::new(),
            startup: 0,
            presented: 0,
            crc: true,
            markers: Markers::Off,
            numbers: Numbers::default(),
            next_id: 0,
            choice,
            srq,
            outstanding: Vec::new(),
            completions: Vec::new(),
            looks: Vec::new(),
            shared: Vec::new(),
            bound: false,
            limits: 0,
            silent: None,
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
        let (mut accepted, mut established) = (false, false);
        while let Some(event) = self.node.shard.poll_event() {
            let ShardEvent::Client { event, .. } = event else {
                continue;
            };
            if let Event::ConnectRequest { request, .. } = event {
                let accept = Command::Accept {
                    request,
                    qp: self.qp,
                    mpa,
                    private_data: Vec::new(),
                };
                self.node.execute(accept, self.now).unwrap();
                accepted = true;
            }
            established |= matches!(event, Event::Established { .. });
        }
        assert!(accepted && established, "no connection");
        self.give(&[]);
        for _ in 0..self.input.below(5) {
            self.post();
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
                self.post();
                self.give(&[]);
            }
            13 if self.srq.is_some() && self.input.one_in(2) => self.arm(),
            13 => self.revoke(),
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

    fn post(&mut self) {
        if self.outstanding.len() + self.shared.len() >= WORK_MAX {
            return;
        }
        self.next_id += 1;
        let id = self.next_id;
        let region = if self.input.one_in(4) { 0 } else { 1 };
        let skip = self.input.below(REGION - 600);
        let len = self.input.below(600);
        let sge = Sge {
            addr: BASES[region] + skip as u64,
            length: len as u32,
            lkey: STAGS[region],
        };
        let any = self.input.pick(&[
            WrOpcode::Recv,
            WrOpcode::Recv,
            WrOpcode::Read,
            WrOpcode::Send,
            WrOpcode::Write,
            WrOpcode::Immediate,
            WrOpcode::WriteImmediate,
            WrOpcode::AtomicFetchAdd,
            WrOpcode::AtomicCompareSwap,
            WrOpcode::LocalInvalidate,
            WrOpcode::BindWindow,
        ]);
        let opcode = match self.receives_only() {
            true => WrOpcode::Recv,
            false => any,
        };
        let mut request = WorkRequest::new(opcode, id);
        request.slot.flags = WR_SIGNALED | self.input.pick(&[0, WR_SOLICITED]);
        request.slot.rkey = 7;
        self.fill(&mut request, opcode, sge);
        let entry = (id, opcode, request.slot.rkey);
        let takes = matches!(
            opcode,
            WrOpcode::Recv
                | WrOpcode::Read
                | WrOpcode::AtomicFetchAdd
                | WrOpcode::AtomicCompareSwap
        );
        if takes && self.grants.is_valid(region) && self.silent.is_none() {
            let at = place(region, skip);
            let len = request.total_length() as usize;
            self.grants.open(id, at..at + len);
        }
        match (opcode, self.srq) {
            (WrOpcode::Recv, Some(srq)) => {
                self.shared.push(id);
                self.node.post_shared_recv(srq, &request);
                return;
            }
            (WrOpcode::Recv, None) => self.node.post_recv(self.qp, &request),
            _ => self.node.post_send(self.qp, &request, None),
        }
        self.outstanding.push(entry);
    }

    fn receives_only(&self) -> bool {
        self.choice & 128 != 0
    }

    /// What a work request is about.
    fn fill(&mut self, request: &mut WorkRequest, opcode: WrOpcode, mut sge: Sge) {
        let mut operands = [self.input.byte().into(), 0, 1, 1];
        match opcode {
            WrOpcode::AtomicFetchAdd | WrOpcode::AtomicCompareSwap => {
                sge.length = if self.input.one_in(16) { 4 } else { 8 };
            }
            WrOpcode::LocalInvalidate => {
                let stags = [WINDOW, WINDOW, STAGS[0], STAGS[1], STAGS[3], STAGS[5]];
                request.slot.rkey = self.input.pick(&stags);
            }
            WrOpcode::BindWindow => {
                let region = self.input.pick(&[1, 1, 0, 5, 2, 3]);
                let skip = self.input.below(REGION - 600);
                let len = self.input.below(600);
                request.slot.rkey = WINDOW;
                request.slot.remote_addr = BASES[region] + skip as u64;
                let rights = self.input.pick(&[15, 2, 4, 8]);
                operands = [len as u64, rights << 32 | u64::from(STAGS[region]), 0, 0];
                let possible = self.grants.is_valid(region) && !matches!(region, 2 | 3);
                if possible && !self.bound && self.silent.is_none() {
                    let at = place(region, skip);
                    self.grants.open(THROUGH_WINDOW, at..at + len);
                    self.bound = true;
                }
            }
            _ => {}
        }
        let none = matches!(
            opcode,
            WrOpcode::Immediate | WrOpcode::LocalInvalidate | WrOpcode::BindWindow
        );
        let sges = [sge];
        let sges = if none { &[] } else { &sges[..] };
        assert!(request.set_sges(sges));
        assert!(request.set_operands(&operands));
    }

    /// The client of the shared receive queue is to be told when few wait.
    fn arm(&mut self) {
        if let Some(srq) = self.srq {
            let limit = 1 + self.input.below(4) as u32;
            let command = Command::ArmSrq { srq, limit };
            self.node.execute(command, self.now).unwrap();
            self.limits += 1;
        }
    }

    fn revoke(&mut self) {
        let region = self.input.below(STAGS.len());
        if self.grants.is_valid(region) {
            // What was invalidated stays registered, and nothing comes of it.
            let stag = Stag(STAGS[region]);
            let command = Command::RemoveRegion { stag };
            self.node.execute(command, self.now).unwrap();
            self.grants.revoked(&self.node, region);
        }
    }

    fn wait(&mut self) {
        self.now += Duration::from_micros(self.input.word().into());
        self.give(&[]);
    }

    /// Gives the node frames, and lets it work until it has nothing to do.
    fn give(&mut self, frames: &[Vec<u8>]) {
        for frame in frames {
            assert!(self.node.wire.push(frame));
            while self.alone && self.node.shard.poll(self.now) {}
        }
        let mut frame = Vec::new();
        let mut answers = true;
        while answers {
            while self.node.shard.poll(self.now) {}
            answers = false;
            while self.node.wire.take(&mut frame) {
                answers |= self.peer.take(&frame);
            }
            if answers {
                let at = self.startup + self.presented;
                let ack = self.peer.segment(at, &[]);
                assert!(self.node.wire.push(&ack));
            }
        }
        for (cq, completion) in self.node.completions() {
            self.completed(&completion);
            self.completions.push((cq, completion));
        }
    }

    fn completed(&mut self, completion: &Completion) {
        let id = completion.wr_id;
        let status = WcStatus::from_u8(completion.status).unwrap();
        if let Some(index) = self.shared.iter().position(|shared| *shared == id) {
            self.shared.swap_remove(index);
        } else {
            let index = self.outstanding.iter().position(|(known, ..)| *known == id);
            let index = index.expect("a completion of work that is outstanding");
            let (_, opcode, stag) = self.outstanding.swap_remove(index);
            if opcode == WrOpcode::LocalInvalidate && status == WcStatus::Success {
                self.invalidated(stag);
            }
        }
        if completion.flags & WC_WITH_INVALIDATE != 0 {
            self.invalidated(completion.invalidated);
        }
        self.grants.close(&self.node, id);
    }

    fn invalidated(&mut self, stag: u32) {
        self.grants.stag_invalidated(&self.node, stag);
        if stag == WINDOW {
            self.bound = false;
        }
    }

    fn state(&mut self) -> QpState {
        let command = Command::QueryQp { qp: self.qp };
        match self.node.execute(command, self.now).unwrap() {
            Answer::QpState(state) => state,
            other => panic!("{other:?}"),
        }
    }

    fn check(&mut self) {
        self.grants.check(&self.node);
        while let Some(event) = self.node.shard.poll_event() {
            if let ShardEvent::Client {
                event: Event::SrqLimit { .. },
                ..
            } = event
            {
                let left = self.limits.checked_sub(1);
                self.limits = left.expect("a limit that was asked for");
            }
        }
        let counters = self.node.shard.qp_counters();
        let errors: u64 = counters
            .named()
            .filter(|(name, _)| name.ends_with("_errors") || name.starts_with("refused_"))
            .map(|(_, count)| count)
            .sum();
        // A receive that can't be used is an error of ours, beside that of the peer.
        assert!(errors <= 2, "more errors than one: {counters:?}");
        let terminates = (counters.terminates_sent, counters.terminates_received);
        assert!(terminates.0 + terminates.1 <= 1, "{counters:?}");
        match (self.silent, self.state()) {
            (None, QpState::Error) => {
                self.silent = Some(counters.fpdus_sent);
                self.grants.close_all(&self.node);
                assert!(self.outstanding.is_empty(), "{:?}", self.outstanding);
            }
            (Some(sent), state) => {
                assert_eq!(state, QpState::Error);
                assert_eq!(counters.fpdus_sent, sent, "the end was to be silent");
            }
            (None, QpState::Rts) if self.receives_only() && errors == 0 => {
                let mut memory = DefaultHasher::new();
                Grants::read(&self.node).hash(&mut memory);
                self.looks.push(Look {
                    memory: memory.finish(),
                    completions: std::mem::take(&mut self.completions),
                    counters: counters.named().collect(),
                });
            }
            _ => {}
        }
    }

    /// Everything is given back.
    fn finish(&mut self) {
        let fin = self.peer.fin(self.startup + self.presented);
        self.give(&[fin]);
        self.check();
        self.now += Duration::from_secs(30);
        self.give(&[]);
        self.check();
        let qp = self.qp;
        self.node
            .execute(Command::RemoveQp { qp }, self.now)
            .unwrap();
        self.grants.close_all(&self.node);
        for _ in 0..4 {
            self.now += Duration::from_secs(100);
            self.give(&[]);
        }
        self.grants.check(&self.node);
        let stags: Vec<_> = self.grants.stags().chain([Stag(WINDOW)]).collect();
        for stag in stags {
            let command = Command::RemoveRegion { stag };
            self.node.execute(command, self.now).unwrap();
        }
        if let Some(srq) = self.srq {
            let command = Command::RemoveSrq { srq };
            self.node.execute(command, self.now).unwrap();
        }
        self.node.assert_empty(0);
    }
}
