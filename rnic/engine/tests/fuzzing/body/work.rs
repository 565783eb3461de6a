//! The node's side: its memory, the queue pair with its work, and what must be true of these whatever the peer does.
//!
//! No byte changes that nobody may change. Each piece of work completes once. The first error is the only one, with at
//! most one Terminate. After it nothing changes and nothing is sent. In the end every frame is back.

use std::net::SocketAddr;
use std::time::Duration;

use rnic_engine::command::{Answer, Command, ShardEvent};
use rnic_engine::metrics::Counted;
use rnic_ipc::control::{ConnectSpec, Event, MpaOptions, QpAttributes, QpState, Transport};
use rnic_ipc::id::{CqId, QpNum, SrqId};
use rnic_ipc::ring::WorkRequest;
use rnic_ipc::work::{
    Completion, Sge, WC_WITH_INVALIDATE, WR_SIGNALED, WR_SOLICITED, WcStatus, WrOpcode,
};
use rnic_net::{Path, PeerRules};
use rnic_proto::Stag;
use userspace_net::Instant;

use super::grants::{BASES, Grants, PD, REGION, STAGS, THROUGH_WINDOW, WINDOW, place};
use super::input::Input;
use super::node::{Node, Settings};

/// Work requests of each queue that are outstanding at most.
const WORK_MAX: usize = 20;

/// What is at the other end of the node's wire.
pub trait Peer {
    /// Takes what the node sent.
    fn take(&mut self, frame: &[u8]);
    /// What it answers to all that it took.
    fn answers(&mut self) -> Vec<Vec<u8>>;
}

pub struct Work {
    pub node: Node,
    grants: Grants,
    qp: QpNum,
    pub now: Instant,
    next_id: u64,
    /// How the start-up is, and where receives come from.
    choice: u8,
    /// The shared receive queue that the queue pair takes from, if it does.
    srq: Option<SrqId>,
    /// Work that has not completed: its name, what it does, and to which STag.
    outstanding: Vec<(u64, WrOpcode, u32)>,
    /// Those that came since they were last taken.
    pub completions: Vec<(CqId, Completion)>,
    /// Receives of the shared queue, which stay when the queue pair ends.
    shared: Vec<u64>,
    /// The window may be bound.
    bound: bool,
    /// Limit events that may still come.
    limits: usize,
    /// What was sent when the stream came to its end.
    silent: Option<u64>,
}

impl Work {
    /// Bits 6 and 7 of `choice` are about the work, the others about the start-up.
    pub fn new(choice: u8) -> Self {
        let settings = Settings::new(0, 1500);
        let place = settings.place();
        let mut node = Node::new(0, settings, place);
        let grants = Grants::new(&mut node);
        let srq = (choice & 64 != 0).then(|| node.create_srq(2));
        let qp = node.create_qp(QpAttributes {
            srq,
            signal_all: true,
            receive_wait: None,
            ..Node::attributes(PD, [CqId(0), CqId(1)])
        });
        Self {
            node,
            grants,
            qp,
            now: Instant::from_nanos(1_000_000),
            next_id: 0,
            choice,
            srq,
            outstanding: Vec::new(),
            completions: Vec::new(),
            shared: Vec::new(),
            bound: false,
            limits: 0,
            silent: None,
        }
    }

    /// Asks the peer for a session.
    pub fn connect(&mut self, local: SocketAddr, remote: SocketAddr, path: Path, mpa: MpaOptions) {
        let connect = Command::Connect {
            qp: self.qp,
            spec: ConnectSpec {
                remote,
                local: Some(local.ip()),
                local_port: local.port(),
                transport: Transport::Sctp,
                mpa,
                private_data: Vec::new(),
            },
            local,
            path,
            internal_link: None,
            peers: PeerRules::default(),
        };
        self.node.execute(connect, self.now).unwrap();
    }

    /// Accepts what the peer asks for, if it does; whether the stream is there.
    pub fn accept(&mut self, mpa: MpaOptions) -> bool {
        let mut established = false;
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
                // It may be gone again.
                let _ = self.node.execute(accept, self.now);
            }
            established |= matches!(event, Event::Established { .. });
        }
        established
    }

    pub fn post(&mut self, input: &mut Input<'_>) {
        if self.outstanding.len() + self.shared.len() >= WORK_MAX {
            return;
        }
        self.next_id += 1;
        let id = self.next_id;
        let region = if input.one_in(4) { 0 } else { 1 };
        let skip = input.below(REGION - 600);
        let len = input.below(600);
        let sge = Sge {
            addr: BASES[region] + skip as u64,
            length: len as u32,
            lkey: STAGS[region],
        };
        let any = input.pick(&[
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
        request.slot.flags = WR_SIGNALED | input.pick(&[0, WR_SOLICITED]);
        request.slot.rkey = 7;
        self.fill(input, &mut request, opcode, sge);
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

    /// Receives come from a shared queue.
    pub fn shares_receives(&self) -> bool {
        self.srq.is_some()
    }

    /// Only receives are posted.
    pub fn receives_only(&self) -> bool {
        self.choice & 128 != 0
    }

    /// What a work request is about.
    fn fill(
        &mut self,
        input: &mut Input<'_>,
        request: &mut WorkRequest,
        opcode: WrOpcode,
        mut sge: Sge,
    ) {
        let mut operands = [input.byte().into(), 0, 1, 1];
        match opcode {
            WrOpcode::AtomicFetchAdd | WrOpcode::AtomicCompareSwap => {
                sge.length = if input.one_in(16) { 4 } else { 8 };
            }
            WrOpcode::LocalInvalidate => {
                let stags = [WINDOW, WINDOW, STAGS[0], STAGS[1], STAGS[3], STAGS[5]];
                request.slot.rkey = input.pick(&stags);
            }
            WrOpcode::BindWindow => {
                let region = input.pick(&[1, 1, 0, 5, 2, 3]);
                let skip = input.below(REGION - 600);
                let len = input.below(600);
                request.slot.rkey = WINDOW;
                request.slot.remote_addr = BASES[region] + skip as u64;
                let rights = input.pick(&[15, 2, 4, 8]);
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
    pub fn arm(&mut self, input: &mut Input<'_>) {
        if let Some(srq) = self.srq {
            let limit = 1 + input.below(4) as u32;
            let command = Command::ArmSrq { srq, limit };
            self.node.execute(command, self.now).unwrap();
            self.limits += 1;
        }
    }

    pub fn revoke(&mut self, input: &mut Input<'_>) {
        let region = input.below(STAGS.len());
        if self.grants.is_valid(region) {
            // What was invalidated stays registered, and nothing comes of it.
            let stag = Stag(STAGS[region]);
            let command = Command::RemoveRegion { stag };
            self.node.execute(command, self.now).unwrap();
            self.grants.revoked(&self.node, region);
        }
    }

    /// Gives the node frames, and lets it work until it has nothing to do: after each frame, or after all of them.
    pub fn give(&mut self, peer: &mut impl Peer, frames: &[Vec<u8>], alone: bool) {
        for frame in frames {
            assert!(self.node.wire.push(frame));
            while alone && self.node.shard.poll(self.now) {}
        }
        let mut frame = Vec::new();
        let mut goes_on = true;
        while goes_on {
            while self.node.shard.poll(self.now) {}
            while self.node.wire.take(&mut frame) {
                peer.take(&frame);
            }
            let answers = peer.answers();
            goes_on = !answers.is_empty();
            for answer in answers {
                assert!(self.node.wire.push(&answer));
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

    /// Whether the stream is there, without an error.
    pub fn check(&mut self) -> bool {
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
            .into_iter()
            .filter(|(name, _)| name.ends_with("_errors") || name.starts_with("refused_"))
            .map(|(_, count)| count)
            .sum();
        // A receive that can't be used is an error of ours, beside that of the peer.
        assert!(errors <= 2, "more errors than one: {counters:?}");
        let terminates = (counters.terminates_sent, counters.terminates_received);
        assert!(terminates.0 + terminates.1 <= 1, "{counters:?}");
        let state = self.state();
        match (self.silent, state) {
            (None, QpState::Error) => {
                self.silent = Some(counters.fpdus_sent);
                self.grants.close_all(&self.node);
                assert!(self.outstanding.is_empty(), "{:?}", self.outstanding);
            }
            (Some(sent), state) => {
                assert_eq!(state, QpState::Error);
                assert_eq!(counters.fpdus_sent, sent, "the end was to be silent");
            }
            _ => {}
        }
        state == QpState::Rts && errors == 0
    }

    /// Everything is given back.
    pub fn finish(&mut self, peer: &mut impl Peer, alone: bool) {
        self.now += Duration::from_secs(30);
        self.give(peer, &[], alone);
        self.check();
        let qp = self.qp;
        self.node
            .execute(Command::RemoveQp { qp }, self.now)
            .unwrap();
        self.grants.close_all(&self.node);
        for _ in 0..4 {
            self.now += Duration::from_secs(100);
            self.give(peer, &[], alone);
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
